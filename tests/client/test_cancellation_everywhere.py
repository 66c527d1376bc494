"""Every public coroutine, cancelled at each of its awaits: nothing is lost and nothing blocked.

A new coroutine needs a scenario here. A scenario makes what the call needs, has the call cancelled
(`at.run`), and looks at what is left of it: what was acknowledged is stored, what was not handled
comes again, nothing is committed that was not handled, and the same call works the next time.
`cancel_everywhere` sees to it that every client ends within its time and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pocketmq import (
    Admin,
    ConsumedMessage,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from pocketmq.client.observation.consume_hooks import ConsumeContext
from pocketmq.embedded import EmbeddedServer
from pocketmq.testing import MovableClock, RocketMQ
from tests.client.cancelling import At, cancel_everywhere, public_coroutines
from tests.client.waiting import until

BODIES = [b"%d" % number for number in range(12)]


class Place:
    """A server, and a topic of two queues with BODIES in it; names of groups that are new."""

    def __init__(self, server: RocketMQ, topic: str, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.topic = topic
        self._numbers = itertools.count()

    @property
    def namesrv(self) -> str:
        return self.server.namesrv

    def group(self) -> str:
        return f"G-{self.topic}-{next(self._numbers)}"

    async def make(self) -> None:
        await self.server.create_topic(self.topic, queues=2)
        async with Producer("P", namesrv=self.namesrv) as producer:
            for at, queue in enumerate(await producer.queues(self.topic)):
                await producer.send_batch(
                    [Message(self.topic, body, keys=["k"]) for body in BODIES[at::2]], queue=queue
                )
        await self.server.drain(self.topic)

    async def stored(self) -> list[bytes]:
        """What has come since the last time."""
        return [message.body for message in await self.server.drain(self.topic)]

    def pull_consumer(self, group: str | None = None, **options: Any) -> PullConsumer:
        return PullConsumer(group or self.group(), namesrv=self.namesrv, start="begin", **options)

    def push_consumer(self, group: str | None = None, **options: Any) -> PushConsumer:
        options.setdefault("subscriptions", {self.topic: "*"})
        options.setdefault("offset_directory", self.directory)
        return PushConsumer(group or self.group(), namesrv=self.namesrv, start="begin", **options)

    async def committed(self, group: str) -> int:
        """The offsets of both queues together."""
        async with Admin(namesrv=self.namesrv) as admin:
            queues = await admin.queues(self.topic)
            return sum([await admin.group_offset(group, queue) or 0 for queue in queues])


Scenario = Callable[[Place, At], Coroutine[Any, Any, None]]
SCENARIOS: dict[str, dict[str, Scenario]] = {}


def scenario(name: str, case: str = "") -> Callable[[Scenario], Scenario]:
    def add(function: Scenario) -> Scenario:
        cases = SCENARIOS.setdefault(name, {})
        assert case not in cases
        cases[case] = function
        return function

    return add


def test_every_public_coroutine_has_a_scenario() -> None:
    assert not public_coroutines().keys() - SCENARIOS.keys()


# Any client


def makers(place: Place) -> dict[str, Callable[[], Any]]:
    return {
        "Admin": lambda: Admin(namesrv=place.namesrv),
        "Producer": lambda: Producer("P", namesrv=place.namesrv, trace=True),
        "PullConsumer": place.pull_consumer,
        "PushConsumer": lambda: place.push_consumer(orderly=True, trace=True),
        "RocketMQ": RocketMQ,
        "EmbeddedServer": EmbeddedServer,
    }


def add_lives() -> None:
    for kind in ("Admin", "Producer", "PullConsumer", "PushConsumer", "RocketMQ", "EmbeddedServer"):
        stop = "stop" if kind in ("RocketMQ", "EmbeddedServer") else "shutdown"
        for name, function in {
            "start": started, stop: stopped, "__aenter__": entered, "__aexit__": left
        }.items():  # fmt: skip
            scenario(f"{kind}.{name}")(bound(function, kind, stop))


def bound(function: Any, kind: str, stop: str) -> Scenario:
    return lambda place, at: function(place, at, makers(place)[kind], stop)


async def started(place: Place, at: At, make: Callable[[], Any], stop: str) -> None:
    client = make()
    await at.run(client.start())
    if at.cancelled:
        assert not getattr(client, "running", False)
        if stop == "stop" or hasattr(client, "namesrv"):  # these can be started again
            await client.start()
    await getattr(client, stop)()
    assert not getattr(client, "running", False)


async def stopped(place: Place, at: At, make: Callable[[], Any], stop: str) -> None:
    client = make()
    await client.start()
    await at.run(getattr(client, stop)())
    assert not getattr(client, "running", False)
    await getattr(client, stop)()


async def entered(place: Place, at: At, make: Callable[[], Any], stop: str) -> None:
    """`async with` does not leave what it could not enter."""
    client = make()
    await at.run(client.__aenter__())
    if not at.cancelled:
        await client.__aexit__(None, None, None)


async def left(place: Place, at: At, make: Callable[[], Any], stop: str) -> None:
    """A cancelled `async with` closes all the same; the end may come a moment later."""
    client = make()
    await client.__aenter__()
    await at.run(client.__aexit__(None, None, None))


add_lives()


def add_calls(kind: str, calls: dict[str, Callable[[Any, Place], Awaitable[Any]]]) -> None:
    """Calls that change nothing, or set something: they work the next time."""
    for name, call in calls.items():
        scenario(f"{kind}.{name}")(repeated(kind, call))


def repeated(kind: str, call: Callable[[Any, Place], Awaitable[Any]]) -> Scenario:
    async def repeat(place: Place, at: At) -> None:
        async with makers(place)[kind]() as client:
            await at.run(call(client, place))
            await call(client, place)
            assert getattr(client, "in_flight", 0) == 0

    return repeat


def first(place: Place) -> MessageQueue:
    return MessageQueue(place.topic, place.server.broker.config.broker_name, 0)


async def every(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


add_calls(
    "PullConsumer",
    {
        "ping": lambda c, p: c.ping(),
        "queues": lambda c, p: c.queues(p.topic),
        "committed": lambda c, p: c.committed(first(p)),
        "begin_offset": lambda c, p: c.begin_offset(first(p)),
        "end_offset": lambda c, p: c.end_offset(first(p)),
        "pull": lambda c, p: c.pull(first(p), 0),
    },
)
add_calls("PushConsumer", {"ping": lambda c, p: c.ping()})
add_calls("Producer", {"ping": lambda c, p: c.ping(), "queues": lambda c, p: c.queues(p.topic)})


async def connected(place: Place, call: Callable[[str, str], Awaitable[Any]]) -> None:
    """A call that needs a consumer."""
    group = place.group()
    async with place.push_consumer(group) as consumer:
        await call(group, consumer.client_id)


async def dead_letter(admin: Admin, place: Place) -> None:
    message = await admin.message_at(first(place), 0)
    assert message is not None
    await admin.create_group("again")
    await admin.deliver_again("again", message)


async def by_id(admin: Admin, place: Place) -> None:
    message = await admin.message_at(first(place), 0)
    assert message is not None
    assert await admin.messages_by_id(place.topic, message.msg_id)


async def by_offset_id(admin: Admin, place: Place) -> None:
    message = await admin.message_at(first(place), 0)
    assert message is not None
    assert await admin.message_by_offset_id(message.offset_msg_id)


def name(place: Place) -> str:
    return place.server.broker.config.broker_name


async def with_offset(admin: Admin, place: Place) -> str:
    await admin.create_group("offsets")
    await admin.set_group_offset("offsets", first(place), 3)
    return "offsets"


async def reset(admin: Admin, place: Place) -> None:
    await admin.reset_offsets(await with_offset(admin, place), place.topic, "begin")


async def clone(admin: Admin, place: Place) -> None:
    await admin.clone_offsets(await with_offset(admin, place), "others", place.topic)


async def remove_topic(admin: Admin, place: Place) -> None:
    await admin.create_topic("passing", queues=1)
    await admin.delete_topic("passing")


async def remove_topics(admin: Admin, place: Place) -> None:
    await admin.create_topic("passing", queues=1)
    await admin.delete_topics(["passing", "never-made"])


async def remove_groups(admin: Admin, place: Place) -> None:
    await admin.create_group("passing")
    await admin.delete_groups(["passing", "never-made"], clean_offsets=True)


async def remove_group(admin: Admin, place: Place) -> None:
    await admin.create_group("passing")
    await admin.delete_group("passing", clean_offsets=True)


async def remove_config(admin: Admin, place: Place) -> None:
    await admin.put_config("NS", "passing", "1")
    await admin.delete_config("NS", "passing")


async def stats(admin: Admin, place: Place) -> None:
    await admin.broker_stats("TOPIC_PUT_NUMS", place.topic)


async def config_value(admin: Admin, place: Place) -> None:
    await admin.put_config("NS", "key", "1")
    assert await admin.get_config("NS", "key") == "1"


async def broker_setting(admin: Admin, place: Place) -> None:
    await admin.update_broker_config({"fileReservedTime": "72"}, broker=name(place))


async def drained(admin: Admin, place: Place) -> None:
    try:
        await admin.drain_broker(name(place))
    finally:  # the others' broker
        await admin.undrain_broker(name(place))


async def wiped(admin: Admin, place: Place) -> None:
    try:
        await admin.wipe_write_perm(name(place))
    finally:
        await admin.undrain_broker(name(place))


async def group_lag(admin: Admin, place: Place) -> None:
    await admin.lag(await with_offset(admin, place))


async def group_stats(admin: Admin, place: Place) -> None:
    await admin.consume_stats(await with_offset(admin, place))


async def known_groups(admin: Admin, place: Place) -> None:
    await admin.topics_of_group(await with_offset(admin, place))


add_calls(
    "Admin",
    {
        "ping": lambda a, p: a.ping(),
        "cluster_info": lambda a, p: a.cluster_info(),
        "topics": lambda a, p: a.topics(),
        "create_topic": lambda a, p: a.create_topic("made", queues=3),
        "delete_topic": remove_topic,
        "delete_topics": remove_topics,
        "unreadable_queues": lambda a, p: a.unreadable_queues(p.topic),
        "topic_configs": lambda a, p: a.topic_configs(p.topic),
        "topic_route": lambda a, p: a.topic_route(p.topic),
        "topic_stats": lambda a, p: a.topic_stats(p.topic),
        "queues": lambda a, p: a.queues(p.topic),
        "groups_of_topic": lambda a, p: a.groups_of_topic(p.topic),
        "groups": lambda a, p: a.groups(),
        "create_group": lambda a, p: a.create_group("made"),
        "delete_group": remove_group,
        "delete_groups": remove_groups,
        "producer_groups": lambda a, p: a.producer_groups(),
        "topics_of_group": known_groups,
        "consume_stats": group_stats,
        "lag": group_lag,
        "min_offset": lambda a, p: a.min_offset(first(p)),
        "max_offset": lambda a, p: a.max_offset(first(p)),
        "offset_at": lambda a, p: a.offset_at(first(p), datetime.now(UTC)),
        "earliest_store_time": lambda a, p: a.earliest_store_time(first(p)),
        "group_offset": lambda a, p: a.group_offset("offsets", first(p)),
        "set_group_offset": with_offset,
        "reset_offsets": reset,
        "clone_offsets": clone,
        "messages": lambda a, p: every(a.messages(first(p))),
        "messages_by_key": lambda a, p: a.messages_by_key(p.topic, "k"),
        "messages_by_tag": lambda a, p: a.messages_by_tag(p.topic, "tag"),
        "messages_by_id": by_id,
        "message_by_offset_id": by_offset_id,
        "message_at": lambda a, p: a.message_at(first(p), 0),
        "read": lambda a, p: a.read(first(p), 0),
        "deliver_again": dead_letter,
        "config": lambda a, p: a.config("ORDER_TOPIC_CONFIG"),
        "get_config": config_value,
        "put_config": lambda a, p: a.put_config("NS", "key", "1"),
        "delete_config": remove_config,
        "broker_config": lambda a, p: a.broker_config(name(p)),
        "update_broker_config": broker_setting,
        "drain_broker": drained,
        "undrain_broker": lambda a, p: a.undrain_broker(name(p)),
        "wipe_write_perm": wiped,
        "namesrv_config": lambda a, p: a.namesrv_config(),
        "update_namesrv_config": lambda a, p: a.update_namesrv_config({"enableTopicList": "true"}),
        "broker_runtime": lambda a, p: a.broker_runtime(name(p)),
        "broker_replication": lambda a, p: a.broker_replication(name(p)),
        "broker_stats": stats,
    },
)


@scenario("Admin.consumers")
@scenario("Admin.running_info")
async def asking_for_consumers(place: Place, at: At) -> None:
    group = place.group()
    async with place.push_consumer(group) as consumer, Admin(namesrv=place.namesrv) as admin:

        async def ask() -> None:
            await admin.consumers(group)
            await admin.running_info(group, consumer.client_id)

        await at.run(ask())
        await ask()


@scenario("Admin.producers")
async def asking_for_producers(place: Place, at: At) -> None:
    async with (
        Producer("known", namesrv=place.namesrv) as producer,
        Admin(namesrv=place.namesrv) as admin,
    ):
        await producer.send(Message(place.topic, b"x"))
        async with asyncio.timeout(10):
            while not await admin.producers("known"):  # noqa: ASYNC110 (a heartbeat tells it)
                await asyncio.sleep(0.01)
        await at.run(admin.producers("known"))
        assert await admin.producers("known")


# Producers


@asynccontextmanager
async def producing(place: Place, **options: Any) -> AsyncIterator[tuple[Producer, set[bytes]]]:
    """A producer, and a set of the bodies that were acknowledged: all of them are stored, and the
    producer is idle at the end."""
    acknowledged: set[bytes] = set()
    await place.stored()
    async with Producer("P", namesrv=place.namesrv, **options) as producer:
        yield producer, acknowledged
        await producer.flush()
        assert (producer.in_flight, producer.buffered_bytes) == (0, 0)
        assert not any(broker.in_flight for broker in producer.brokers)
        assert all(broker.available for broker in producer.brokers)
    stored = Counter(await place.stored())
    assert acknowledged <= stored.keys()
    assert all(count == 1 for count in stored.values())


@scenario("Producer.send")
async def sends_alone(place: Place, at: At) -> None:
    async with producing(place) as (producer, acknowledged):
        if await at.run(producer.send(Message(place.topic, b"sent"))) is not None:
            acknowledged.add(b"sent")
        await producer.send(Message(place.topic, b"again"))
        acknowledged.add(b"again")


@scenario("Producer.send", "together")
async def sends_together(place: Place, at: At) -> None:
    """The others of its batch go on."""
    async with producing(place) as (producer, acknowledged):

        async def send(body: bytes) -> None:
            await producer.send(Message(place.topic, body))
            acknowledged.add(body)

        others = [asyncio.create_task(send(b"%d" % number)) for number in range(3)]
        await at.run(send(b"sent"))
        await asyncio.gather(*others)
        await send(b"again")


@scenario("Producer.send", "lingering")
async def sends_lingering(place: Place, at: At) -> None:
    async with producing(place, linger_ms=1) as (producer, acknowledged):
        other = asyncio.create_task(producer.send(Message(place.topic, b"other")))
        if await at.run(producer.send(Message(place.topic, b"sent"))) is not None:
            acknowledged.add(b"sent")
        await other
        acknowledged.add(b"other")


@scenario("Producer.send", "with a key")
async def sends_with_a_key(place: Place, at: At) -> None:
    async with producing(place, trace=True) as (producer, acknowledged):
        await at.run(producer.send(Message(place.topic, b"sent"), key="k"))
        await producer.send(Message(place.topic, b"again"), key="k")
        acknowledged.add(b"again")


@scenario("Producer.send", "waiting for its turn")
async def sends_in_turn(place: Place, at: At) -> None:
    async with producing(place, max_in_flight=1) as (producer, acknowledged):
        other = asyncio.create_task(producer.send(Message(place.topic, b"other")))
        await asyncio.sleep(0)
        await at.run(producer.send(Message(place.topic, b"sent")))
        await other
        await producer.send(Message(place.topic, b"again"))
        acknowledged |= {b"other", b"again"}


@scenario("Producer.send_oneway")
async def sends_oneway(place: Place, at: At) -> None:
    async with producing(place) as (producer, acknowledged):
        await at.run(producer.send_oneway(Message(place.topic, b"sent")))
        await producer.send(Message(place.topic, b"again"))
        acknowledged.add(b"again")


@scenario("Producer.send_batch")
async def sends_batches(place: Place, at: At) -> None:
    async with producing(place, batch_bytes=2000) as (producer, acknowledged):
        bodies = [b"%d" % number + bytes(900) for number in range(8)]
        if await at.run(producer.send_batch([Message(place.topic, body) for body in bodies])):
            acknowledged |= set(bodies)
        await producer.send_batch([Message(place.topic, b"again")])
        acknowledged.add(b"again")


@scenario("Producer.post")
@scenario("Producer.flush")
async def posts(place: Place, at: At) -> None:
    """Those that were posted before a cancelled call arrive, and it takes no room from others."""
    async with producing(place, linger_ms=5, max_buffered_bytes=1000) as (producer, acknowledged):
        bodies = [b"%d" % number + bytes(400) for number in range(6)]
        posted: dict[bytes, Awaitable[Any]] = {}

        async def post() -> None:
            for body in bodies:
                posted[body] = await producer.post(Message(place.topic, body))
            await producer.flush()

        await at.run(post())
        bodies = [b"again"]
        await post()
        for body, each in posted.items():
            await each
            acknowledged.add(body)
        assert at.cancelled or len(posted) == 7


@scenario("Producer.shutdown", "with posted messages")
async def shut_down_with_posts(place: Place, at: At) -> None:
    await place.stored()
    producer = Producer("P", namesrv=place.namesrv, linger_ms=60_000)
    await producer.start()
    posted = [await producer.post(Message(place.topic, b"%d" % number)) for number in range(3)]
    await at.run(producer.shutdown())
    await producer.shutdown()
    for each in posted:
        await each
    assert sorted(await place.stored()) == [b"0", b"1", b"2"]


@scenario("Producer.request")
@scenario("Producer.reply")
async def asks(place: Place, at: At) -> None:
    """Of a request and its reply, both are cancelled at every await."""
    async with (
        producing(place) as (producer, _),
        Producer("R", namesrv=place.namesrv) as replier,
        place.push_consumer(subscriptions=None, orderly=False) as consumer,
    ):
        answering = At()

        async def answer(message: ConsumedMessage) -> None:
            if message.body.startswith(b"ask"):
                await answering.run(replier.reply(message, message.body.upper()))
                await replier.reply(message, message.body.upper())

        await consumer.subscribe(place.topic, handler=answer)
        await until(lambda: len(consumer.assignment) == 2)
        await at.run(producer.request(Message(place.topic, b"ask first"), timeout=10))
        answering = At(at.step, late=at.late)
        reply = await producer.request(Message(place.topic, b"ask"), timeout=10)
        assert reply.body == b"ASK"


@scenario("Producer.recall")
async def recalls(place: Place, at: At) -> None:
    async with Producer("P", namesrv=place.namesrv) as producer:
        sent = [await producer.send(Message(place.topic, b"x", delay=600)) for _ in range(2)]
        await at.run(producer.recall(place.topic, sent[0].recall_handle))
        await producer.recall(place.topic, sent[1].recall_handle)
        assert producer.in_flight == 0


@scenario("TransactionProducer.send_in_transaction")
@scenario("Transaction.__aenter__")
@scenario("Transaction.__aexit__")
async def transacts(place: Place, at: At) -> None:
    """A message whose local transaction was committed is delivered, in the end."""
    done: list[bytes] = []

    async def local(message: Message, _: Any) -> TransactionState:
        await asyncio.sleep(0)
        done.append(message.body)
        return TransactionState.COMMIT

    async def check(message: Any) -> TransactionState:
        return TransactionState.COMMIT if message.body in done else TransactionState.ROLLBACK

    await place.stored()
    async with TransactionProducer("PG", check=check, namesrv=place.namesrv) as producer:
        await at.run(producer.send_in_transaction(Message(place.topic, b"sent"), local))
        await producer.send_in_transaction(Message(place.topic, b"again"), local)
        assert producer.in_flight == 0
        if at.cancelled:
            await place.server.advance(60)
    assert sorted(await place.stored()) == sorted(done)


# Pull consumers


async def read(consumer: PullConsumer, count: int) -> list[bytes]:
    """So many bodies."""
    found: list[bytes] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            found += [message.body for message in await consumer.poll()]
    return found


async def settled(consumer: PullConsumer) -> list[bytes]:
    """What is there to read now."""
    await consumer.commit()
    found = []
    while any(consumer.lag.values()) or len(consumer.lag) < len(consumer.assignment):
        found += [message.body for message in await consumer.poll(timeout=0.01)]
    return found


@scenario("PullConsumer.assign")
async def assigns(place: Place, at: At) -> None:
    """What is assigned is read, whether or not the call came to its end."""
    async with place.pull_consumer() as consumer:
        await at.run(consumer.assign(place.topic))
        if not consumer.assignment:
            assert at.cancelled
            await consumer.assign(place.topic)
        assert len(consumer.assignment) == 2
        assert sorted(await read(consumer, 12)) == sorted(BODIES)
        await consumer.assign(place.topic)


@scenario("PullConsumer.subscribe")
async def subscribes(place: Place, at: At) -> None:
    async with place.pull_consumer() as consumer:
        await at.run(consumer.subscribe(place.topic))
        await consumer.subscribe(place.topic)
        assert sorted(await read(consumer, 12)) == sorted(BODIES)


@scenario("PullConsumer.unassign")
async def unassigns(place: Place, at: At) -> None:
    """What is done is committed, and a topic that is still read is read on."""
    group = place.group()
    async with place.pull_consumer(group, auto_commit_interval=60) as consumer:
        await consumer.assign(place.topic)
        assert len(await read(consumer, 12)) == 12
        await consumer.poll(timeout=0)
        await at.run(consumer.unassign(place.topic))
        assert not consumer.assignment
        await consumer.assign(place.topic, "other")
    assert await place.committed(group) == 12


@scenario("PullConsumer.poll")
@scenario("PullConsumer.__anext__")
async def polls(place: Place, at: At) -> None:
    group = place.group()
    async with place.pull_consumer(group, hooks=[SlowHook()]) as consumer:
        await consumer.assign(place.topic)
        found: list[bytes] = []

        async def take() -> None:
            messages = await consumer.poll(5, timeout=10)
            found.extend(message.body for message in messages)
            found.append((await anext(consumer)).body)

        await at.run(take())
        await consumer.commit()
        assert await place.committed(group) <= len(found)
        found += await read(consumer, 12 - len(found))
        assert sorted(found) == sorted(BODIES)


@scenario("PullConsumer.commit")
async def commits(place: Place, at: At) -> None:
    group = place.group()
    async with place.pull_consumer(group, auto_commit=False) as consumer:
        await consumer.assign(place.topic)
        count = len(await read(consumer, 1))
        await at.run(consumer.commit())
        assert await place.committed(group) <= count
        await consumer.commit()
        assert await place.committed(group) == count


@scenario("PullConsumer.commit", "given offsets")
async def commits_offsets(place: Place, at: At) -> None:
    """Offsets of a cancelled call do not hide from the next commit how far the consumer is."""
    group = place.group()
    async with place.pull_consumer(group, auto_commit=False) as consumer:
        await consumer.assign(place.topic)
        await read(consumer, 12)
        await consumer.commit()
        await at.run(consumer.commit(dict.fromkeys(consumer.assignment, 1)))
        await consumer.commit()
        assert await place.committed(group) == 12


@scenario("PullConsumer.seek")
async def seeks(place: Place, at: At) -> None:
    async with place.pull_consumer() as consumer:
        await consumer.assign(place.topic)
        await read(consumer, 12)
        await at.run(consumer.seek("begin"))
        positions = {consumer.position(queue) for queue in consumer.assignment}
        assert len(positions) == 1  # of both queues, or of none
        await consumer.seek("begin")
        assert sorted(await read(consumer, 12)) == sorted(BODIES)


# Push consumers


class SlowHook:
    """Takes two turns of the loop before and after the work."""

    async def before_consume(self, context: ConsumeContext) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def after_consume(self, context: ConsumeContext) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def rest_comes(place: Place, group: str, done: set[bytes]) -> None:
    """Nothing is committed that was not done: another consumer of the group gets the rest."""
    async with asyncio.timeout(10), place.push_consumer(group, orderly=True) as consumer:
        while not done.issuperset(BODIES):
            async with await anext(consumer) as message:
                done.add(message.body)


@scenario("PushConsumer.run")
async def runs(place: Place, at: At) -> None:
    group, done = place.group(), set[bytes]()

    async def handle(message: ConsumedMessage) -> None:
        await asyncio.sleep(0)
        done.add(message.body)
        if len(done) == 6:
            stopping.append(asyncio.create_task(consumer.shutdown()))

    stopping: list[asyncio.Task[None]] = []
    consumer = place.push_consumer(group, handler=handle)
    await at.run(consumer.run(handle_signals=False))
    await asyncio.gather(*stopping)
    assert not consumer.running
    await rest_comes(place, group, done)


@scenario("PushConsumer.shutdown", "with work")
async def shuts_down_with_work(place: Place, at: At) -> None:
    group, begun, done = place.group(), set[bytes](), set[bytes]()

    async def handle(message: ConsumedMessage) -> None:
        begun.add(message.body)
        await asyncio.sleep(0.01)
        done.add(message.body)

    consumer = place.push_consumer(group, handler=handle, concurrency=2)
    await consumer.start()
    await until(lambda: begun)
    await at.run(consumer.shutdown())
    await consumer.shutdown()
    assert begun == done
    assert await place.committed(group) <= len(done)
    await rest_comes(place, group, done)


@scenario("PushConsumer.subscribe")
@scenario("PushConsumer.unsubscribe")
async def changes_topics(place: Place, at: At) -> None:
    """Cancelled, both may be repeated, also in another way."""
    for options in ({}, {"broadcast": True}, {"orderly": True}):
        group, done = place.group(), set[bytes]()
        async with place.push_consumer(group, subscriptions=None, **options) as consumer:
            step = At(at.step, late=at.late) if options else at
            handler: Any = lambda message, done=done: done.add(message.body)  # noqa: E731
            await step.run(consumer.subscribe(place.topic, handler=handler))
            await consumer.subscribe(place.topic, handler=handler)
            await until(lambda: len(done) == 12)  # noqa: B023
            step = At(at.step, late=at.late) if options else at
            await step.run(consumer.unsubscribe(place.topic))
            await consumer.subscribe(place.topic, "other", handler=handler)
        assert options.get("broadcast") or await place.committed(group) == 12


@scenario("PushConsumer.__anext__")
@scenario("ConsumedMessage.__aenter__")
@scenario("ConsumedMessage.__aexit__")
@scenario("ConsumedMessage.reconsume")
async def iterates(place: Place, at: At) -> None:
    """A message whose work was cancelled comes again, before those that follow it in its queue."""
    group = place.group()
    options: dict[str, Any] = {"orderly": True, "hooks": [SlowHook()]}
    done = set[bytes]()
    async with place.push_consumer(group, suspend_current_queue=0.001, **options) as consumer:

        async def work() -> None:
            async with await anext(consumer) as message:
                await asyncio.sleep(0)
                await message.reconsume()
            async with await anext(consumer) as message:
                await asyncio.sleep(0)
                done.add(message.body)

        await at.run(work())
        async with asyncio.timeout(10):
            while len(done) < 12:
                async with await anext(consumer) as message:
                    done.add(message.body)
    assert done == set(BODIES)
    assert await place.committed(group) == 12


# Servers for tests


@scenario("RocketMQ.create_topic")
@scenario("RocketMQ.drain")
async def drains(place: Place, at: At) -> None:
    topic = f"{place.topic}-drained"
    found: list[bytes] = []

    async def drain() -> None:
        await place.server.create_topic(topic, queues=2)
        found.extend([message.body for message in await place.server.drain(topic)])

    await place.server.create_topic(topic, queues=2)
    await place.server.drain(topic)
    async with Producer("P", namesrv=place.namesrv) as producer:
        await producer.send_batch([Message(topic, body) for body in BODIES])
    await at.run(drain())
    await drain()
    assert sorted(found) == sorted(BODIES)


@scenario("RocketMQ.idle")
@scenario("RocketMQ.advance")
async def moves(place: Place, at: At) -> None:
    group = place.group()
    async with place.push_consumer(group, handler=lambda _: None, commit_interval=0.01):

        async def move() -> None:
            await place.server.advance(1)
            await place.server.idle(group)

        await at.run(move())
        await move()
    assert await place.committed(group) == 12


@scenario("RocketMQ.restart_broker")
async def restarts(place: Place, at: At) -> None:
    async with RocketMQ() as server:
        await at.run(server.restart_broker())
        await server.restart_broker()
        await server.create_topic("T")


@scenario("EmbeddedServer.restart_broker")
async def restarts_embedded(place: Place, at: At) -> None:
    async with EmbeddedServer() as server:
        await at.run(server.restart_broker())
        await server.restart_broker()
        async with Admin(namesrv=server.namesrv) as admin:
            await admin.create_topic("T")


@scenario("Held.arrived")
async def holds(place: Place, at: At) -> None:
    async with Producer("P", namesrv=place.namesrv) as producer:
        with place.server.hold("SEND_MESSAGE_V2") as held:
            sending = asyncio.create_task(producer.send(Message(place.topic, b"x")))
            await at.run(held.arrived())
            await held.arrived()
            held.release()
            await sending


@scenario("MovableClock.advance")
async def moves_a_clock(place: Place, at: At) -> None:
    clock, rung = MovableClock(), asyncio.Event()
    clock.call_later(10, rung.set)
    await at.run(clock.advance(10))
    await rung.wait()
    await clock.advance(0)


@pytest.fixture(scope="module")
def server() -> Iterator[RocketMQ]:
    with RocketMQ(properties={"recallMessageEnable": "true"}) as rocketmq:
        yield rocketmq


CASES = [
    pytest.param(call, case, id=f"{call}-{case}" if case else call)
    for call, cases in sorted(SCENARIOS.items())
    for case in cases
]


@pytest.mark.parametrize(("call", "case"), CASES)
async def test_a_cancelled_call_loses_nothing(
    server: RocketMQ, call: str, case: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = Place(server, "".join(c for c in call + case if c.isalnum()), tmp_path)
    await place.make()
    play = SCENARIOS[call][case]
    cancelled = await cancel_everywhere(
        lambda at: play(place, at), every=request.config.getoption("--long"), seed=call + case
    )
    assert cancelled > 0
