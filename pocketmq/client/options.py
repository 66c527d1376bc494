"""Options that every client takes, whatever it does: `Producer(group, **options)` and the others.

They are passed on to ClientInstance, which says what they mean.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Iterable
from typing import TypedDict

from pocketmq.client.credentials import Credentials
from pocketmq.client.parameters import Seconds, unknown_option

__all__ = ["ClientOptions", "check_options"]


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of ClientInstance for users of every kind of client.

    - `instance_name`, `unit_name`: parts of the clientId. Brokers tell clients apart by it, so two
      that run at the same time, also in one process, need different ones; they have by default.
    - `credentials`: signs every request (client.credentials).
    - `tls`: True to encrypt connections and to trust what the system trusts, or an SSLContext; to
      brokers and name servers alike (useTLS).
    - `vip_channel`: send, and ask for nearly all but messages, at the port two below the broker's
      own (vipChannelEnabled; client.vip_channel).
    - `namespace`: prefixes topics and groups (client.namespace).
    - `start_timeout`: seconds (or a timedelta) that `start` waits for a name server; then it raises
      NoNameServer. With None, `start` does not wait, but calls do. Default: None; consumers: 30.
    """

    instance_name: str
    unit_name: str
    credentials: Credentials | None
    tls: ssl.SSLContext | bool
    vip_channel: bool
    namespace: str
    start_timeout: Seconds | None


def check_options(client: type, given: Iterable[str]) -> None:
    """Raise TypeError for the first keyword that no client takes; it names the nearest option."""
    unknown = [name for name in given if name not in ClientOptions.__annotations__]
    if unknown:
        known = {
            parameter.name
            for base in client.__mro__
            for parameter in inspect.signature(base).parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        raise unknown_option(
            client.__name__, unknown[0], known | set(ClientOptions.__annotations__)
        )
