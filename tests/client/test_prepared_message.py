from __future__ import annotations

import random

import pytest

from pocketmq.client.errors import BodyError, InvalidMessage, SystemBusy
from pocketmq.client.producer.prepared_message import (
    COMPRESS_IN_THREAD,
    Compression,
    PreparedMessage,
    compress_body,
    prepare,
)
from pocketmq.client.send_result import SendStatus
from pocketmq.message import properties as names
from pocketmq.message.compression import CompressionType, decompress
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.command import Command

QUEUE = MessageQueue("T", "b0", 3)


def test_a_message_becomes_a_request() -> None:
    message = Message(
        "T", b"body", tags="t", keys=["k1", "k2"], properties={"a": "ä"}, flag=7, delay_level=3
    )
    before = repr(message)
    outgoing = prepare(message, "ID")
    assert repr(message) == before
    assert outgoing.code == RequestCode.SEND_MESSAGE_V2
    assert names.decode(outgoing.properties) == {
        "UNIQ_KEY": "ID",
        "TAGS": "t",
        "KEYS": "k1 k2",
        "DELAY": "3",
        "a": "ä",
        "WAIT": "true",
    }
    assert (outgoing.flag, outgoing.sys_flag, outgoing.batch) == (7, 0, False)


@pytest.mark.parametrize("kind", list(CompressionType))
@pytest.mark.parametrize("size", [4096, COMPRESS_IN_THREAD + 1])
async def test_compression(kind: CompressionType, size: int) -> None:
    outgoing = prepare(Message("T", b"abcd" * (size // 4)), "ID")
    await compress_body(outgoing, Compression(kind))
    assert len(outgoing.body) < size
    assert outgoing.sys_flag == 1 | kind << 8
    assert decompress(outgoing.body, outgoing.sys_flag) == b"abcd" * (size // 4)


@pytest.mark.parametrize("kind", list(CompressionType))
@pytest.mark.parametrize("size", [4096, COMPRESS_IN_THREAD + 1])
async def test_a_body_that_compression_makes_larger(kind: CompressionType, size: int) -> None:
    body = random.Random(1).randbytes(size)
    outgoing = prepare(Message("T", body), "ID")
    await compress_body(outgoing, Compression(kind))
    assert outgoing.body == body
    assert outgoing.sys_flag == 0


@pytest.mark.parametrize(
    ("name", "level", "reason"),
    [
        ("gzip", 5, "compression 'gzip' is none of 'lz4', 'zstd', 'zlib' or None"),
        ("zlib", 42, "compression 'zlib' has no level 42"),
        ("zstd", 999, "compression 'zstd' has no level 999"),
    ],
)
def test_a_compression_that_is_none(name: str, level: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Compression.named(name, 4096, level)


def test_no_name_is_no_compression() -> None:
    assert Compression.named(None, 1, 1) is None


def answer(ext: dict[str, str], code: int = 0) -> Command:
    return Command(code=code, flag=1, remark="why", ext_fields=ext)


STORED = {"queueId": "3", "queueOffset": "17", "msgId": "OFFSETID", "transactionId": "ID"}


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, SendStatus.SEND_OK),
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_answers_that_say_stored(code: int, status: SendStatus) -> None:
    result = prepare(Message("T", b"x"), "ID").result(answer(STORED, code), QUEUE)
    assert result.status is status
    assert (result.msg_id, result.offset_msg_id) == ("ID", "OFFSETID")
    assert (result.queue, result.queue_offset, result.transaction_id) == (QUEUE, 17, "ID")


def test_the_broker_may_choose_another_queue() -> None:
    result = prepare(Message("T", b"x"), "ID").result(answer(STORED | {"queueId": "1"}), QUEUE)
    assert result.queue == MessageQueue("T", "b0", 1)


def test_an_error_answer_is_its_class() -> None:
    with pytest.raises(SystemBusy) as caught:
        prepare(Message("T", b"x"), "ID").result(answer({}, 2), QUEUE)
    assert (caught.value.broker, caught.value.remark) == ("b0", "why")


@pytest.mark.parametrize("missing", ["queueId", "queueOffset", "msgId"])
def test_a_broken_answer_is_an_error(missing: str) -> None:
    ext = {key: value for key, value in STORED.items() if key != missing}
    with pytest.raises(BodyError):
        prepare(Message("T", b"x"), "ID").result(answer(ext), QUEUE)
    with pytest.raises(BodyError):
        prepare(Message("T", b"x"), "ID").result(answer(STORED | {"queueOffset": "x"}), QUEUE)


def batch_of(*ids: str) -> PreparedMessage:
    return PreparedMessage(RequestCode.SEND_BATCH_MESSAGE, "T", b"body", "", ids, batch=True)


def test_a_batch_has_a_result_for_each_message() -> None:
    results = batch_of("A", "B").results(answer(STORED | {"msgId": "1,2"}), QUEUE)
    assert [(r.msg_id, r.offset_msg_id, r.queue_offset) for r in results] == [
        ("A", "1", 17),
        ("B", "2", 18),
    ]


def test_an_inner_batch_has_one_id_for_all() -> None:
    results = batch_of("A", "B", "C").results(answer(STORED), QUEUE)
    assert [(r.offset_msg_id, r.queue_offset) for r in results] == [
        ("OFFSETID", 17),
        ("OFFSETID", 18),
        ("OFFSETID", 19),
    ]


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        (Message("T", b"x", delay=1.5), "TIMER_DELAY_MS", "1500"),
        (Message("T", b"x", deliver_at=1_700_000_000_000), "TIMER_DELIVER_MS", "1700000000000"),
    ],
)
def test_timers(message: Message, name: str, value: str) -> None:
    assert names.decode(prepare(message, "ID").properties)[name] == value


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x", delay_level=1, delay=1),
        Message("T", b"x", delay=1, deliver_at=1),
        Message("T", b"x", delay=-1),
        Message("T", b"x", deliver_at=-1),
    ],
)
def test_timers_that_make_no_sense(message: Message) -> None:
    with pytest.raises(InvalidMessage, match=r"delay|deliver_at"):
        prepare(message, "ID")
