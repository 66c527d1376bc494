"""Long polls: woken by the right appends, ended in time, and never left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pocketmq.broker.waiting.hold_service import RECHECK_SECONDS, WOKEN_AT_ONCE, HoldService
from pocketmq.remoting.serving.request import Caller, Request
from tests.broker.holding import QUEUE, TOPIC, A, B, FakeConnection, FakeStore, Holding, pull
from tests.broker.virtual_loop import VirtualRunner


@pytest.fixture
async def holding() -> Any:
    value = Holding()
    yield value
    value.service.close()
    value.assert_nothing_left()


@pytest.fixture
def connection() -> Iterator[FakeConnection]:
    value = FakeConnection()
    yield value
    assert len(value.callbacks) <= 1


async def next_turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_an_append_wakes_all_that_wait_for_its_queue(
    holding: Holding, connection: FakeConnection
) -> None:
    first = holding.hold(connection)
    second = holding.hold(FakeConnection())
    holding.hold(connection, queue_id=1)

    holding.store.append()
    assert holding.executed == [], "the append itself executes nothing"
    await next_turn()

    assert [request.opaque for request in holding.executed] == [first.opaque, second.opaque]
    assert len(holding.service) == 1


async def test_a_batch_wakes_once(holding: Holding, connection: FakeConnection) -> None:
    holding.hold(connection)
    for _ in range(3):
        holding.store.append()
    await next_turn()

    assert len(holding.executed) == 1


@pytest.mark.parametrize("event", ["append", "appends", "topic", "lost"])
async def test_very_many_polls_are_ended_in_turns(event: str) -> None:
    """Each of them once, also if something else ends it meanwhile."""
    holding = Holding(limit=100_000)
    connections = [FakeConnection() for _ in range(20)]
    count = 3 * WOKEN_AT_ONCE
    held = [holding.hold(connections[n % 20]) for n in range(count)]
    if event == "topic":
        holding.service.wake_topic(TOPIC)
    elif event == "lost":
        for connection in connections:
            connection.close()
    else:
        holding.store.append()
    if event != "lost":  # that is as many as a turn has time for
        assert 0 < len(holding.service) < count
    if event == "appends":
        await asyncio.sleep(0)
        holding.store.append()
        connections[0].close()
        holding.service.cancel(held[-1])
    async with asyncio.timeout(10):
        while len(holding.service) or holding.service.woken.finish_first():  # noqa: ASYNC110
            await asyncio.sleep(0)
    executed = [request.opaque for request in holding.executed]
    assert len(executed) == len(set(executed))
    if event == "lost":
        assert not executed
    elif event != "appends":
        assert executed == [request.opaque for request in held]
    else:
        gone = {each.opaque for each in held[::20]} | {held[-1].opaque}
        assert {each.opaque for each in held} - gone <= set(executed)
    holding.service.close()
    holding.assert_nothing_left()


async def test_only_wanted_tags_wake(holding: Holding, connection: FakeConnection) -> None:
    wants_a = holding.hold(connection, codes=frozenset({A}))
    wants_all = holding.hold(connection)

    holding.store.append(B)
    await next_turn()
    assert [request.opaque for request in holding.executed] == [wants_all.opaque]

    holding.store.append(A)
    await next_turn()
    assert holding.executed[1].opaque == wants_a.opaque


async def test_messages_before_the_offset_do_not_wake(
    holding: Holding, connection: FakeConnection
) -> None:
    holding.hold(connection, offset=2)
    holding.store.append()
    holding.store.append()
    await next_turn()
    assert holding.executed == []

    holding.store.append()
    await next_turn()
    assert len(holding.executed) == 1


async def test_its_time_ends_a_poll_and_not_before(
    holding: Holding, connection: FakeConnection
) -> None:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    holding.hold(connection, timeout_ms=250)
    holding.hold(connection, timeout_ms=60_000)

    async with asyncio.timeout(10):
        await holding.changed.wait()

    assert loop.time() - begin >= 0.249
    assert len(holding.executed) == 1


async def test_a_shorter_poll_is_not_kept_by_a_longer_one(
    holding: Holding, connection: FakeConnection
) -> None:
    holding.hold(connection, timeout_ms=60_000)
    short = holding.hold(connection, timeout_ms=1)

    async with asyncio.timeout(10):
        await holding.changed.wait()

    assert [request.opaque for request in holding.executed] == [short.opaque]


async def test_a_closed_connection_takes_its_polls_along(
    holding: Holding, connection: FakeConnection
) -> None:
    for _ in range(3):
        holding.hold(connection)
    other = holding.hold(FakeConnection())

    connection.close()

    assert len(holding.service) == 1
    holding.store.append()
    await next_turn()
    assert [request.opaque for request in holding.executed] == [other.opaque]


async def test_a_client_that_goes_between_waking_and_execution_is_skipped(
    holding: Holding, connection: FakeConnection
) -> None:
    holding.hold(connection)
    holding.store.append()
    connection.close()
    await next_turn()

    assert holding.executed == []


async def test_a_cancelled_poll_is_never_executed(
    holding: Holding, connection: FakeConnection
) -> None:
    request = holding.hold(connection)

    assert holding.service.cancel(request)
    assert not holding.service.cancel(request)
    holding.store.append()
    await next_turn()

    assert holding.executed == []
    holding.assert_nothing_left()


async def test_a_deleted_topic_wakes_its_polls(
    holding: Holding, connection: FakeConnection
) -> None:
    holding.hold(connection, codes=frozenset({A}))
    holding.hold(connection, queue_id=3)

    holding.service.wake_topic("other")
    await next_turn()
    assert holding.executed == []

    holding.service.wake_topic(TOPIC)
    await next_turn()
    assert len(holding.executed) == 2


async def test_the_limit_and_closed_clients_are_not_held(connection: FakeConnection) -> None:
    holding = Holding(limit=1)
    holding.hold(connection)
    assert not holding.service.hold(pull(connection), TOPIC, QUEUE, 0, None, 1000)
    holding.service.close()

    connection.close()
    assert not holding.service.hold(pull(connection), TOPIC, QUEUE, 0, None, 1000)
    holding.assert_nothing_left()


async def test_one_connection_leaves_most_of_the_limit_to_the_others(
    connection: FakeConnection,
) -> None:
    holding = Holding(limit=100)
    requests = [holding.hold(connection) for _ in range(10)]
    assert not holding.service.hold(pull(connection), TOPIC, QUEUE, 0, None, 1000)
    assert holding.service.cancel(requests[0])
    holding.hold(connection)
    holding.service.close()
    holding.assert_nothing_left()


async def test_one_address_leaves_half_of_the_limit_to_the_others() -> None:
    holding = Holding(limit=100)

    def full(address: str) -> bool:
        request = pull(FakeConnection(address))
        return not holding.service.hold(request, TOPIC, QUEUE, 0, None, 1000)

    greedy = [FakeConnection() for _ in range(5)]
    for connection in greedy * 10:
        holding.hold(connection)
    assert full("192.0.2.1")
    others = [FakeConnection(f"192.0.2.{n}") for n in range(2, 7)]
    for connection in others * 10:
        holding.hold(connection)
    assert full("192.0.2.7")
    greedy[0].close()
    for _ in range(10):
        holding.hold(FakeConnection("192.0.2.1"))
    holding.service.close()
    holding.assert_nothing_left()


async def test_users_at_one_address_have_a_share_each() -> None:
    holding = Holding(limit=100)

    def hold(user: str) -> bool:
        request = pull(FakeConnection())
        request.caller = cast(Caller, SimpleNamespace(username=user))
        return holding.service.hold(request, TOPIC, QUEUE, 0, None, 1000)

    assert [hold("eve") for _ in range(51)] == [True] * 50 + [False]
    assert hold("alice")
    assert hold("")
    holding.service.close()
    holding.assert_nothing_left()


async def test_one_failing_poll_does_not_keep_the_others_waiting(
    connection: FakeConnection, caplog: pytest.LogCaptureFixture
) -> None:
    store = FakeStore()
    executed: list[int] = []

    def execute(request: Request[Any]) -> int:
        if not executed:
            executed.append(-1)
            raise RuntimeError("broken")
        executed.append(request.opaque)
        return 0

    service = HoldService(store, execute, limit=100)
    requests = [pull(connection), pull(connection)]
    for request in requests:
        service.hold(request, TOPIC, QUEUE, 0, None, 60_000)
    store.append()
    await next_turn()

    assert executed == [-1, requests[1].opaque]
    assert "queued work failed" in caplog.text
    service.close()


async def test_large_answers_leave_before_more_pulls_run(
    holding: Holding, connection: FakeConnection
) -> None:
    holding.answer_size = 3 << 20
    waiting = [holding.hold(connection) for _ in range(5)]
    holding.store.append()

    seen = []
    while len(holding.executed) < 5:
        await asyncio.sleep(0)
        seen.append(len(holding.executed))

    assert seen == [2, 4, 5]
    assert holding.executed == waiting


async def test_properties_decide_who_wakes(holding: Holding, connection: FakeConnection) -> None:
    asked = []

    def properties_at(topic: str, queue_id: int, offset: int) -> dict[str, str] | None:
        asked.append((topic, queue_id, offset))
        return {"offset": str(offset)} if offset < 2 else None

    holding.store.properties_at = properties_at  # type: ignore[method-assign]
    requests = []
    for wanted in ("0", "1", "5"):
        request = pull(connection)
        requests.append(request)
        accept = partial(is_offset, wanted)
        assert holding.service.hold(request, TOPIC, QUEUE, 0, None, 60_000, accept)

    holding.store.append()
    await next_turn()
    assert holding.executed == requests[:1]
    assert asked == [(TOPIC, QUEUE, 0)]
    holding.store.append()
    await next_turn()
    assert holding.executed == requests[:2]
    # One that cannot be read is for the pull to judge.
    holding.store.append()
    await next_turn()
    assert holding.executed == requests


def is_offset(wanted: str, properties: Mapping[str, str]) -> bool:
    return properties["offset"] == wanted


async def test_an_arrival_during_an_arrival_costs_no_poll_its_wake_up(
    holding: Holding, connection: FakeConnection
) -> None:
    def properties_at(topic: str, queue_id: int, offset: int) -> dict[str, str]:
        if offset == 0:
            holding.store.append(A)
        return {"offset": str(offset)}

    holding.store.properties_at = properties_at  # type: ignore[method-assign]
    requests = [
        holding.hold(connection),
        holding.hold(connection, accept=partial(is_offset, "1")),
        holding.hold(connection, codes=frozenset({A})),
        holding.hold(connection, accept=partial(is_offset, "0")),
        holding.hold(connection),
    ]
    holding.store.append()
    await next_turn()

    assert {request.opaque for request in holding.executed} == {r.opaque for r in requests}
    assert len(holding.executed) == len(requests)


async def test_a_filter_that_fails_wakes_its_own_poll(
    holding: Holding, connection: FakeConnection
) -> None:
    def broken(properties: Mapping[str, str]) -> bool:
        raise RuntimeError("a filter's own fault")

    holding.store.properties_at = lambda *_: {"offset": "0"}  # type: ignore[method-assign]
    failing = holding.hold(connection, accept=broken)
    waiting = holding.hold(connection, accept=partial(is_offset, "7"))
    plain = holding.hold(connection)
    holding.store.append()
    await next_turn()

    assert holding.executed == [failing, plain]
    assert waiting in holding.service


async def test_an_unreadable_message_wakes_the_polls_with_filters(
    holding: Holding, connection: FakeConnection
) -> None:
    asked = []

    def properties_at(topic: str, queue_id: int, offset: int) -> dict[str, str]:
        asked.append(offset)
        raise OSError("the disk is gone")

    holding.store.properties_at = properties_at  # type: ignore[method-assign]
    requests = [holding.hold(connection, accept=partial(is_offset, "7")) for _ in range(2)]
    other_tag = holding.hold(connection, codes=frozenset({A}))
    plain = holding.hold(connection)
    holding.store.append(B)
    await next_turn()

    assert holding.executed == [*requests, plain]
    assert asked == [0]
    assert other_tag in holding.service


def test_an_unnoticed_append_is_found_by_the_recheck() -> None:
    runner = VirtualRunner()
    holding = Holding()

    async def scenario() -> None:
        request = holding.hold(FakeConnection())
        holding.store.ends[TOPIC, QUEUE] = 1
        await asyncio.sleep(RECHECK_SECONDS + 0.1)
        assert holding.executed == [request]
        holding.assert_nothing_left()
        holding.service.close()

    try:
        runner.run(scenario())
    finally:
        runner.close()


def test_the_recheck_goes_on_after_a_store_that_failed() -> None:
    runner = VirtualRunner()
    holding = Holding()

    def unreadable(topic: str, queue_id: int) -> int:
        raise OSError("the disk is gone")

    async def scenario() -> None:
        request = holding.hold(FakeConnection())
        holding.store.ends[TOPIC, QUEUE] = 1
        readable = holding.store.max_offset
        holding.store.max_offset = unreadable  # type: ignore[method-assign]
        await asyncio.sleep(12)
        assert holding.executed == []
        holding.store.max_offset = readable  # type: ignore[method-assign]
        await asyncio.sleep(6)
        assert holding.executed == [request]
        holding.service.close()

    try:
        runner.run(scenario())
    finally:
        runner.close()


def test_the_recheck_goes_on_when_messages_arrive_within_it() -> None:
    runner = VirtualRunner()
    holding = Holding()
    store = holding.store

    async def scenario() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))
        waiting = holding.hold(FakeConnection(), queue_id=0)
        for queue_id in (1, 2):  # listened to, and nothing waits there any more
            holding.service.cancel(holding.hold(FakeConnection(), queue_id=queue_id))
        replaced = None

        def arrive() -> None:
            nonlocal replaced
            store.before_max_offset = lambda: None
            store.append(queue_id=1)
            store.append(queue_id=2)
            replaced = holding.hold(FakeConnection(), queue_id=2, offset=1)

        store.before_max_offset = arrive
        await asyncio.sleep(RECHECK_SECONDS + 0.1)
        assert failures == []
        store.append(queue_id=2)
        store.ends[TOPIC, 0] = 1
        await asyncio.sleep(RECHECK_SECONDS + 0.1)
        assert holding.executed == [replaced, waiting]
        holding.assert_nothing_left()
        holding.service.close()

    try:
        runner.run(scenario())
    finally:
        runner.close()


def test_a_renewed_poll_waits_as_long_as_a_new_one() -> None:
    runner = VirtualRunner()
    holding = Holding()

    async def scenario() -> None:
        request = holding.hold(FakeConnection(), timeout_ms=3_000)
        other = holding.hold(FakeConnection(), timeout_ms=3_000)
        await asyncio.sleep(2.7)
        holding.service.renew(request)
        holding.service.renew(pull(FakeConnection()))  # one that is not held
        await asyncio.sleep(0.5)
        assert holding.executed == [other]
        await asyncio.sleep(2.4)
        assert holding.executed == [other]
        await asyncio.sleep(0.3)
        assert holding.executed == [other, request]
        holding.assert_nothing_left()
        holding.service.close()

    try:
        runner.run(scenario())
    finally:
        runner.close()


def test_very_many_polls_of_one_deadline_all_end() -> None:
    runner = VirtualRunner()
    holding = Holding(limit=100_000)

    async def scenario() -> None:
        connection = FakeConnection()
        requests = [holding.hold(connection, timeout_ms=50) for _ in range(2_500)]
        await asyncio.sleep(0.2)
        assert holding.executed == requests
        holding.service.close()

    try:
        runner.run(scenario())
    finally:
        runner.close()
