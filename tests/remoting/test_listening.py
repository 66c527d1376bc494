"""How servers accept connections: a few at a time, however many wait."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from pocketmq.remoting.serving.listening import AT_ONCE
from tests.remoting.peers import ECHO, RawPeer, echo_server, frame

MANY = 40 * AT_ONCE


async def test_who_is_connected_is_served_while_many_others_connect() -> None:
    with contextlib.ExitStack() as opened:
        async with echo_server() as (server, _):
            peer = await RawPeer.open(server.port)
            peer.send(frame(ECHO, 1))
            await peer.read()
            address = ("127.0.0.1", server.port)
            for _ in range(MANY):  # the kernel keeps them, while the event loop waits
                opened.enter_context(socket.create_connection(address, timeout=10))
            peer.send(frame(ECHO, 2))
            assert (await peer.read()).opaque == 2
            assert len(server.connections) < MANY / 2
            while len(server.connections) <= MANY:
                before = len(server.connections)
                await asyncio.sleep(0)
                # Those that were accepted in a turn are connected in the next ones.
                assert len(server.connections) - before <= 2 * AT_ONCE
            await peer.close()
