"""The configuration of a dashboard: its cluster, and who may use it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import ssl

    from pocketmq.client.credentials import Credentials

DEFAULT_PORT: Final = 8180

#: Seconds between samples of the history; the sampler may take longer.
PERIOD: Final = 5.0

#: Seconds for each answer: within this time, a page shows that a server does not answer.
TIMEOUT: Final = 4.0

#: Seconds in which a browser has to take what was written for it.
READ_TIMEOUT: Final = 20.0


class DashboardConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster of a dashboard, and who may use it.

    Attributes:
        namesrv: the name servers of the cluster.
        host, port: where it listens; 0: any free port.
        tls: to name servers and brokers, as for clients.
        credentials: sign the requests of visitors who have not logged in.
        sampler_credentials: sign the samples of the history instead of `credentials`.
        password: for logging in; without it, the users of the cluster log in.
        hosts: names under which browsers may reach it, besides localhost and IP addresses.
        period: seconds between samples of the history.
        timeout: seconds for each answer of a server.
        read_timeout: seconds in which a browser has to take each part of a download or a live tail.
    """

    namesrv: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tls: ssl.SSLContext | bool = False
    credentials: Credentials | None = None
    sampler_credentials: Credentials | None = None
    password: str | None = None
    hosts: Collection[str] = ()
    period: float = PERIOD
    timeout: float = TIMEOUT
    read_timeout: float = READ_TIMEOUT
