"""One name server and one broker of one make."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from .official import CLIENT_4, VERSION, Server

# Both makes carry the same broker name, so that what mqadmin prints of them can be compared.
BROKER_NAME = "broker-a"


@dataclass
class Cluster:
    """What a test talks to; `make` is "official" or "ours"."""

    make: str
    namesrv: Server
    broker: Server

    @property
    def address(self) -> str:
        """Of the name server, as clients take it."""
        return self.namesrv.address

    def log(self) -> str:
        return f"{self.namesrv.process.tail()}\n{self.broker.process.tail()}"


# A test of a Java client runs against the official servers, which proves the test, and against
# ours; with this also with the client of release 4, against ours.
every_java_client = pytest.mark.parametrize(
    ("java", "cluster"),
    [(VERSION, "official"), (VERSION, "ours"), (CLIENT_4, "ours")],
    indirect=True,
)
