from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingClosed, RemotingConnectError, RemotingTimeout
from pocketmq.remoting.pool import ConnectionPool
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.serving.server import RemotingServer
from tests.remoting.peers import DEFER, ECHO, SLOW, echo_server


def address(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.port}"


async def test_one_connection_serves_an_address() -> None:
    async with echo_server() as (server, _), ConnectionPool() as pool:
        at = address(server)
        answers = await asyncio.gather(
            *(pool.request(at, ECHO, None, b"%d" % i) for i in range(20))
        )
        assert [bytes(a.body) for a in answers] == [b"%d" % i for i in range(20)]
        assert len(server.connections) == 1
        assert pool.addresses == [at]
        assert await pool.get(at) is await pool.get(at)


async def test_connections_close_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    both = asyncio.Barrier(2)
    close = Connection.close

    async def close_with_the_other(connection: Connection) -> None:
        await both.wait()  # as a server that hangs makes a close wait
        await close(connection)

    monkeypatch.setattr(Connection, "close", close_with_the_other)
    async with echo_server() as (first, _), echo_server() as (second, _):
        pool = ConnectionPool()
        for server in (first, second):
            await pool.request(address(server), ECHO)
        async with asyncio.timeout(60):
            await pool.close()
        assert pool.addresses == []


async def test_oneway_through_the_pool() -> None:
    async with echo_server() as (server, echo), ConnectionPool() as pool:
        await pool.send_oneway(address(server), DEFER, None, b"x")
        await echo.arrived.wait()
        assert echo.seen[0].oneway


async def test_a_lost_connection_is_made_again_on_next_use() -> None:
    events: list[tuple[str, str]] = []
    async with ConnectionPool() as pool:
        pool.on_connected.append(lambda at: events.append(("up", at)))
        pool.on_disconnected.append(lambda at: events.append(("down", at)))
        async with echo_server() as (server, _):
            at, port = address(server), server.port
            await pool.request(at, ECHO)
            gone = asyncio.Event()
            (await pool.get(at)).on_close(lambda _: gone.set())
        await gone.wait()
        assert pool.addresses == []
        with pytest.raises(RemotingConnectError):
            await pool.request(at, ECHO)
        async with echo_server(port=port):
            assert (await pool.request(at, ECHO)).code == 0
            assert events == [("up", at), ("down", at), ("up", at)]
    assert events[-1] == ("down", at)


async def test_a_server_that_restarts_under_pending_requests() -> None:
    async with ConnectionPool() as pool:
        async with echo_server() as (server, echo):
            at, port = address(server), server.port
            asked = asyncio.ensure_future(pool.request(at, DEFER, timeout=60.0))
            await echo.arrived.wait()
        with pytest.raises(RemotingClosed):
            await asked
        async with echo_server(port=port):
            assert (await pool.request(at, ECHO)).code == 0


async def test_a_failed_connect_fails_all_who_wait_and_is_tried_again_later() -> None:
    async with echo_server() as (server, _):
        port = server.port
    at = f"127.0.0.1:{port}"
    async with ConnectionPool() as pool:
        results = await asyncio.gather(
            *(pool.request(at, ECHO) for _ in range(5)), return_exceptions=True
        )
        assert [type(r) for r in results] == [RemotingConnectError] * 5
        async with echo_server(port=port):
            assert (await pool.request(at, ECHO)).code == 0


async def test_a_caller_that_gives_up_does_not_take_the_connect_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    create = loop.create_connection
    go_on = asyncio.Event()
    connects = 0

    async def slow(*args: Any, **options: Any) -> object:
        nonlocal connects
        connects += 1
        await go_on.wait()
        return await create(*args, **options)

    async with echo_server() as (server, _), ConnectionPool() as pool:
        monkeypatch.setattr(loop, "create_connection", slow)
        first = asyncio.ensure_future(pool.request(address(server), ECHO))
        second = asyncio.ensure_future(pool.request(address(server), ECHO))
        with pytest.raises(RemotingConnectError):
            await pool.request(address(server), ECHO, timeout=0.05)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        go_on.set()
        assert (await second).code == 0
        assert connects == 1


async def test_the_timeout_includes_the_connect() -> None:
    async with echo_server() as (server, _), ConnectionPool() as pool:
        with pytest.raises(RemotingTimeout):
            await pool.request(address(server), SLOW, timeout=0.05)


async def test_a_closed_pool_connects_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async with echo_server() as (server, _):
        pool = ConnectionPool()
        await pool.request(address(server), ECHO)

        async def never(*_: object, **__: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
        connecting = asyncio.ensure_future(pool.get("127.0.0.1:1"))
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(RemotingClosed):
            await connecting
        with pytest.raises(RemotingClosed):
            await pool.request(address(server), ECHO)
        await pool.close()


async def test_pushed_requests_reach_the_pools_dispatcher() -> None:
    dispatcher = Dispatcher()

    def who(request: Request[Any]) -> Response:
        return Response(body=b"me")

    dispatcher.register(307, who)
    async with echo_server() as (server, echo), ConnectionPool(dispatcher) as pool:
        await pool.request(address(server), ECHO)
        answer = await echo.seen[0].connection.send_request(307)
        assert bytes(answer.body) == b"me"


async def test_a_failing_callback_is_logged_and_does_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: str) -> None:
        raise RuntimeError("on purpose")

    async with echo_server() as (server, _), ConnectionPool() as pool:
        pool.on_connected.append(fail)
        with caplog.at_level(logging.ERROR, logger="pocketmq.remoting"):
            assert (await pool.request(address(server), ECHO)).code == 0
        assert "on purpose" in caplog.text
