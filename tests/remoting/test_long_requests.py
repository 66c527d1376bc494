"""Requests that take long are executed in turns, and in a fair order."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.long_requests import (
    LEAST_BEGUN,
    LEAST_BYTES,
    TURN,
    Done,
    LongRequests,
)
from pocketmq.remoting.serving.request import Caller, Request


class Work:
    """Steps that take a turn's time each, by a clock of their own."""

    def __init__(self, **options: Any) -> None:
        self.now = 0.0
        self.done: list[str] = []
        self.light = LightClients()
        self.queue = LongRequests(self.light, clock=lambda: self.now, **options)

    def steps(self, name: str, count: int) -> Generator[None, None, str]:
        for _ in range(count):
            self.now += TURN
            self.done.append(name)
            yield
        return name

    def start(self, name: str, connection: Any, count: int = 1) -> asyncio.Task[str]:
        request = request_of(connection)
        return asyncio.create_task(self.queue.run(request, self.steps(name, count)))


class Client:
    """A connection."""

    def __init__(self, user: str = "") -> None:
        self.user = user
        self.peer = ("10.0.0.1", 1)
        self.closed = False


def connection(*user: str) -> Any:
    return Client(*user)


def request_of(connection: Any) -> Request[Any]:
    request: Request[Any] = Request(0, 0)
    request.connection = connection
    request.caller = cast(Caller, SimpleNamespace(username=connection.user))
    return request


async def test_others_are_served_between_the_steps() -> None:
    work = Work()
    task = work.start("long", connection(), 10)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert task.result() == "long"
    assert turns >= 10


async def test_one_request_works_at_a_time_and_owners_and_connections_take_turns() -> None:
    work = Work()
    greedy, same_owner, other = connection(), connection(), connection("other")
    tasks = [work.start(f"greedy{number}", greedy, 2) for number in range(3)]
    tasks += [work.start("same", same_owner), work.start("other", other)]
    await asyncio.gather(*tasks)
    assert work.done == [
        *("greedy0", "greedy0"),
        "other",
        "same",
        *("greedy1", "greedy1"),
        *("greedy2", "greedy2"),
    ]


async def test_users_at_one_address_take_turns() -> None:
    work = Work()
    tasks = [work.start(f"eve{number}", connection("eve")) for number in range(4)]
    tasks.append(work.start("alice", connection("alice")))
    await asyncio.gather(*tasks)
    assert work.done == ["eve0", "alice", "eve1", "eve2", "eve3"]


async def test_a_closed_connection_ends_its_request() -> None:
    work = Work()
    closing = connection()
    first = work.start("first", closing, 1000)
    waiting = work.start("waiting", closing)
    other = work.start("other", connection())
    await asyncio.sleep(0)
    closing.closed = True
    assert await other == "other"
    for task in (first, waiting):
        with pytest.raises(RemotingError, match="the connection was closed"):
            await task
    assert len(work.done) < 10


async def test_a_cancelled_request_lets_the_next_one_work() -> None:
    work = Work()
    first, second, third = (work.start(name, connection(), 5) for name in "abc")
    await asyncio.sleep(0)
    second.cancel()
    first.cancel()
    assert await third == "c"
    assert await work.start("d", connection()) == "d"


async def test_what_waits_is_bounded() -> None:
    work = Work(max_bytes=20 * LEAST_BYTES)
    greedy = connection()
    kept = [work.start("kept", greedy) for _ in range(2)]
    with pytest.raises(RemotingError) as refused:
        await work.start("refused", greedy)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert await asyncio.gather(*kept) == ["kept", "kept"]
    assert await work.start("later", greedy) == "later"


async def test_what_fits_into_a_turn_is_done_at_once() -> None:
    work = Work()
    assert work.queue.begin(request_of(connection()), work.steps("short", 0)) == Done("short")
    rest = work.queue.begin(request_of(connection()), work.steps("long", 3))
    assert work.done == ["long"]
    assert not isinstance(rest, Done)
    assert await rest == "long"


async def test_begun_requests_of_one_connection_keep_their_order_and_end_without_it() -> None:
    work = Work()
    one, other = connection(), connection()
    rests = [
        work.queue.begin(request_of(client), work.steps(name, 2))
        for client, name in ((one, "a"), (one, "b"), (other, "c"))
    ]
    assert work.done == ["a", "c"]
    one.closed = True
    assert await asyncio.gather(*(rest for rest in rests if not isinstance(rest, Done))) == [*"abc"]
    assert [name for name in work.done if name != "c"] == [*"aabb"]
    assert work.queue.begin(request_of(one), work.steps("d", 0)) == Done("d")


async def test_a_short_request_does_not_wait_for_long_ones_that_were_begun() -> None:
    """Neither those of other users, nor those of other connections of its user."""
    work = Work()
    greedy = [connection("greedy") for _ in range(8)] + [connection() for _ in range(3)]
    ends = [
        work.queue.begin(request_of(client), work.steps("long", 100))
        for client in greedy
        for _ in range(2)
    ]
    tasks = [asyncio.ensure_future(end) for end in ends if not isinstance(end, Done)]
    short = work.queue.begin(request_of(connection()), work.steps("short", 3))
    before = len(work.done)
    assert not isinstance(short, Done)
    assert await short == "short"
    assert len(work.done) - before <= 2 * 2 * 4 + 2  # two turns, of two owners, four connections
    assert await asyncio.gather(*tasks) == ["long"] * 22


async def test_an_error_leaves_nothing_to_the_garbage_collector() -> None:
    """The request may be large."""

    class Large:
        pass

    def refusing(large: Large) -> Generator[None, None, str]:
        yield
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"no {type(large).__name__}")

    async def refused() -> weakref.ref[Large]:
        large = Large()
        with pytest.raises(RemotingError):
            await Work().queue.run(request_of(connection()), refusing(large))
        return weakref.ref(large)

    gc.disable()
    try:
        left = await refused()
        await asyncio.sleep(0)
        assert left() is None
    finally:
        gc.enable()


async def test_who_has_had_much_time_waits_for_others_and_not_for_ever() -> None:
    work = Work()
    ends = [
        work.queue.begin(request_of(connection(owner)), work.steps(owner, count))
        for owner, count in (("a", 30), ("b", 10), ("b", 10), ("c", 5))
    ]
    await asyncio.gather(*(end for end in ends if not isinstance(end, Done)))
    rest = work.done[len(ends) :]
    assert all(3 <= turns <= 5 for turns in Counter(rest[:12]).values())
    assert rest[-1] == "a"


async def test_a_request_for_which_there_is_no_room_is_not_begun() -> None:
    work = Work(max_bytes=10 * LEAST_BEGUN)
    client = connection()
    rest = work.queue.begin(request_of(client), work.steps("kept", 2))
    with pytest.raises(RemotingError) as refused:
        work.queue.begin(request_of(client), work.steps("refused", 2))
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert not isinstance(rest, Done)
    assert await rest == "kept"

    def broken() -> Generator[None, None, str]:
        raise ValueError("broken")
        yield

    for _ in range(3):
        with pytest.raises(ValueError, match="broken"):
            work.queue.begin(request_of(client), broken())
    assert "refused" not in work.done
