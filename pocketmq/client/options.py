"""Options that every client takes, whatever it does: `Producer(group, **options)` and the others.

They are passed on to ClientInstance, which says what they mean.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Mapping
from typing import Any, TypedDict

from pocketmq.client.credentials import Credentials
from pocketmq.client.parameters import (
    Seconds,
    flag,
    instance,
    seconds,
    seconds_or_none,
    shown,
    text,
    unknown_option,
)


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of ClientInstance for users of every kind of client.

    - `instance_name`, `unit_name`: parts of the clientId. Brokers tell clients apart by it, so two
      that run at the same time, also in one process, need different ones; they have by default.
    - `credentials`: signs every request (`pocketmq.client.credentials`).
    - `tls`: True to encrypt connections and to trust what the system trusts, or an SSLContext; to
      brokers and name servers alike (useTLS).
    - `vip_channel`: send, and ask for nearly all but messages, at the port two below the broker's
      own (vipChannelEnabled; client.vip_channel).
    - `namespace`: prefixes topics and groups (`pocketmq.client.namespace`).
    - `start_timeout`: seconds (or a timedelta) that `start` waits for a name server; then it raises
      NoNameServer. With None, `start` does not wait, but calls do. Default: None; consumers: 30.
    - `route_interval`: seconds (or a timedelta) between two looks at the routes of the topics in
      use (pollNameServerInterval). Default: 30.
    - `heartbeat_interval`: the same between two heartbeats to every broker
      (heartbeatBrokerInterval). Brokers forget a client after 120 s of silence. Default: 30.
    """

    instance_name: str
    unit_name: str
    credentials: Credentials | None
    tls: ssl.SSLContext | bool
    vip_channel: bool
    namespace: str
    start_timeout: Seconds | None
    route_interval: Seconds
    heartbeat_interval: Seconds


def check_options(client: type, given: ClientOptions) -> None:
    """Check the names and the values of the options that a client was given.

    Raises:
        TypeError: no client takes one of them (the text names the nearest option), or a value has
            the wrong type.
        ValueError: a value is out of range.
    """
    values: Mapping[str, Any] = dict(given)
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
    for name in ("instance_name", "unit_name", "namespace"):
        if name in given:
            text(name, values[name], empty=True)
    if values.get("credentials") is not None:
        instance("credentials", values["credentials"], Credentials)
    tls = values.get("tls", False)
    if not isinstance(tls, bool | ssl.SSLContext):
        raise TypeError(f"tls must be True, False or an SSLContext, not {shown(tls)}")
    if "vip_channel" in given:
        flag("vip_channel", values["vip_channel"])
    seconds_or_none("start_timeout", values.get("start_timeout"))
    for name in ("route_interval", "heartbeat_interval"):
        if name in given:
            seconds(name, values[name], above_zero=True)
