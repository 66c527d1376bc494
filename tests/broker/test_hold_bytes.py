"""Long polls of an unusual size, and filters that cost much, take no more than their share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketmq.broker.waiting.hold_service import HoldService
from pocketmq.message.sql_filter import FILTER_WORK, compile_sql
from pocketmq.remoting.serving.request import Request
from tests.broker.holding import QUEUE, TOPIC, FakeConnection, FakeStore, Holding, pull


def service(max_bytes: int) -> HoldService:
    return HoldService(FakeStore(), lambda _: 0, limit=1_000, max_bytes=max_bytes)


async def test_large_pulls_are_bounded_in_bytes() -> None:
    holds = service(max_bytes=100_000)
    greedy = FakeConnection()

    def large(connection: FakeConnection) -> Request[Any]:
        request = pull(connection)
        request.header.subscription = "t" * 4_000
        request.head = b"h" * 5_000
        return request

    held = [request for request in (large(greedy) for _ in range(10)) if hold(holds, request)]
    assert len(held) == 2
    # Those of the usual size, and those of others, still wait.
    assert hold(holds, pull(greedy))
    assert hold(holds, large(FakeConnection()))

    assert holds.cancel(held[0])
    assert hold(holds, large(greedy))
    assert not hold(holds, large(greedy))
    greedy.close()
    assert hold(holds, large(FakeConnection()))
    holds.close()


def hold(holds: HoldService, request: Request[Any], codes: frozenset[int] | None = None) -> bool:
    return holds.hold(request, TOPIC, QUEUE, 0, codes, 60_000)


async def test_tags_count_once_for_each_connection() -> None:
    holds = service(max_bytes=1_000_000)
    connection = FakeConnection()
    many = frozenset(range(1_000))  # of 72 bytes each
    assert all(hold(holds, pull(connection), many) for _ in range(100))
    assert not hold(holds, pull(connection), frozenset(range(1_001)))
    connection.close()
    assert hold(holds, pull(FakeConnection()), frozenset(range(1_001)))
    holds.close()


class Asked:
    """A filter that wants nothing, and counts."""

    def __init__(self, cost: int) -> None:
        self.cost = cost
        self.times = 0

    def __call__(self, properties: Mapping[str, str]) -> bool:
        self.times += 1
        return False


async def test_a_message_asks_filters_within_bounds_and_wakes_the_rest() -> None:
    holding = Holding()
    holding.store.properties_at = lambda *_: {}  # type: ignore[method-assign]
    filters = [Asked(FILTER_WORK // 4) for _ in range(10)]
    connection = FakeConnection()
    requests = [holding.hold(connection, accept=each) for each in filters]

    holding.store.append()
    holding.store.append()
    assert [each.times for each in filters] == [1] * 4 + [0] * 6
    await holding.changed.wait()
    # The second message came in the same turn, so it woke the others without a look.
    assert holding.executed == requests[4:] + requests[:4]

    again = Asked(FILTER_WORK)
    holding.hold(connection, accept=again)
    holding.store.append()
    assert again.times == 1
    holding.service.close()


async def test_a_message_with_long_properties_asks_fewer_filters() -> None:
    holding = Holding()
    holding.store.properties_at = lambda *_: {"p": "a" * 30_000}  # type: ignore[method-assign]
    filters = [Asked(FILTER_WORK // 40) for _ in range(10)]
    for each in filters:
        holding.hold(FakeConnection(), accept=each)
    holding.store.append()
    assert [each.times for each in filters] == [1] * 2 + [0] * 8
    holding.service.close()


async def test_a_filter_s_cost_is_its_comparisons() -> None:
    holds = service(max_bytes=10_000_000)
    connection = FakeConnection()

    def filtered(number: int) -> bool:
        text = " OR ".join(f"a = {number}{term}" for term in range(100))
        request = pull(connection)
        return holds.hold(request, TOPIC, QUEUE, 0, None, 60_000, compile_sql(text))

    assert 1 < sum(filtered(number) for number in range(20)) < 10
    holds.close()
