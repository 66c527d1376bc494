"""Locks and memberships last as long as they should, whatever the wall clock is set to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import cast

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.processors.queue_lock import RELEASE_DELAY, QueueLockProcessor
from pocketmq.broker.tables.client_ids import ClientIds
from pocketmq.broker.tables.queue_locks import LOCK_LIVE_MS, QueueLocks
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.consumer import ProducerTableInfo
from pocketmq.remoting.bodies.queue_lock import LockBatchRequestBody, LockBatchResponseBody
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import Header
from pocketmq.remoting.serving.long_requests import TURN, LongRequests
from pocketmq.remoting.serving.request import Request, Response
from tests.broker.conftest import Client, Connect, StartBroker, subscription
from tests.broker.test_clients import members
from tests.fake_time import START, FakeTime

HOUR = 3_600_000
QUEUE = MessageQueue("T", "b0", 0)
Lock = Callable[[str], Awaitable[bool]]


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
async def broker(start_broker: StartBroker, time: FakeTime) -> Broker:
    options = {"clock": time.clock, "monotonic": time.monotonic, "call_later": time.call_later}
    return await start_broker(options=options)


@pytest.fixture
async def client(broker: Broker, connect: Connect) -> Client:
    return await connect(broker)


@pytest.fixture
def lock(client: Client) -> Lock:
    async def ask(client_id: str) -> bool:
        body = LockBatchRequestBody(client_id=client_id, consumer_group="G", mq_set=[QUEUE])
        answer = await client.request(RequestCode.LOCK_BATCH_MQ, body=body.encode())
        return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set == [QUEUE]

    return ask


@pytest.mark.parametrize("back", [-HOUR, -LOCK_LIVE_MS - 1000, HOUR])
async def test_a_clock_that_is_set_gives_no_lock_away_and_keeps_none(
    time: FakeTime, lock: Lock, back: int
) -> None:
    assert await lock("a")
    time.set_back(back)
    time.advance(LOCK_LIVE_MS)
    assert not await lock("b")

    time.advance(1)
    assert await lock("b")
    assert not await lock("a")


class FakeConnection:
    """Of a client that asks for locks."""

    peer = ("127.0.0.1", 1)

    def __init__(self, locks: QueueLockProcessor) -> None:
        self.ended_by_peer = False
        self.closed = False
        self._locks = locks
        self._closed: list[Callable[[FakeConnection], None]] = []

    def add_close_callback(self, callback: Callable[[FakeConnection], None]) -> None:
        self._closed.append(callback)

    def lock(self, client_id: str, *, bound: bool = True) -> bool:
        body = LockBatchRequestBody(
            client_id=client_id, consumer_group="G", mq_set=[QUEUE], release_on_close=bound
        )
        request = Request(RequestCode.LOCK_BATCH_MQ, Header(), body=body.encode())
        request.connection = self  # type: ignore[assignment]
        response = self._locks.lock(request)
        assert isinstance(response, Response)
        answer = LockBatchResponseBody.decode(cast(bytes, response.body))
        return answer.lock_ok_mq_set == [QUEUE]

    def end(self, *, by_peer: bool = True) -> None:
        self.ended_by_peer = by_peer
        for callback in self._closed:
            callback(self)


async def test_the_locks_of_very_many_queues_take_several_turns(time: FakeTime) -> None:
    ticks = itertools.count()
    locks = QueueLockProcessor(
        QueueLocks(time.monotonic),
        ClientIds(),
        time.call_later,
        LongRequests(clock=lambda: next(ticks) * TURN),
    )
    queues = [MessageQueue("T", "b", queue_id) for queue_id in range(5000)]
    body = LockBatchRequestBody(client_id="a", consumer_group="G", mq_set=queues * 2).encode()
    for serve in (locks.lock, locks.unlock, locks.lock):
        request = Request(RequestCode.LOCK_BATCH_MQ, Header(), body=body)
        request.connection = FakeConnection(locks)  # type: ignore[assignment]
        answer = serve(request)
        assert isawaitable(answer)
        task = asyncio.ensure_future(answer)
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 5
    response = task.result()
    assert response is not None
    held = LockBatchResponseBody.decode(cast(bytes, response.body)).lock_ok_mq_set
    assert held == queues, "each once"


@pytest.fixture
def locks(time: FakeTime) -> QueueLockProcessor:
    return QueueLockProcessor(
        QueueLocks(time.monotonic), ClientIds(), time.call_later, LongRequests()
    )


@pytest.mark.parametrize(
    ("bound", "by_peer", "released"),
    [
        pytest.param(True, True, True, id="killed"),
        pytest.param(True, False, False, id="closed by the broker"),
        pytest.param(False, True, False, id="another client"),
    ],
)
def test_a_lock_ends_with_the_connection_of_its_client(
    time: FakeTime, locks: QueueLockProcessor, bound: bool, by_peer: bool, released: bool
) -> None:
    owner, other = FakeConnection(locks), FakeConnection(locks)
    assert owner.lock("a", bound=bound)
    assert owner.lock("a", bound=bound)
    owner.end(by_peer=by_peer)

    time.advance(round(RELEASE_DELAY * 1000) - 1)
    assert not other.lock("b")
    time.advance(1)
    assert other.lock("b") is released


def test_a_client_that_connects_again_keeps_its_locks(
    time: FakeTime, locks: QueueLockProcessor
) -> None:
    owner, again, other = [FakeConnection(locks) for _ in range(3)]
    assert owner.lock("a")
    owner.end()
    assert again.lock("a")

    time.advance(round(RELEASE_DELAY * 1000))
    assert not other.lock("b")

    again.end()
    time.advance(round(RELEASE_DELAY * 1000))
    assert other.lock("b")


@pytest.mark.parametrize("back", [-HOUR, HOUR])
async def test_a_clock_that_is_set_drops_no_live_member_and_keeps_no_dead_one(
    time: FakeTime, broker: Broker, client: Client, back: int
) -> None:
    silent = broker.config.channel_expired_timeout
    await client.heartbeat("c1", subscription("T"), producer="PG")
    time.set_back(back)
    await broker.tables.expire()
    assert await members(client) == ["c1"]
    assert broker.tables.producers.clients("PG") is not None

    time.advance(silent)
    await broker.tables.expire()
    assert await members(client) == ["c1"]

    time.advance(1)
    await broker.tables.expire()
    assert await members(client) != ["c1"]
    assert broker.tables.producers.clients("PG") is None


async def test_admins_see_the_date_of_a_heartbeat(time: FakeTime, client: Client) -> None:
    time.set_back(-HOUR)
    await client.heartbeat("p1", producer="PG")
    time.advance(5_000)

    answer = await client.request(RequestCode.GET_ALL_PRODUCER_INFO)

    (info,) = ProducerTableInfo.decode(answer.body).data["PG"]
    assert info.last_update_timestamp == START + HOUR


async def test_the_uptime_does_not_follow_the_wall_clock(time: FakeTime, client: Client) -> None:
    time.set_back(HOUR)
    time.advance(61_000)
    answer = await client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert "0 days, 0 hours, 1 minutes, 1 seconds" in bytes(answer.body).decode()
