"""Broken clients cost the others nothing: while they do their worst, a neighbour is served, and
what the broker keeps for them stays bounded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import encode_command
from pocketmq.remoting.headers import BatchRequestHeader, PullMessageRequestHeader
from pocketmq.store.files import Files
from tests.broker.conftest import SUBSCRIPTION, SUSPEND, Client, Connect, StartBroker, subscription

MB = 1 << 20
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Open = Callable[[Broker], Awaitable[Streams]]


@pytest.fixture
async def open_raw() -> AsyncIterator[Open]:
    """`await open_raw(broker)`: a bare socket to the broker that reads next to nothing."""
    opened: list[asyncio.StreamWriter] = []

    async def open_one(broker: Broker) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=1024)
        opened.append(writer)
        return reader, writer

    yield open_one
    for writer in opened:
        writer.transport.abort()


@pytest.fixture
def growth() -> Callable[[], int]:
    """By how many bytes this process has grown since the fixture was made."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("no /proc/self/statm to read the resident memory from")

    def resident() -> int:
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    return lambda: resident() - before


class Neighbour:
    """An honest client: each round it sends a message and pulls it."""

    def __init__(self, client: Client, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.rounds = 0

    async def served(self, rounds: int = 10) -> None:
        async with asyncio.timeout(30):
            for _ in range(rounds):
                body = b"round %d" % self.rounds
                answer = await self.client.send(self.topic, body)
                assert answer.code == 0, answer.remark
                [record] = await self.client.pulled(self.topic, self.rounds)
                assert record.body == body
                self.rounds += 1


@pytest.fixture
async def neighbour(broker: Broker, connect: Connect, topic: str) -> Neighbour:
    return Neighbour(await connect(broker), f"{topic}_of_the_neighbour")


@contextlib.asynccontextmanager
async def meanwhile(work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """`work` again and again beside the block."""

    async def repeat() -> None:
        while True:
            await work()
            await asyncio.sleep(0)

    task = asyncio.create_task(repeat())
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_garbage(broker: Broker, neighbour: Neighbour, open_raw: Open) -> None:
    source = random.Random(4)

    async def garbage() -> None:
        reader, writer = await open_raw(broker)
        # Frame lengths that are none, heads that are none, and plain noise.
        kind = source.randrange(3)
        size = source.randrange(1, 4000)
        head = (b"", b"\xff\xff\xff\xff", size.to_bytes(4, "big") + b"\x00\x00\xff\xff")[kind]
        writer.write(head + source.randbytes(size))
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            await reader.read()

    async with meanwhile(garbage):
        await neighbour.served(30)


async def test_half_frames(
    broker: Broker, neighbour: Neighbour, open_raw: Open, growth: Callable[[], int]
) -> None:
    for _ in range(200):
        _, writer = await open_raw(broker)
        # Sixteen megabytes are announced, a few bytes come.
        writer.write((16 * MB - 100).to_bytes(4, "big") + (100).to_bytes(4, "big") + b'{"code":10,')
        await writer.drain()

    await neighbour.served()
    assert growth() < 50 * MB


def pulls(topic: str, count: int, *, offset: int = 0, hold: int = 0) -> bytes:
    """Pipelined requests for as much of a queue as one answer holds."""
    frames = []
    for opaque in range(count):
        header = PullMessageRequestHeader(
            consumer_group="G",
            topic=topic,
            queue_id=0,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=SUBSCRIPTION | (SUSPEND if hold else 0),
            commit_offset=0,
            suspend_timeout_millis=hold,
            sub_version=0,
            subscription="*",
        )
        frames.append(encode_command(RequestCode.PULL_MESSAGE, opaque, header=header))
    return b"".join(frames)


async def test_a_reader_that_never_reads(
    broker: Broker,
    client: Client,
    neighbour: Neighbour,
    open_raw: Open,
    topic: str,
    growth: Callable[[], int],
) -> None:
    for _ in range(32):
        assert (await client.send(topic, bytes(8000))).code == 0
    for _ in range(20):
        _, writer = await open_raw(broker)
        # The answers to these would be 2.5 GB.
        writer.write(pulls(topic, 500))

    await neighbour.served(30)
    assert growth() < 100 * MB


def in_parents(frames: bytes) -> bytes:
    """Each of these frames as the only child of a parent of its own."""
    parents = []
    at = 0
    while at < len(frames):
        end = at + 4 + int.from_bytes(frames[at : at + 4], "big")
        header = BatchRequestHeader(dispatch_code=RequestCode.PULL_MESSAGE)
        parents.append(
            encode_command(RequestCode.COMMON_BATCH_REQUEST, at, header=header, body=frames[at:end])
        )
        at = end
    return b"".join(parents)


@pytest.mark.parametrize("shape", [bytes, in_parents])
async def test_long_polls_of_readers_that_never_read(
    broker: Broker,
    client: Client,
    neighbour: Neighbour,
    open_raw: Open,
    topic: str,
    growth: Callable[[], int],
    shape: Callable[[bytes], bytes],
) -> None:
    assert (await client.send(topic, b"first")).code == 0
    await neighbour.served(1)
    for _ in range(20):
        _, writer = await open_raw(broker)
        writer.write(shape(pulls(topic, 500, offset=1, hold=60_000)))
    holds = broker.components.pulls.holds
    async with asyncio.timeout(30):
        while len(holds) < 10_000:  # noqa: ASYNC110 (what is looked at has no event)
            await asyncio.sleep(0.001)

    # One message wakes ten thousand pulls, whose answers would be 1.2 GB.
    assert (await client.send(topic, bytes(120_000))).code == 0
    await neighbour.served()

    async with asyncio.timeout(30):
        while len(holds):  # noqa: ASYNC110 (what is looked at has no event)
            await asyncio.sleep(0.001)
    await neighbour.served()
    assert growth() < 200 * MB


async def test_a_slow_reader_is_told_to_ask_again(
    broker: Broker, client: Client, open_raw: Open, topic: str
) -> None:
    assert (await client.send(topic, b"first")).code == 0
    reader, writer = await open_raw(broker)
    writer.write(pulls(topic, 200, offset=1, hold=60_000))
    async with asyncio.timeout(30):
        while len(broker.components.pulls.holds) < 200:  # noqa: ASYNC110 (what is looked at has no event)
            await asyncio.sleep(0.001)
    assert (await client.send(topic, bytes(120_000))).code == 0

    answers = {True: 0, False: 0}
    async with asyncio.timeout(30):
        for _ in range(200):
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size)
            asked_again = b'"code":19' in frame[:300]
            assert asked_again == (b'"nextBeginOffset":"1"' in frame[:500])
            answers[asked_again] += 1
    # All are answered; those beyond what the socket and the broker hold for it without messages.
    assert answers[False] > 10
    assert answers[True] > 10


async def test_a_thousand_idle_connections(
    broker: Broker, neighbour: Neighbour, open_raw: Open, growth: Callable[[], int]
) -> None:
    for _ in range(1000):
        await open_raw(broker)

    await neighbour.served()
    assert growth() < 60 * MB


def heartbeat(client_id: str, group: str, topic: str, opaque: int) -> bytes:
    data = HeartbeatData(
        client_id=client_id,
        consumer_data_set=[
            ConsumerData(group_name=group, subscription_data_set=[subscription(topic)])
        ],
    )
    return encode_command(RequestCode.HEART_BEAT, opaque, body=data.encode())


async def test_a_storm_of_heartbeats(
    broker: Broker, neighbour: Neighbour, open_raw: Open, topic: str
) -> None:
    reader, writer = await open_raw(broker)
    storm = b"".join(heartbeat("c1", "Storm", topic, opaque) for opaque in range(50))

    async def blow() -> None:
        writer.write(storm)
        await reader.read(1 << 20)

    async with meanwhile(blow):
        await neighbour.served(30)
    group = broker.tables.consumers.get("Storm")
    assert group is not None
    assert group.client_ids() == ["c1"]


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which tables were written to the disk, in their order."""
    written: list[str] = []
    replace = Files.replace

    def noted(self: Files, path: Path, *arguments: object, **options: object) -> object:
        written.append(os.path.basename(path))
        return replace(self, path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Files, "replace", noted)
    return written


async def test_a_storm_of_ever_new_groups(
    start_broker: StartBroker,
    connect: Connect,
    open_raw: Open,
    topic: str,
    writes: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    broker = await start_broker(max_auto_created_groups=300)
    neighbour = Neighbour(await connect(broker), topic)
    await neighbour.served(1)
    writes.clear()
    reader, writer = await open_raw(broker)

    writer.write(b"".join(heartbeat("c1", f"Storm{n}", topic, n) for n in range(2000)))
    await neighbour.served()

    async with asyncio.timeout(30):
        while len(broker.tables.groups.table) < 300:
            await reader.read(1 << 20)
    # A file for each group would keep everybody waiting.
    assert len(writes) < 20
    # And a line for each of 2,000 groups would fill the disk in the end. The storm may last longer
    # than an interval of the limit on a busy machine.
    assert len([line for line in caplog.messages if "is not created" in line]) < 10
    assert len(caplog.messages) < 500
    await broker.stop()
    assert len(broker.tables.groups.table) == 300
    assert {"subscriptionGroup.json", "topics.json"} <= set(writes)

    # What was created has been written in the end.
    again = await start_broker(auto_create_subscription_group=False)
    assert len(again.tables.groups.table) == 300
    assert sum(name.startswith("%RETRY%Storm") for name in again.tables.topics.table) > 200


async def test_a_client_of_ever_new_names(
    broker: Broker, neighbour: Neighbour, open_raw: Open
) -> None:
    reader, writer = await open_raw(broker)
    for n in range(3000):
        groups = ["P", *(f"P{n}-{i}" for i in range(10))]
        data = HeartbeatData(client_id=f"c{n}", producer_data_set=list(map(ProducerData, groups)))
        writer.write(encode_command(RequestCode.HEART_BEAT, n, body=data.encode()))
    await neighbour.served()

    producers = broker.tables.producers
    async with asyncio.timeout(30):
        while not producers.find("c2999"):
            await reader.read(1 << 20)
    assert len(producers.all()) == 20_000
    writer.transport.abort()
    async with asyncio.timeout(30):
        while producers.all():  # noqa: ASYNC110 (what is looked at has no event)
            await asyncio.sleep(0.001)
    assert not any(producers.find(f"c{n}") for n in range(3000))


async def test_members_that_come_and_go_without_a_word(
    broker: Broker, neighbour: Neighbour, connect: Connect, open_raw: Open, topic: str
) -> None:
    member = await connect(broker)
    await member.heartbeat("steady", subscription(topic), group="Storm")

    async def come_and_go() -> None:
        reader, writer = await open_raw(broker)
        try:
            writer.write(heartbeat("gone", "Storm", topic, 1))
            await reader.readexactly(4)
        finally:
            writer.transport.abort()

    async with meanwhile(come_and_go):
        await neighbour.served(30)
    async with asyncio.timeout(30):
        group = broker.tables.consumers.get("Storm")
        assert group is not None
        while group.client_ids() != ["steady"]:  # each one's end is told to those who stay
            await member.notified.get()
