"""What a dashboard is about, and who may use it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import ssl

    from pocketmq.client.credentials import Credentials

DEFAULT_PORT: Final = 8180

#: Seconds from one sample of the history to the next; the sampler may take longer.
PERIOD: Final = 5.0

#: Seconds for each answer: a page says within them that a server does not answer.
TIMEOUT: Final = 4.0


class DashboardConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a dashboard is about, and who may use it.

    Attributes:
        namesrv: the name servers of the cluster.
        host, port: where it listens; 0: any free port.
        tls: to name servers and brokers, as clients take it.
        credentials: sign what visitors ask who have not logged in.
        sampler_credentials: sign the samples of the history instead of `credentials`.
        password: lets those in who know it; without one, the users of the cluster log in.
        hosts: names under which browsers may reach it, beside localhost and IP addresses.
        period: seconds from one sample of the history to the next.
        timeout: seconds for each answer of a server.
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
