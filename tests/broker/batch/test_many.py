"""A parent's work is linear in its children, however many are taken at once: counted, not timed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.processors.batch import BatchProcessor
from pocketmq.broker.processors.send.send_many import MOST_MOVED
from pocketmq.message.limits import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import EndTransactionRequestHeader
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import LongRequests
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.config import FlushDiskType
from tests.broker.batch.batches import SEND, Child, batch, send
from tests.broker.conftest import Client, StartBroker, serving

COUNT = 500
ENOUGH = 4  # times that a child is handed over, on average


class CountedTogether:
    """The broker's own handlers; notes how many requests of one code each call got, and how many it
    took.

    `many` is what executes them.
    """

    def __init__(self, broker: Broker, counted: int = SEND) -> None:
        self.handed: list[int] = []
        self.taken: list[int] = []
        self.dispatcher = Dispatcher()
        for code, route in broker.dispatcher.codes.items():
            if code == counted:
                assert route.many is not None
                self.many = route.many
                self.dispatcher.register(code, route.handler, route.header, many=self._counted)
            elif code != RequestCode.COMMON_BATCH_REQUEST:
                self.dispatcher.register(code, route.handler, route.header, many=route.many)
        holds = broker.components.pulls.holds
        BatchProcessor(broker.config, self.dispatcher, holds, LongRequests()).register(
            self.dispatcher
        )

    def _counted(self, requests: Sequence[Request[Any]]) -> Sequence[Response | bytes | None]:
        done = self.many(requests)
        self.handed.append(len(requests))
        self.taken.append(len(done))
        return done


@pytest.fixture
def together(broker: Broker) -> CountedTogether:
    return CountedTogether(broker)


async def make(client: Client, topic: str, **fields: Any) -> None:
    """Create a topic. Its first send waits for the disk; the second finds it checked."""
    await client.send(topic, **fields)
    await client.send(topic, **fields)


async def make_with_room(broker: Broker, client: Client, topic: str) -> None:
    """The same, and room for all the messages: a queue's file gets it in steps, and a call takes no
    more messages than there is room for."""
    await make(client, topic)
    broker.store.queues[topic][0].make_room(COUNT + 1)


@pytest.fixture
async def client(broker: Broker, together: CountedTogether) -> AsyncIterator[Client]:
    async with serving(together.dispatcher, broker) as client:
        yield client


def codes(answers: list[Command]) -> list[int]:
    return [answer.code for answer in answers]


async def test_good_children_are_stored_together(
    broker: Broker, client: Client, topic: str, together: CountedTogether
) -> None:
    await make_with_room(broker, client, topic)
    assert set(codes(await batch(client, [send(topic)] * COUNT))) == {0}
    assert (together.handed, together.taken) == ([COUNT], [COUNT])


@pytest.mark.parametrize(
    ("properties", "queue"),
    [
        pytest.param({"DELAY": "18"}, (SCHEDULE_TOPIC, 17), id="delayed"),
        pytest.param({"TIMER_DELAY_SEC": "3600"}, (TIMER_TOPIC, 0), id="timed"),
        pytest.param({"TRAN_MSG": "true"}, (HALF_TOPIC, 0), id="half"),
    ],
)
@pytest.mark.parametrize("flush", FlushDiskType)
async def test_messages_that_wait_first_are_stored_together(
    start_broker: StartBroker,
    topic: str,
    flush: FlushDiskType,
    properties: dict[str, str],
    queue: tuple[str, int],
) -> None:
    broker = await start_broker(flush_disk_type=flush)
    together = CountedTogether(broker)
    async with serving(together.dispatcher, broker) as client:
        await make(client, topic, properties=properties)
        broker.store.queues[queue[0]][queue[1]].make_room(COUNT + 1)
        answers = await batch(client, [send(topic, properties=properties)] * COUNT)
    assert set(codes(answers)) == {0}
    assert max(together.taken) == MOST_MOVED
    assert sum(together.taken) > COUNT - len(together.taken)  # one stops each of them
    assert all(("recallHandle" in one.ext_fields) == (queue[0] == TIMER_TOPIC) for one in answers)


async def test_commits_are_stored_together(broker: Broker, topic: str) -> None:
    together = CountedTogether(broker, RequestCode.END_TRANSACTION)
    async with serving(together.dispatcher, broker) as client:
        await make_with_room(broker, client, topic)
        half = {"TRAN_MSG": "true", "PGROUP": "PG"}
        answers = await batch(client, [send(topic, properties=half)] * COUNT)
        places = [
            (int(one.ext_fields["queueOffset"]), int(one.ext_fields["msgId"][16:], 16))
            for one in answers
        ]
        ends = [
            EndTransactionRequestHeader("PG", *place, commit_or_rollback=8, msg_id="U")
            for place in places
        ]
        ended = await batch(client, [Child(RequestCode.END_TRANSACTION, end) for end in ends])
    assert set(codes(ended)) == {0}
    assert (together.handed, together.taken) == ([COUNT], [COUNT])
    assert len(broker.components.transactions.ops.ended) == COUNT
    assert broker.store.max_offset(topic, 0) == 2 + COUNT


async def test_a_store_that_refuses(
    broker: Broker, client: Client, topic: str, together: CountedTogether
) -> None:
    await make(client, topic)
    broker.store.refuse("the disk is full")
    assert 0 not in codes(await batch(client, [send(topic)] * COUNT))
    assert sum(together.taken) == 0
    assert sum(together.handed) <= ENOUGH * COUNT


@pytest.mark.parametrize(
    "unfit",
    [
        lambda topic: send(topic, properties={"k": "v" * 32_700}),  # the store finds out
        lambda topic: send(topic, b""),
        lambda topic: send(topic, code=320),
        lambda topic: Child(310, None, b"x", {"b": topic}),
        lambda topic: Child(4711),
    ],
)
async def test_every_second_child_is_unfit(
    client: Client, topic: str, together: CountedTogether, unfit: Callable[[str], Child]
) -> None:
    await make(client, topic)
    children = [send(topic), unfit(topic)] * (COUNT // 4)
    assert codes(await batch(client, children))[::2] == [0] * (COUNT // 4)
    assert sum(together.handed) <= ENOUGH * COUNT


async def test_queues_that_were_not_seen_yet(start_broker: StartBroker, topic: str) -> None:
    broker = await start_broker(default_topic_queue_nums=COUNT)
    together = CountedTogether(broker)
    async with serving(together.dispatcher, broker) as client:
        await make(client, topic, default_topic_queue_nums=COUNT)
        children = [send(topic, queue_id=n) for n in range(1, COUNT)]
        assert set(codes(await batch(client, children))) == {0}
    assert sum(together.handed) <= ENOUGH * COUNT


async def test_calls_grow_again_after_an_unfit_child(
    broker: Broker, client: Client, topic: str, together: CountedTogether
) -> None:
    await make_with_room(broker, client, topic)
    await batch(client, [send(topic, b""), *[send(topic)] * COUNT])
    assert together.handed[-1] >= COUNT // 4
    assert len(together.handed) < 10


async def test_a_call_that_fails_is_not_tried_again(
    client: Client, topic: str, together: CountedTogether, caplog: pytest.LogCaptureFixture
) -> None:
    await make(client, topic)

    def broken(requests: Sequence[Request[Any]]) -> Sequence[bytes]:
        raise ZeroDivisionError

    together.many = broken
    assert set(codes(await batch(client, [send(topic)] * 20))) == {0}
    assert len(caplog.records) == 1
