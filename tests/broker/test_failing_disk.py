"""While the disk is full or fails, every send is answered with the reason, and reads go on."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message.batch_body import encode_batch
from pocketmq.remoting.answers.batch import decode_answers
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import ConsumerSendMsgBackRequestHeader
from pocketmq.store.config import FlushDiskType
from pocketmq.store.files import Files
from tests.broker.batch.batches import parent, send
from tests.broker.conftest import Connect, StartBroker, fill
from tests.broker.transacting import Clock, Producer

SUCCESS, SYSTEM_ERROR, NOT_AVAILABLE, NOT_FOUND = 0, 1, 14, 19
SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH


class Disk:
    """The commit log's disk: it writes nothing, or half of what it is given, while `number` is
    set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        self.short = False
        self.writes = 0
        self._pwrite = os.pwrite
        monkeypatch.setattr(os, "pwrite", self._write)

    def _write(self, fd: int, data: memoryview, at: int) -> int:
        self.writes += 1
        if not self.number:
            return self._pwrite(fd, data, at)
        if self.short and len(data) > 8:
            return self._pwrite(fd, data[: len(data) // 2], at)
        raise OSError(self.number, os.strerror(self.number))

    def fail(self, number: int, *, short: bool = False) -> None:
        self.number, self.short = number, short

    def mend(self) -> None:
        self.number = 0


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def arrival(broker: Broker, topic: str) -> asyncio.Future[None]:
    """Ends when a message of the topic can be read; those that were refused are stored at last."""
    arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def note(*_: int) -> None:
        if not arrived.done():
            arrived.set_result(None)

    broker.store.listen(topic, 0, note)
    return arrived


def check_refused(answer: Command, number: int) -> None:
    assert answer.code == NOT_AVAILABLE, answer.remark
    assert "service not available now" in (answer.remark or "")
    assert os.strerror(number) in (answer.remark or "")


@pytest.mark.parametrize("flush", [ASYNC, SYNC])
@pytest.mark.parametrize(
    ("number", "short"), [(errno.ENOSPC, False), (errno.EIO, False), (errno.ENOSPC, True)]
)
async def test_every_send_that_waits_is_refused_with_the_reason(
    start_broker: StartBroker,
    connect: Connect,
    topic: str,
    disk: Disk,
    flush: FlushDiskType,
    number: int,
    short: bool,
) -> None:
    broker = await start_broker(flush_disk_type=flush)
    client, other = await connect(broker), await connect(broker)
    await fill(client, topic, "", "")
    (record, _) = await client.pulled(topic)
    back = ConsumerSendMsgBackRequestHeader(offset=record.physical_offset, group="G", delay_level=1)
    await client.pull(topic)  # creates the group
    transaction = {"TRAN_MSG": "true", "PGROUP": "PG"}
    before = broker.store.commit_log.end

    def all_kinds() -> list[Any]:
        return [
            client.send(topic, b"plain"),
            client.send(topic, b"without waiting", properties={"WAIT": "false"}),
            client.send(topic, encode_batch([(0, b"batch", b"")] * 3), batch=True),
            client.send(topic, b"half", properties=transaction, sys_flag=4),
            client.send(topic, b"delayed", properties={"DELAY": "18"}),
            client.send(topic, b"timed", properties={"TIMER_DELAY_SEC": "60"}),
            other.send(topic, b"of another connection"),
            other.send("New" + topic, b"to a new topic"),
        ]

    disk.fail(number, short=short)
    children = [send(topic, b"child"), send(topic, b"child", serialize_type=1)]
    children += [send(topic, b"of another kind", properties={"DELAY": "1"})]
    children += [send("Other" + topic, b"answered when name servers know the topic")]
    parents = asyncio.gather(parent(other, children), parent(client, children))
    answers = await asyncio.gather(
        *all_kinds(),
        client.request(RequestCode.CONSUMER_SEND_MSG_BACK, back),
        other.pull(topic, 2, sys_flag=4),
    )
    assert answers[-2].code in (SYSTEM_ERROR, NOT_AVAILABLE)  # as the official broker's
    for answer in answers[:-2]:
        check_refused(answer, number)
    assert answers[-1].code == NOT_FOUND
    for answer in await parents:
        assert answer.code == SUCCESS
        told = decode_answers(answer.body)
        assert sorted(told) == [100, 101, 102, 103]
        for child in told.values():
            check_refused(child, number)

    # Neither those that come later, nor consumers, wait for the disk.
    check_refused(await client.send(topic, b"later"), number)
    assert [bytes(record.body) for record in await other.pulled(topic)] == [b"m0", b"m1"]
    assert (await other.heartbeat()).code == SUCCESS
    assert broker.store.commit_log.written == before

    resumed = arrival(broker, topic)
    disk.mend()
    await resumed  # nobody has to ask for it
    answer = await client.send(topic, b"last")
    assert answer.code == SUCCESS
    assert (await client.connection.request(RequestCode.GET_BROKER_RUNTIME_INFO)).code == SUCCESS

    await broker.stop()
    again = await connect(await start_broker(flush_disk_type=flush))
    bodies = [bytes(record.body) for record in await again.pulled(topic, max_msg_nums=1000)]
    assert bodies[:2] == [b"m0", b"m1"]
    assert bodies[int(answer.ext_fields["queueOffset"])] == b"last"


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_answers_of_other_kinds_in_the_same_turn_are_given(
    start_broker: StartBroker, connect: Connect, topic: str, disk: Disk, serialize_type: int
) -> None:
    broker = await start_broker()
    client = await connect(broker)
    await fill(client, topic, "", "", "")
    disk.fail(errno.EIO)
    pulled, refused, beat = await asyncio.gather(
        client.pull(topic), client.send(topic), client.heartbeat()
    )
    check_refused(refused, errno.EIO)
    assert (pulled.code, beat.code) == (SUCCESS, SUCCESS)
    assert pulled.body


async def test_a_disk_that_fails_is_not_asked_for_each_request(
    start_broker: StartBroker, connect: Connect, topic: str, disk: Disk
) -> None:
    client = await connect(await start_broker())
    await fill(client, topic, "")
    disk.fail(errno.ENOSPC)
    check_refused(await client.send(topic), errno.ENOSPC)
    disk.writes = 0
    for _ in range(100):
        check_refused(await client.send(topic), errno.ENOSPC)
        assert (await client.pull(topic)).code == SUCCESS
    assert disk.writes < 100


async def test_an_ended_transaction_is_refused_too(
    start_broker: StartBroker, connect: Connect, topic: str, disk: Disk
) -> None:
    broker = await start_broker()
    producer = Producer()
    await producer.open(broker.address)
    half = await producer.begin(topic, Clock())
    disk.fail(errno.ENOSPC)
    check_refused(await producer.end(half), errno.ENOSPC)
    resumed = arrival(broker, topic)
    disk.mend()
    await resumed
    # What was refused stayed in the buffer, and is stored now: once, whatever the producer repeats.
    again = await producer.end(half)
    assert again.code == SYSTEM_ERROR
    assert "has already ended" in (again.remark or "")
    assert broker.store.max_offset(topic, 0) == 1
    await producer.close()


async def test_a_failed_flush_is_told_and_never_tried_again(
    start_broker: StartBroker, connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports the error once and may have dropped the data: a second sync that succeeds
    would prove nothing."""
    broker = await start_broker(flush_disk_type=SYNC)
    client = await connect(broker)
    await fill(client, topic, "")
    synced = 0

    def broken(self: Files, fd: int) -> None:
        nonlocal synced
        if "commitlog" in os.readlink(f"/proc/self/fd/{fd}"):
            synced += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Files, "fdatasync", broken)
    sends = [client.send(topic, b"%d" % n) for n in range(10)]
    for answer in await asyncio.gather(*sends):
        check_refused(answer, errno.EIO)
    monkeypatch.undo()
    assert synced == 1
    check_refused(await client.send(topic), errno.EIO)
    assert len(await client.pulled(topic)) == 1
