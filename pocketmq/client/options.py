"""Options that every client takes, whatever it does: `Producer(group, **options)` and the others.

They are passed on to ClientInstance, which says what they mean.
"""

from __future__ import annotations

import ssl
from typing import TypedDict

from pocketmq.client.credentials import Credentials
from pocketmq.client.parameters import Seconds

__all__ = ["ClientOptions"]


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
    - `start_timeout`: have `start` wait so many seconds (or a timedelta) for a name server, and
      raise NoNameServer when none can be reached; None: `start` does not wait, but calls do.
    """

    instance_name: str
    unit_name: str
    credentials: Credentials | None
    tls: ssl.SSLContext | bool
    vip_channel: bool
    namespace: str
    start_timeout: Seconds | None
