"""One name server and one broker of one make."""

from __future__ import annotations

from dataclasses import dataclass

from .official import Server

# Both makes carry the same broker name, so that what mqadmin prints of them can be compared.
BROKER_NAME = "broker-a"


@dataclass
class Cluster:
    """What a test talks to; ``make`` is "official" or "ours"."""

    make: str
    namesrv: Server
    broker: Server

    @property
    def address(self) -> str:
        """Of the name server, as clients take it."""
        return self.namesrv.address

    def log(self) -> str:
        return f"{self.namesrv.process.tail()}\n{self.broker.process.tail()}"
