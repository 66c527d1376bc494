"""Pops that wait, or go on in another turn: each is executed once, within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.broker.pop.long_polling import EVERYTHING, Filter, Polling, PopLongPolling
from pocketmq.broker.waiting.turn_queue import TurnQueue
from pocketmq.message.sql_filter import FILTER_WORK
from pocketmq.remoting.serving.request import Request
from tests.broker.holding import TOPIC, FakeConnection, FakeStore, pull
from tests.fake_time import FakeTime


class Pops:
    """Pops over a fake store, and those that were executed again."""

    def __init__(self, limit: int = 1_000, max_bytes: int = 100_000) -> None:
        self.store = FakeStore()
        self.time = FakeTime()
        self.executed: list[Request[Any]] = []
        self.changed = asyncio.Event()
        self.polling = PopLongPolling(
            self.store,
            SimpleNamespace(
                pop_polling_size=1_000,
                max_pop_polling_size=limit,
                pop_long_polling_force_notify_interval=0,
                use_separate_retry_queue=False,
            ),
            self._execute,
            TurnQueue(),
            self.time.clock,
            self.time.call_later,
            max_bytes=max_bytes,
        )

    def _execute(self, request: Request[Any], last: bool) -> int:
        self.executed.append(request)
        self.changed.set()
        return 0

    def park(self, request: Request[Any], filter: Filter = EVERYTHING) -> Polling:
        until = self.time.now + 60_000
        return self.polling.park(request, TOPIC, "G", 0, 1, filter, until)


@pytest.fixture
async def pops() -> Any:
    made = Pops()
    yield made
    made.polling.close()


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection()


async def test_messages_that_arrive_while_a_filter_is_asked(
    pops: Pops, connection: FakeConnection
) -> None:
    request = pull(connection)
    arrivals: Iterator[Callable[[], None]] = iter([pops.store.append])

    def properties_at(topic: str, queue_id: int, offset: int) -> dict[str, str] | None:
        next(arrivals, lambda: None)()
        return {}

    pops.store.properties_at = properties_at  # type: ignore[method-assign]
    assert pops.park(request, Filter(None, lambda _: True)) is Polling.WAITS

    pops.store.append()
    await pops.changed.wait()
    assert pops.executed == [request]
    assert len(pops.polling) == 0


async def test_large_pops_are_bounded_in_bytes(pops: Pops, connection: FakeConnection) -> None:
    def large() -> Request[Any]:
        request = pull(connection)
        request.header.subscription = "t" * 4_000
        request.head = b"h" * 5_000
        return request

    requests = [large() for _ in range(5)]
    assert [pops.park(request) for request in requests] == [Polling.WAITS] * 2 + [Polling.FULL] * 3
    assert pops.park(pull(connection)) is Polling.WAITS
    assert pops.polling.cancel(requests[0])
    assert pops.park(large()) is Polling.WAITS


async def test_a_message_asks_the_filters_of_groups_within_bounds(
    pops: Pops, connection: FakeConnection
) -> None:
    asked = 0

    def costly(properties: Mapping[str, str]) -> bool:
        nonlocal asked
        asked += 1
        return False

    costly.cost = FILTER_WORK // 2  # type: ignore[attr-defined]
    pops.store.properties_at = lambda *_: {}  # type: ignore[method-assign]
    for group in range(5):
        until = pops.time.now + 60_000
        request = pull(connection)
        pops.polling.park(request, TOPIC, f"G{group}", 0, 1, Filter(None, costly), until)
    pops.store.append()

    assert asked == 2
    assert len(pops.polling) == 2  # the others look for themselves


async def test_a_connection_has_a_share_of_the_turns() -> None:
    pops = Pops(limit=100)
    greedy, other = FakeConnection(), FakeConnection()
    requests = [pull(greedy) for _ in range(12)]
    assert [pops.polling.run_again(each) for each in requests] == [True] * 10 + [False] * 2
    assert pops.polling.run_again(pull(other))
    await pops.changed.wait()
    while len(pops.executed) < 11:  # noqa: ASYNC110 (the turns have no event)
        await asyncio.sleep(0)
    assert pops.polling.run_again(requests[-1])


async def test_a_pop_of_very_many_queues_listens_to_some_in_each_turn(
    pops: Pops, connection: FakeConnection
) -> None:
    queues = 16_384
    request = pull(connection)

    def park() -> Polling:
        return pops.polling.park(
            request, TOPIC, "G", -1, queues, EVERYTHING, pops.time.now + 60_000
        )

    assert park() is Polling.WAITS
    assert (len(pops.store.listeners), len(pops.polling)) == (0, 0)

    # It may have missed a message meanwhile, so it is executed again before it waits.
    await pops.changed.wait()
    assert pops.executed == [request]
    assert park() is Polling.WAITS
    assert len(pops.polling) == 1
    assert {(TOPIC, queue_id) for queue_id in range(queues)} <= pops.store.listeners.keys()
