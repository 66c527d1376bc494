"""The port of pages: what clients that keep connections open cost the others."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from pocketmq.monitoring.http_endpoint import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    HttpEndpoint,
    MakePage,
    Page,
    plain,
)
from tests.monitoring.pages import get


@pytest.fixture
async def endpoint() -> AsyncIterator[HttpEndpoint]:
    value = HttpEndpoint("127.0.0.1", 0, {"/live": partial(plain, "ok\n")}, key="healthPort")
    value.start()
    yield value
    await value.stop()


def stalled(port: int, address: str) -> socket.socket:
    """A connection from `address` on which the request never ends."""
    connection = socket.create_connection(("127.0.0.1", port), 10, (address, 0))
    connection.sendall(b"GET /live")
    return connection


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the address 127.0.0.2")
async def test_one_address_does_not_keep_probes_of_others_out(endpoint: HttpEndpoint) -> None:
    with contextlib.ExitStack() as stack:
        early = stack.enter_context(stalled(endpoint.port, "127.0.0.2"))
        for _ in range(MAX_CONNECTIONS_PER_ADDRESS):
            stack.enter_context(stalled(endpoint.port, "127.0.0.2"))
        # Connections are accepted in their order: this answer comes after the end of the early one.
        for _ in range(3):
            assert (await get(endpoint.port, "/live")).text == "ok\n"
        with contextlib.suppress(ConnectionResetError):
            assert early.recv(1) == b""


async def test_connections_without_a_request_do_not_keep_probes_out(
    endpoint: HttpEndpoint,
) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(2 * MAX_CONNECTIONS_PER_ADDRESS):
            stack.enter_context(stalled(endpoint.port, "127.0.0.1"))
        for _ in range(3):
            assert (await get(endpoint.port, "/live")).text == "ok\n"


async def test_requests_that_are_answered_are_not_ended_for_others() -> None:
    going_on, made = threading.Event(), threading.Semaphore(0)
    # Each request and each wait has a thread; by default there are six on two cores.
    threads = ThreadPoolExecutor(2 * MAX_CONNECTIONS_PER_ADDRESS)
    asyncio.get_running_loop().set_default_executor(threads)

    def slow() -> Page:
        made.release()
        going_on.wait(60)
        return plain("slow\n")

    pages: dict[str, MakePage] = {"/live": partial(plain, "ok\n"), "/slow": slow}
    endpoint = HttpEndpoint("127.0.0.1", 0, pages, key="healthPort")
    endpoint.start()
    answers = [
        asyncio.ensure_future(get(endpoint.port, "/slow"))
        for _ in range(MAX_CONNECTIONS_PER_ADDRESS)
    ]
    for _ in answers:
        await asyncio.to_thread(made.acquire)
    with stalled(endpoint.port, "127.0.0.1") as late, contextlib.suppress(ConnectionResetError):
        assert await asyncio.to_thread(late.recv, 1) == b""
    going_on.set()
    assert {(await answer).text for answer in answers} == {"slow\n"}
    await endpoint.stop()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs other addresses")
async def test_connections_of_all_addresses_are_bounded(endpoint: HttpEndpoint) -> None:
    with contextlib.ExitStack() as stack:
        early = stack.enter_context(stalled(endpoint.port, "127.0.0.2"))
        for n in range(MAX_CONNECTIONS):
            stack.enter_context(stalled(endpoint.port, f"127.0.0.{3 + n % 4}"))
        with contextlib.suppress(ConnectionResetError):
            assert early.recv(1) == b""
        assert (await get(endpoint.port, "/live")).text == "ok\n"


async def test_a_request_that_comes_byte_by_byte_is_ended() -> None:
    pages = {"/live": partial(plain, "ok\n")}
    endpoint = HttpEndpoint("127.0.0.1", 0, pages, key="healthPort", request_seconds=0.5)
    endpoint.start()

    def dribble() -> bool:
        with stalled(endpoint.port, "127.0.0.1") as connection:
            end = time.monotonic() + 5
            while time.monotonic() < end:
                if select.select([connection], [], [], 0.05)[0]:
                    return True  # an end, since there is no answer yet
                with contextlib.suppress(ConnectionError):
                    connection.sendall(b"y")
        return False

    assert await asyncio.to_thread(dribble)
    # Well-behaved clients have the time of their own.
    assert (await get(endpoint.port, "/live")).text == "ok\n"
    await endpoint.stop()


async def test_an_answer_that_is_not_read_is_ended() -> None:
    ended = threading.Event()
    endless = Page(200, "text/plain", iter(partial(bytes, 1 << 20), b""), ended.set)
    endpoint = HttpEndpoint("127.0.0.1", 0, {"/": lambda: endless}, key="k", answer_seconds=0.5)
    endpoint.start()
    with socket.create_connection(("127.0.0.1", endpoint.port), 10) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert await asyncio.to_thread(ended.wait, 5)
    await endpoint.stop()
