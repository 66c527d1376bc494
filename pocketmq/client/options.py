"""Options that every client takes: `Producer(group, **options)` and the others.

They are passed on to ClientInstance.
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
    """Keyword arguments of ClientInstance that every kind of client accepts.

    - `instance_name`, `unit_name`: parts of the clientId, by which brokers distinguish clients.
      Clients that run at the same time, even in one process, need different ids. The default does
      that.
    - `credentials`: signs every request (`pocketmq.client.credentials`).
    - `tls`: encrypts the connections to brokers and name servers (useTLS): True to trust the
      system's certificates, or an SSLContext.
    - `vip_channel`: use the port two below the broker's own for sends and for nearly all other
      requests, except pulls (vipChannelEnabled; `client.routes.vip_channel`).
    - `namespace`: prefixes topics and groups (`pocketmq.client.namespace`).
    - `start_timeout`: seconds (or a timedelta) that `start` waits for a name server before it
      raises NoNameServer. With None, `start` does not wait, but calls do. Default: None;
      consumers: 30.
    - `route_interval`: seconds (or a timedelta) between updates of the routes of the topics in use
      (pollNameServerInterval). Default: 30.
    - `heartbeat_interval`: seconds (or a timedelta) between heartbeats to every broker
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
    """Check the names and values of a client's options.

    Raises:
        TypeError: an option does not exist (the text names the nearest one), or a value has the
            wrong type.
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
