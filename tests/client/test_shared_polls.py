"""A consumer's queues wait for messages in one request: with the real broker, and without."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.client.consumer.fetch.shared_polls import SharedPolls
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.instance import ClientInstance
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message, MessageExt, MessageQueue
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.answers.batch import child_frames
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.serving.dispatch import Handler
from pocketmq.remoting.serving.request import Request, Response
from tests.client.waiting import until

QUEUES = 40
PULL, BATCH = RequestCode.PULL_MESSAGE, RequestCode.COMMON_BATCH_REQUEST
SEND_BATCH, COMMIT = RequestCode.SEND_BATCH_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET


class Cluster:
    """A name server and a broker, with a count of the requests that the broker gets."""

    def __init__(self, namesrv: NameServer, broker: Broker) -> None:
        self.namesrv = f"127.0.0.1:{namesrv.port}"
        self.broker = broker
        self.seen: Counter[int] = Counter()
        #: How many children the parents of pulls had.
        self.parents: list[int] = []
        self.connections: set[Any] = set()
        #: Of the last poll of each queue that was a child, by queue id.
        self.opaques: dict[int, int] = {}
        for code in list(broker.dispatcher.codes):
            broker.dispatcher.wrap(code, self._counting)

    def _counting(self, handler: Any) -> Any:
        def handle(request: Request[Any]) -> Any:
            self.connections.add(request.connection)
            if request.channel is request.connection:
                self.seen[request.code] += 1
            elif request.code == PULL:
                self.opaques[request.header.queue_id] = request.opaque
            if request.code == BATCH and request.header.dispatch_code == PULL:
                self.parents.append(len(list(child_frames(request.body))))
            return handler(request)

        return handle

    @property
    def held(self) -> int:
        return len(self.broker.components.pulls.holds)

    def without_batches(self) -> None:
        """Like an official broker."""
        code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        answer = Response(code, " request type 666 not supported")
        self.broker.dispatcher.wrap(BATCH, lambda _: lambda request: answer)


#: A broker that takes parents of 8 children at most.
limited = pytest.mark.parametrize("cluster", [{"max_child_request_num": 8}], indirect=True)


@pytest.fixture
async def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    namesrv = NameServer(NamesrvConfig(listen_port=0, kv_config_path=str(tmp_path / "kv.json")))
    await namesrv.start()
    config = BrokerConfig(
        namesrv_addr=f"127.0.0.1:{namesrv.port}",
        broker_name="b0",
        listen_port=0,
        vip_channel_enable=False,
        store_path_root_dir=str(tmp_path / "store"),
        mapped_file_size_commit_log=1 << 22,
        default_topic_queue_nums=QUEUES,
        **getattr(request, "param", {}),
    )
    async with Broker(config) as broker:
        yield Cluster(namesrv, broker)
    await namesrv.stop()


@pytest.fixture
async def producer(cluster: Cluster) -> AsyncIterator[Producer]:
    async with Producer("P", namesrv=cluster.namesrv, template_queues=QUEUES) as producer:
        await producer.send(Message("T", b"first"))
        await until_routed(producer)
        yield producer


async def until_routed(producer: Producer) -> None:
    async with asyncio.timeout(10):
        while len(await producer.queues("T")) < QUEUES:  # noqa: ASYNC110 (no event tells)
            await asyncio.sleep(0.01)


def consumer_of(cluster: Cluster, **options: Any) -> PullConsumer:
    return PullConsumer("G", namesrv=cluster.namesrv, **options)


async def receive(consumer: PullConsumer, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(20):
        while len(messages) < count:
            messages += await consumer.poll(timeout=5.0)
    return messages


async def test_all_queues_of_a_broker_wait_in_one_request(
    cluster: Cluster, producer: Producer
) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.assign("T")
        await until(lambda: cluster.held == QUEUES)
        # Asking for the offsets was another, and storing where the group begins.
        assert (cluster.seen[BATCH], cluster.seen[PULL]) == (3, 0)


async def test_every_message_arrives_once_whatever_the_queue(
    cluster: Cluster, producer: Producer
) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.assign("T")
        await until(lambda: cluster.held == QUEUES)
        queues = await producer.queues("T")
        for turn in range(3):
            for queue in queues:
                await producer.send(Message("T", f"{turn} {queue.queue_id}".encode()), queue=queue)
        bodies = [m.body for m in await receive(consumer, 3 * QUEUES)]
        assert sorted(bodies) == sorted(
            f"{turn} {queue.queue_id}".encode() for turn in range(3) for queue in queues
        )
        # Polls that began again, and those that go on, all wait at the broker in the end.
        await until(lambda: cluster.held == QUEUES)


async def test_rounds_bring_all_queues_together_again(cluster: Cluster, producer: Producer) -> None:
    async with consumer_of(cluster, suspend=0.5) as consumer:
        await consumer.assign("T")
        await until(lambda: cluster.held == QUEUES)
        for queue in await producer.queues("T"):
            await producer.send(Message("T", b"x"), queue=queue)
        cluster.parents.clear()
        await receive(consumer, QUEUES)
        await until(lambda: QUEUES in cluster.parents, timeout=20.0)  # a new round has begun
        await until(lambda: cluster.held == QUEUES)
        batches, pulls = cluster.seen[BATCH], cluster.seen[PULL]
        await until(lambda: cluster.seen[BATCH] > batches, timeout=20.0)
        assert cluster.seen[PULL] == pulls, "no queue polls by itself any more"


async def test_opaques_of_queues_differ_after_some_have_gone(
    cluster: Cluster, producer: Producer
) -> None:
    instance = ClientInstance(cluster.namesrv)
    await instance.start()
    polls = SharedPolls(instance.pool, instance.batch_protocol, 60.0, 10.0)

    def pull(queue_id: int) -> asyncio.Task[Any]:
        header = PullMessageRequestHeader("G", "T", queue_id, 0, 32, 6, 0, 0, 0, "*")
        return asyncio.create_task(polls.pull(cluster.broker.address, header))

    tasks = [pull(0), pull(1)]
    await until(lambda: len(cluster.opaques) == 2)
    polls.forget("T", 0)
    tasks += [pull(2), pull(3)]
    await until(lambda: len(cluster.opaques) == 4)
    assert len(set(cluster.opaques.values())) == 4
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await instance.shutdown()


@pytest.mark.parametrize("share_polls", [True, False])
async def test_every_pull_asks_for_a_large_transfer(
    cluster: Cluster, producer: Producer, share_polls: bool
) -> None:
    asked: set[tuple[bool, bool | None]] = set()  # a child of a batch, its marker

    def recording(handler: Handler) -> Handler:
        def handle(request: Request[Any]) -> Any:
            child = request.channel is not request.connection
            asked.add((child, request.header.large_transfer))
            return handler(request)

        return handle

    cluster.broker.dispatcher.wrap(PULL, recording)
    async with consumer_of(cluster, share_polls=share_polls) as consumer:
        await consumer.assign("T")
        await until(lambda: cluster.held == QUEUES)
    assert asked == {(share_polls, True)}


async def test_an_official_broker_is_asked_queue_by_queue(
    cluster: Cluster, producer: Producer
) -> None:
    cluster.without_batches()
    async with consumer_of(cluster) as consumer:
        await consumer.assign("T")
        await until(lambda: cluster.held == QUEUES)
        assert cluster.seen[PULL] == QUEUES
        await producer.send(Message("T", b"x"))
        assert [m.body for m in await receive(consumer, 1)] == [b"x"]


async def test_polls_are_not_shared_when_told_so(cluster: Cluster, producer: Producer) -> None:
    async with consumer_of(cluster, share_polls=False) as consumer:
        await consumer.assign("T")
        await until(lambda: cluster.held == QUEUES)
        assert cluster.seen[PULL] == QUEUES


async def test_a_seek_in_the_middle_of_a_shared_poll(cluster: Cluster, producer: Producer) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.assign("T")
        await until(lambda: cluster.held == QUEUES)
        await consumer.seek("begin")
        assert [m.body for m in await receive(consumer, 1)] == [b"first"]
        await producer.send(Message("T", b"second"))
        assert [m.body for m in await receive(consumer, 1)] == [b"second"]


async def test_a_queue_that_is_refused_does_not_stop_the_others(
    cluster: Cluster, producer: Producer
) -> None:
    errors: list[MessageQueue] = []
    async with consumer_of(cluster, on_error=lambda queue, error: errors.append(queue)) as consumer:
        queues = await producer.queues("T")
        wrong = MessageQueue("T", "b0", 999)
        await consumer.assign([*queues[:5], wrong])
        await until(lambda: bool(errors))
        await producer.send(Message("T", b"x"), queue=queues[2])
        assert [m.body for m in await receive(consumer, 1)] == [b"x"]
        assert set(errors) == {wrong}


async def test_a_restarted_connection_goes_on(cluster: Cluster, producer: Producer) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.assign("T")
        await until(lambda: cluster.held == QUEUES)
        for connection in cluster.connections:
            connection.abort("the test says so")
        await producer.send(Message("T", b"x"))
        assert [m.body for m in await receive(consumer, 1)] == [b"x"]


async def test_offsets_are_committed_together(cluster: Cluster, producer: Producer) -> None:
    async with consumer_of(cluster, auto_commit=False) as consumer:
        queues = await producer.queues("T")
        await consumer.commit(dict.fromkeys(queues, 1))
        assert (cluster.seen[BATCH], cluster.seen[COMMIT]) == (1, 0)
        assert [await consumer.committed(queue) for queue in queues] == [1] * QUEUES


async def ten_topics(cluster: Cluster, producer: Producer) -> list[str]:
    """Topics that exist; what making them took is forgotten."""
    topics = [f"T{n}" for n in range(10)]
    for topic in topics:
        await producer.send(Message(topic, b"x"))
    cluster.seen.clear()
    return topics


@limited
async def test_a_broker_that_takes_fewer_children_is_given_fewer(
    cluster: Cluster, producer: Producer
) -> None:
    topics = await ten_topics(cluster, producer)
    for parents in (3, 5):  # 10 refused, 8 and 2; then 8 and 2 at once
        results = await producer.send_batch([Message(t, b"y") for t in topics for _ in range(3)])
        assert len({(result.queue.topic, result.queue_offset) for result in results}) == 30
        assert cluster.seen[BATCH] == parents
    assert cluster.seen[SEND_BATCH] == 0


@limited
async def test_polls_and_commits_keep_to_the_brokers_limit(
    cluster: Cluster, producer: Producer
) -> None:
    async with consumer_of(cluster, suspend=0.5, auto_commit=False) as consumer:
        await consumer.assign("T")
        await until(lambda: cluster.held == QUEUES)
        # The offsets were refused once; from then on nothing was.
        assert (cluster.seen[BATCH], cluster.seen[PULL]) == (1 + QUEUES // 8 + QUEUES // 8, 0)
        queues = await producer.queues("T")
        await consumer.commit(dict.fromkeys(queues, 1))
        assert cluster.seen[COMMIT] == 0
        await producer.send(Message("T", b"x"), queue=queues[9])
        assert [m.body for m in await receive(consumer, 1)] == [b"x"]


async def test_send_batch_of_many_topics_is_one_request_for_each_kind(
    cluster: Cluster, producer: Producer
) -> None:
    topics = await ten_topics(cluster, producer)
    results = await producer.send_batch([Message(t, b"y") for t in topics for _ in range(3)])
    assert len(results) == 30
    assert (cluster.seen[BATCH], cluster.seen[SEND_BATCH]) == (1, 0)
    results = await producer.send_batch([Message(topic, b"z") for topic in topics])
    assert len({result.offset_msg_id for result in results}) == 10
    assert cluster.seen[BATCH] == 2
