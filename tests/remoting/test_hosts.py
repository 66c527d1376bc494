"""Hosts that are no names, and the address that stands for every interface."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingConnectError
from pocketmq.remoting.pool import ConnectionPool
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.listening import CannotListen, PortInUse
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.serving.server import RemotingServer

NO_NAMES = ["broker..example:9876", "." + "x" * 64 + ":9876", "a\ud800b:9876"]


@pytest.mark.parametrize("address", NO_NAMES)
async def test_a_host_that_is_no_name_can_not_be_connected_to(address: str) -> None:
    with pytest.raises(RemotingConnectError):
        await Connection.open(address)
    async with ConnectionPool() as pool:
        with pytest.raises(RemotingConnectError):
            await pool.request(address, 1)


async def test_a_host_that_is_no_name_can_not_be_listened_on() -> None:
    with pytest.raises(CannotListen, match=r"cannot listen on a\.\.b:0"):
        await RemotingServer(Dispatcher(), host="a..b").start()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
async def test_the_address_of_every_interface_takes_ipv4_as_well() -> None:
    peers: list[str] = []

    def serve(request: Request[Any]) -> Response:
        peers.append(request.connection.peer[0])
        return Response()

    dispatcher = Dispatcher()
    dispatcher.register(1, serve)
    server = RemotingServer(dispatcher, host="::")
    await server.start()
    try:
        async with ConnectionPool() as pool:
            for host in ("127.0.0.1", "[::1]"):
                assert (await pool.request(f"{host}:{server.port}", 1)).code == 0
        with pytest.raises(PortInUse):
            await RemotingServer(dispatcher, host="::", port=server.port).start()
    finally:
        await server.stop()
    assert peers == ["127.0.0.1", "::1"]
