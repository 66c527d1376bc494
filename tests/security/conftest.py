"""A name server and a broker that want signatures and permissions, and connections as users."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

import pytest

from pocketmq.auth.service import signer_of
from pocketmq.auth.users import User
from pocketmq.embedded import EmbeddedServer
from pocketmq.remoting.connection import Connection
from tests.cli.running import Running
from tests.security.resident import SERVE, Open, Peer, Serve, Server

ADMIN: Final = User("root", "root-password-1")
NOBODY: Final = User("nobody", "nobody-password-1")

Connect = Callable[[str, User | None], Awaitable[Connection]]

PROPERTIES: Final = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-password-1"}',
}


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    opened = []

    async def connect(address: str, user: User | None) -> Connection:
        sign = None if user is None else signer_of(user)
        connection = await Connection.open(address, sign=sign)
        opened.append(connection)
        return connection

    yield connect
    for connection in opened:
        await connection.close()


@pytest.fixture
async def server(connect: Connect) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(properties=PROPERTIES) as server:
        await create_nobody(server, connect)
        yield server


async def create_nobody(server: EmbeddedServer, connect: Connect) -> None:
    """Create the user without grants at the broker."""
    root = await connect(server.broker.address, ADMIN)
    body = b'{"username":"nobody","password":"nobody-password-1"}'
    assert (await root.request(3001, None, body, ext_fields={"username": "nobody"})).code == 0


@pytest.fixture
async def open_peer() -> AsyncIterator[Open]:
    """Connections, also from another address of this machine."""
    opened: list[Peer] = []

    async def open_one(port: int, source: str = "127.0.0.1") -> Peer:
        streams = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        opened.append(Peer(*streams))
        return opened[-1]

    yield open_one
    for peer in opened:
        peer.writer.transport.abort()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts the server with more settings, as NAME=VALUE, or on a small machine."""
    started: list[Running] = []

    def start(
        *settings: str, module: str = "pocketmq", grpc: bool = False, dashboard: bool = False
    ) -> Server:
        options = [word for setting in settings for word in ("--set", setting)]
        options += ["--grpc-port", "0"] if grpc else ["--no-grpc"]
        options += ["--dashboard-port", "0"] if dashboard else ["--no-dashboard"]
        started.append(Running(*SERVE, *options, module=module))
        return Server(started[-1])

    yield start
    for running in started:
        running.__exit__(None, None, None)
