"""Transactions: half messages, their ends, the checks of those that nobody ended."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Final

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message.identity import encode_offset_msg_id
from pocketmq.message.limits import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)
from pocketmq.message.record import Record, decode
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingTimeout
from pocketmq.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from pocketmq.store.config import FlushDiskType
from tests.broker.conftest import Connect, subscription
from tests.broker.transacting import (
    COMMIT,
    ROLLBACK,
    SECOND,
    UNKNOWN,
    Clock,
    Half,
    Produce,
    Producer,
    StartClocked,
    broker,
    clock,
    halves,
    ops,
    produce,
    producer,
    records,
    start_clocked,
)
from tests.unpacking import unpack

__all__ = ["broker", "clock", "produce", "producer", "start_clocked"]

PHYSICAL_OFFSET: Final = Struct(">q")
PHYSICAL_OFFSET_AT: Final = 28
GOLDEN = Path(__file__).parents[1] / "data" / "golden"


def bodies(found: list[Record]) -> list[bytes]:
    return [bytes(record.body) for record in found]


# --- half messages and their ends -----------------------------------------------------------------


async def test_a_half_message_is_where_the_official_broker_has_it(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    answer = await producer.send(
        topic,
        b"half",
        properties={"TRAN_MSG": "true", "PGROUP": "PG", "TAGS": "a", "UNIQ_KEY": "U1"},
        queue_id=3,
        sys_flag=4,
    )
    [half] = halves(broker)
    assert (half.topic, half.queue_id, half.queue_offset) == (HALF_TOPIC, 0, 0)
    assert half.sys_flag == 0
    assert (
        half.properties.items()
        >= {
            "REAL_TOPIC": topic,
            "REAL_QID": "3",
            "__transactionId__": "U1",
            "PGROUP": "PG",
            "TRAN_MSG": "true",
            "TAGS": "a",
        }.items()
    )
    fields = answer.ext_fields
    assert (answer.code, fields["queueId"], fields["queueOffset"]) == (0, "3", "0")
    assert int(fields["msgId"][16:], 16) == half.physical_offset
    assert records(broker, topic, 3) == []


async def test_a_commit_makes_the_message_readable(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    half = await producer.begin(topic, clock, TAGS="a", UNIQ_KEY="U1")
    waiting = asyncio.ensure_future(producer.pulled(topic, subscription="a", sys_flag=6))
    answer = await producer.end(half)
    assert (answer.code, answer.remark) == (0, None)
    [message] = await waiting
    assert (message.topic, message.queue_id, bytes(message.body)) == (topic, 0, b"half")
    assert message.sys_flag == 8
    assert message.prepared_transaction_offset == half.physical_offset
    assert message.properties["UNIQ_KEY"] == "U1"
    assert ops(broker) == ["0,"]
    assert broker.tables.statistics.put_of(topic).messages == 1


async def test_a_rollback_leaves_nothing_to_read(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    halves = [await producer.begin(topic, clock) for _ in range(3)]
    for half in halves:
        assert (await producer.end(half, ROLLBACK)).code == 0
    assert records(broker, topic) == []
    assert ops(broker) == ["0,1,2,"]
    [op] = records(broker, OP_HALF_TOPIC)
    assert op.properties == {"TAGS": "d", "WAIT": "true"}


async def test_ends_that_come_in_one_read(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    """Each of them gets what it would get alone."""
    sent = [await producer.begin(topic, clock, b"%d" % n, TAGS="a") for n in range(4)]
    delayed = await producer.begin(topic, clock, b"later", DELAY="3")
    timed = await producer.begin(topic, clock, b"timed", TIMER_DELAY_SEC="100")
    rolled_back = await producer.begin(topic, clock, b"never")
    last = await producer.begin(f"{topic}2", clock, b"last")
    end = producer.end
    answers = await asyncio.gather(
        *map(end, sent[:3]),
        end(delayed),
        end(sent[3], producer_group="another"),
        end(sent[0]),
        end(timed),
        end(rolled_back, ROLLBACK),
        end(Half(7, 4711)),
        end(sent[3], tran_state_table_offset=99),
        end(last),
        end(sent[3]),
    )
    wrong = {4, 5, 8, 9}
    assert [n for n, answer in enumerate(answers) if answer.code] == sorted(wrong)
    assert bodies(records(broker, topic)) == [b"0", b"1", b"2", b"3"]
    assert bodies(records(broker, f"{topic}2")) == [b"last"]
    assert bodies(records(broker, SCHEDULE_TOPIC, 2)) == [b"later"]
    assert bodies(records(broker, TIMER_TOPIC)) == [b"timed"]
    assert ops(broker) == ["0,1,2,4,5,6,7,3,"]
    counts = broker.tables.statistics.transactions
    assert sum(counts.committed.values()) == 7
    assert (sum(counts.rolled_back.values()), sum(counts.pending.values())) == (1, 0)
    places = [(half.physical_offset, half.queue_offset) for half in halves(broker)]
    stored = records(broker, topic)
    assert [record.prepared_transaction_offset for record in stored] == [
        places[n][0] for n in range(4)
    ]
    assert {(record.sys_flag, record.properties["TAGS"]) for record in stored} == {(8, "a")}
    traffic = broker.tables.statistics.put_of(topic)
    assert traffic.messages == 4


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("between", ["nothing", "check", "restart"])
async def test_a_transaction_ends_once(
    start_clocked: StartClocked,
    produce: Produce,
    clock: Clock,
    topic: str,
    first: int,
    second: int,
    between: str,
) -> None:
    """Also when the op is forgotten, because the checks have passed its half message."""
    broker = await start_clocked()
    producer = await produce(broker)
    early = await producer.begin(topic, clock, b"early")
    half = await producer.begin(topic, clock)
    clock.forward(30 * SECOND)
    [_, check] = await producer.asked(broker)
    assert (await producer.end(half, first)).code == 0
    assert (await producer.end(early)).code == 0
    if between == "check":
        clock.forward(30 * SECOND)
        assert await producer.asked(broker) == []
        assert broker.components.transactions.ops.ended == set()
    if between == "restart":
        await broker.stop()
        broker = await start_clocked()
        producer = await produce(broker)
    for place in (half, check.place):
        answer = await producer.end(place, second)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "has already ended" in (answer.remark or "")
    assert bodies(records(broker, topic)).count(b"half") == (first == COMMIT)


async def test_what_is_pending_is_known_after_a_restart(
    start_clocked: StartClocked, produce: Produce, clock: Clock, topic: str
) -> None:
    broker = await start_clocked()
    producer = await produce(broker)
    halves = [await producer.begin(topic, clock) for _ in range(4)]
    clock.forward(30 * SECOND)
    await producer.asked(broker)  # of each, a copy
    halves += [await producer.begin(topic, clock) for _ in range(2)]
    for half in (halves[0], halves[4]):
        await producer.end(half)
    await broker.stop()
    broker = await start_clocked()
    producer = await produce(broker)
    counts = broker.tables.statistics.transactions
    assert counts.pending == {topic: 4}
    for half in (halves[1], halves[5]):
        assert (await producer.end(half, ROLLBACK)).code == 0
    assert counts.pending == {topic: 2}


async def test_two_ends_in_one_read(producer: Producer, clock: Clock, topic: str) -> None:
    for how in (COMMIT, ROLLBACK):
        half = await producer.begin(topic, clock)
        answers = await asyncio.gather(*(producer.end(half, end) for end in (how, COMMIT, how)))
        assert [answer.code for answer in answers] == [0, 1, 1]


async def test_only_a_half_message_that_was_given_up_is_resumed(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    """A client may have set its properties on an ordinary message."""
    forged = {"REAL_TOPIC": "Secret", "REAL_QID": "0", "PGROUP": "PG"}
    answer = await producer.send(topic, b"forged", properties=forged)
    header = ResumeCheckHalfMessageRequestHeader(msg_id=answer.ext_fields["msgId"])
    answer = await producer.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert halves(broker) == []


async def test_who_does_not_know_gets_no_answer(
    producer: Producer, clock: Clock, topic: str
) -> None:
    half = await producer.begin(topic, clock)
    with pytest.raises(RemotingTimeout):
        await producer.end(half, UNKNOWN, timeout=0.1)
    assert (await producer.end(half)).code == 0


async def test_an_end_that_is_none_is_refused(producer: Producer, clock: Clock, topic: str) -> None:
    half = await producer.begin(topic, clock)
    answer = await producer.end(half, 4)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "commitOrRollback is 4" in (answer.remark or "")
    assert (await producer.end(half)).code == 0


async def test_an_end_must_name_the_half_message_rightly(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    half = await producer.begin(topic, clock)
    plain = await producer.send(topic)
    elsewhere = int(plain.ext_fields["msgId"][16:], 16)
    for fields, remark in (
        ({"commit_log_offset": 10**9}, "Find prepared transaction message failed"),
        ({"commit_log_offset": -1}, "Find prepared transaction message failed"),
        ({"commit_log_offset": elsewhere}, "Find prepared transaction message failed"),
        ({"commit_log_offset": half.physical_offset + 1}, "Find prepared transaction"),
        ({"producer_group": "Other"}, "The producer group wrong"),
        ({"tran_state_table_offset": 7}, "The transaction state table offset wrong"),
    ):
        for how in (COMMIT, ROLLBACK):
            answer = await producer.end(half, how, **fields)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert remark in (answer.remark or "")
    assert len(records(broker, topic)) == 1
    assert ops(broker) == []


async def test_a_half_message_in_the_body_of_a_message_is_none(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    victim = await producer.begin(topic, clock, PGROUP="Victims")
    real = broker.store.record_at(victim.physical_offset)
    # Where the next record with such a body begins is easy to foresee.
    first = await producer.send(topic, b"-" * len(real))
    at = int(first.ext_fields["msgId"][16:], 16)
    size = len(broker.store.record_at(at))
    body_at = bytes(broker.store.record_at(at)).index(b"-" * len(real))
    made_up = bytearray(bytes(real).replace(b"Victims", b"Thieves"))
    PHYSICAL_OFFSET.pack_into(made_up, PHYSICAL_OFFSET_AT, at + size + body_at)
    await producer.send(topic, bytes(made_up))
    forged = at + size + body_at
    assert decode(broker.store.record_at(forged)).topic == HALF_TOPIC
    for how in (COMMIT, ROLLBACK):
        answer = await producer.end(victim, how, commit_log_offset=forged, producer_group="Thieves")
        assert answer.remark == "Find prepared transaction message failed"
    header = ConsumerSendMsgBackRequestHeader(offset=forged, group="G", delay_level=0)
    await producer.heartbeat("c", subscription(topic))
    answer = await producer.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    assert answer.remark == f"look message by offset failed, {forged}"
    assert (await producer.end(victim, producer_group="Victims")).code == 0


async def test_transactions_can_be_forbidden(
    start_clocked: StartClocked, produce: Produce, topic: str
) -> None:
    broker = await start_clocked(reject_transaction_message=True)
    producer = await produce(broker)
    answer = await producer.send(topic, properties={"TRAN_MSG": "true"})
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "sending transaction message is forbidden" in (answer.remark or "")
    assert (await producer.send(topic)).code == 0


async def test_a_delay_begins_with_the_commit(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    half = await producer.begin(topic, clock, DELAY="2")
    assert len(halves(broker)) == 1
    await producer.end(half)
    assert records(broker, topic) == []
    [delayed] = records(broker, SCHEDULE_TOPIC, 1)
    assert delayed.properties["REAL_TOPIC"] == topic


async def test_ops_are_written_when_they_are_large_enough(
    start_clocked: StartClocked, produce: Produce, clock: Clock, topic: str
) -> None:
    broker = await start_clocked(transaction_op_msg_max_size=5)
    producer = await produce(broker)
    started = [await producer.begin(topic, clock) for _ in range(12)]
    for half in started[:2]:
        await producer.end(half)
    assert records(broker, OP_HALF_TOPIC) == []
    for half in started[2:]:
        await producer.end(half)
    assert bodies(records(broker, OP_HALF_TOPIC)) == [b"0,1,2,", b"3,4,5,", b"6,7,8,", b"9,10,"]
    await broker.stop()
    broker = await start_clocked()
    assert bodies(records(broker, OP_HALF_TOPIC))[4:] == [b"11,"]


async def test_with_sync_flush_a_commit_is_answered_when_it_is_on_the_disk(
    start_clocked: StartClocked, produce: Produce, clock: Clock, topic: str
) -> None:
    broker = await start_clocked(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    producer = await produce(broker)
    half = await producer.begin(topic, clock)
    assert (await producer.end(half)).code == 0
    [message] = records(broker, topic)
    assert broker.store.flushed_offset >= message.physical_offset + message.size


async def test_a_store_that_takes_nothing_leaves_the_transaction_open(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    half = await producer.begin(topic, clock)
    broker.store.refuse("the disk is full")
    answer = await producer.end(half)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (await producer.end(half, ROLLBACK)).code == 0
    broker.components.transactions.ops.write()
    clock.forward(60 * SECOND)
    assert await producer.asked(broker) == []
    broker.store.accept()
    assert ops(broker) == ["0,"]


# --- checks ---------------------------------------------------------------------------------------


async def test_who_did_not_end_is_asked(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    half = await producer.begin(topic, clock, b"pending", UNIQ_KEY="U1", KEYS="k")
    ended = await producer.begin(topic, clock)
    await producer.end(ended, ROLLBACK)
    clock.forward(6 * SECOND - 1)
    assert await producer.asked(broker) == []
    clock.forward(1)
    [check] = await producer.asked(broker)
    copy = halves(broker)[2]
    assert check.place == Half(copy.queue_offset, copy.physical_offset)
    assert check.header.topic == HALF_TOPIC
    assert check.header.msg_id == check.header.transaction_id == "U1"
    assert check.header.bname == "b0"
    assert (check.half.topic, check.half.queue_id) == (topic, 0)
    assert (check.half.queue_offset, check.half.physical_offset) == check.place
    assert bytes(check.half.body) == b"pending"
    assert check.half.born_timestamp == halves(broker)[half.queue_offset].born_timestamp
    assert check.half.properties == copy.properties
    assert copy.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert copy.properties["KEYS"] == "k"

    assert (await producer.end(check.place, from_transaction_check=True)).code == 0
    assert bodies(records(broker, topic)) == [b"pending"]
    clock.forward(60 * SECOND)
    assert await producer.asked(broker) == []


async def test_an_end_counts_for_all_copies(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    first, second = [await producer.begin(topic, clock) for _ in range(2)]
    for _ in range(2):
        clock.forward(30 * SECOND)
        checks = await producer.asked(broker)
    assert [check.half.properties["TRANSACTION_CHECK_TIMES"] for check in checks] == ["2", "2"]
    # The producer's own, late word; and one that was on its way when it was asked again.
    await producer.end(first)
    await producer.end(Half(2 + second.queue_offset, halves(broker)[3].physical_offset))
    clock.forward(30 * SECOND)
    assert await producer.asked(broker) == []
    assert len(records(broker, topic)) == 2


async def test_a_round_looks_at_every_half_message(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    """Ended ones are skipped, many of them in one step."""
    pending = [await producer.begin(topic, clock) for _ in range(450)]
    for half in pending[::3]:
        await producer.end(half, ROLLBACK)
    clock.forward(10 * SECOND)
    checks = await producer.asked(broker)
    assert [check.place.queue_offset for check in checks] == list(range(450, 750))


async def test_other_work_is_done_between_two_checks(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    """A copy may have 4 MiB, and there may be very many."""
    count = 20
    for _ in range(count):
        await producer.begin(topic, clock)
    clock.forward(10 * SECOND)
    end = broker.store.max_offset(HALF_TOPIC, 0)
    ends = [end]
    round_ = asyncio.create_task(broker.components.transactions.checks.check())
    while not round_.done():
        await asyncio.sleep(0)
        ends.append(broker.store.max_offset(HALF_TOPIC, 0))
    await round_
    assert ends[-1] == end + count
    assert {after - before for before, after in pairwise(ends)} <= {0, 1}


async def test_the_checks_of_topics_alternate(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    """Very many half messages of one topic do not hold up those of another."""
    bodies = [b"%d" % n for n in range(50)]
    for body in bodies:
        await producer.begin(topic, clock, body)
    for body in (b"a", b"b"):
        await producer.begin(topic + "_other", clock, body)
    clock.forward(10 * SECOND)
    asked = [bytes(check.half.body) for check in await producer.asked(broker)]
    assert asked[:4] == [b"0", b"a", b"1", b"b"]
    assert asked[4:] == bodies[2:]


async def test_who_becomes_due_in_a_round_does_not_wait_for_its_end(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    for _ in range(100):
        await producer.begin(topic, clock, b"many")
    clock.forward(10 * SECOND)
    await producer.begin(topic + "_other", clock, b"late")
    round_ = asyncio.create_task(broker.components.transactions.checks.check())
    checks = [await producer.checks.get()]
    clock.forward(10 * SECOND)
    await round_
    checks += await producer.asked(broker)
    asked = [bytes(check.half.body) for check in checks[:101]]
    assert asked.count(b"late") == 1
    assert asked[-1] == b"many"


async def test_a_round_that_takes_long_checks_copies_after_the_interval(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    for _ in range(100):
        await producer.begin(topic, clock, b"many")
    await producer.begin(topic + "_other", clock, b"single")
    clock.forward(10 * SECOND)
    round_ = asyncio.create_task(broker.components.transactions.checks.check())
    asked = []
    while b"single" not in asked:
        asked.append(bytes((await producer.checks.get()).half.body))
    clock.forward(broker.config.transaction_check_interval)
    asked += [bytes((await producer.checks.get()).half.body) for _ in range(99)]
    assert asked.count(b"single") == 2
    await round_


async def test_deleted_half_messages_do_not_hold_up_who_becomes_due_in_a_round(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    await producer.begin(topic + "_first", clock)
    for _ in range(100):
        await producer.begin(topic, clock)
    clock.forward(10 * SECOND)
    await producer.begin(topic + "_other", clock, b"late")
    await producer.request(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": topic})
    round_ = asyncio.create_task(broker.components.transactions.checks.check())
    await producer.checks.get()
    clock.forward(10 * SECOND)
    assert bytes((await producer.checks.get()).half.body) == b"late"
    assert not round_.done()
    await round_


async def test_a_producer_whose_clock_is_ahead_does_not_hold_up_others(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    for seconds in range(0, 60, 5):
        await producer.begin(topic, Clock(clock() + seconds * SECOND), b"ahead")
    await producer.begin(topic, clock, b"behind")
    clock.forward(10 * SECOND)
    asked = [bytes(check.half.body) for check in await producer.asked(broker)]
    assert asked[-1] == b"behind"


async def test_a_round_that_is_broken_off_loses_and_doubles_nothing(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    bodies = [b"%d" % n for n in range(30)]
    for body in bodies:
        await producer.begin(topic, clock, body)
    await producer.begin(topic + "_other", clock, b"a")
    clock.forward(10 * SECOND)
    round_ = asyncio.create_task(broker.components.transactions.checks.check())
    checks = [await producer.checks.get() for _ in range(5)]
    broker.store.refuse("the disk is full")
    await round_
    broker.store.accept()
    checks += await producer.asked(broker)
    assert {bytes(check.half.body) for check in checks} == {*bodies, b"a"}
    clock.forward(10 * SECOND)
    checks = await producer.asked(broker)
    assert sorted(bytes(check.half.body) for check in checks) == sorted([*bodies, b"a"])


async def test_what_is_given_up_in_a_round_is_not_committed_before_its_end(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    old = await producer.begin(topic, clock)
    clock.forward(broker.config.file_reserved_time * 3_600_000)
    for n in range(30):
        await producer.begin(topic, clock, b"%d" % n)
    clock.forward(10 * SECOND)
    checks = asyncio.create_task(broker.components.transactions.checks.check())
    await producer.checks.get()
    assert not checks.done()
    await producer.end(old)
    await checks
    assert b"half" not in [bytes(record.body) for record in records(broker, topic)]


async def test_who_is_asked_too_often_is_given_up(
    start_clocked: StartClocked, produce: Produce, clock: Clock, topic: str
) -> None:
    broker = await start_clocked(transaction_check_max=2)
    producer = await produce(broker)
    await producer.begin(topic, clock, b"lost", UNIQ_KEY="U1")
    asked = []
    for _ in range(4):
        clock.forward(30 * SECOND)
        asked.append(len(await producer.asked(broker)))
    assert asked == [1, 1, 0, 0]
    [given_up] = records(broker, TRANS_CHECK_MAX_TIME_TOPIC)
    assert bytes(given_up.body) == b"lost"
    assert (
        given_up.properties.items()
        >= {
            "REAL_TOPIC": topic,
            "UNIQ_KEY": "U1",
            "TRANSACTION_CHECK_TIMES": "2",
        }.items()
    )

    # An operator may begin anew.
    msg_id = encode_offset_msg_id(given_up.store_host, given_up.physical_offset)
    header = ResumeCheckHalfMessageRequestHeader(msg_id=msg_id)
    answer = await producer.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
    assert answer.code == 0, answer.remark
    clock.forward(30 * SECOND)
    [check] = await producer.asked(broker)
    assert check.half.properties["TRANSACTION_CHECK_TIMES"] == "1"
    await producer.end(check.place, from_transaction_check=True)
    assert bodies(records(broker, topic)) == [b"lost"]


@pytest.mark.parametrize("checks", [0, 1])
@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
async def test_what_ended_after_it_was_resumed_is_not_resumed_again(
    start_clocked: StartClocked,
    produce: Produce,
    clock: Clock,
    topic: str,
    how: int,
    checks: int,
) -> None:
    broker = await start_clocked(transaction_check_max=checks)
    producer = await produce(broker)
    for _ in range(3):  # ops before and after the one that counts
        await producer.end(await producer.begin(topic, clock), ROLLBACK)
        broker.components.transactions.ops.write()
    await producer.begin(topic, clock, b"lost", UNIQ_KEY="U1")
    for _ in range(checks + 2):
        clock.forward(30 * SECOND)
        await producer.asked(broker)
    [given_up] = records(broker, TRANS_CHECK_MAX_TIME_TOPIC)
    msg_id = encode_offset_msg_id(given_up.store_host, given_up.physical_offset)

    async def resume() -> str:
        header = ResumeCheckHalfMessageRequestHeader(msg_id=msg_id)
        answer = await producer.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        return answer.remark or ""

    assert await resume() == ""
    assert "being checked already" in await resume()
    last = halves(broker)[-1]
    place = Half(last.queue_offset, last.physical_offset)
    assert (await producer.end(place, how)).code == 0
    stored = bodies(records(broker, topic))
    pending = broker.components.transactions.checks
    for _ in range(2):
        assert "Its transaction has ended" in await resume()
        await pending.check()  # which forgets the op
        assert (await producer.end(place, COMMIT)).code == ResponseCode.SYSTEM_ERROR
    await producer.end(await producer.begin(topic, clock), ROLLBACK)
    await pending.check()
    assert "Its transaction has ended" in await resume()
    assert bodies(records(broker, topic)) == stored


@pytest.mark.parametrize("msg_id", [None, "", "x", "0" * 32, "7F0000010000000000000000FFFFFFFF"])
async def test_only_what_is_there_can_be_resumed(producer: Producer, msg_id: str | None) -> None:
    header = ResumeCheckHalfMessageRequestHeader(msg_id=msg_id)
    answer = await producer.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_what_is_older_than_the_store_keeps_is_given_up(
    start_clocked: StartClocked, produce: Produce, clock: Clock, topic: str
) -> None:
    broker = await start_clocked(file_reserved_time=1)
    producer = await produce(broker)
    await producer.begin(topic, clock)
    clock.forward(3600 * SECOND + 1)
    assert await producer.asked(broker) == []
    assert len(records(broker, TRANS_CHECK_MAX_TIME_TOPIC)) == 1


async def test_immunity_puts_off_the_checks_and_bounds_the_end(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    immune = [
        await producer.begin(topic, clock, CHECK_IMMUNITY_TIME_IN_SECONDS="100") for _ in range(3)
    ]
    other = await producer.begin(topic, clock)
    for _ in range(3):
        clock.forward(30 * SECOND)
        for check in await producer.asked(broker):
            assert check.half.properties["TRAN_PREPARED_QUEUE_OFFSET"] == str(other.queue_offset)
    # 90 s: put again three times, never asked; what is asked for is behind no immune one.
    copies = [h for h in halves(broker) if h.properties.get("TRAN_PREPARED_QUEUE_OFFSET") == "0"]
    assert len(copies) == 3
    assert all("TRANSACTION_CHECK_TIMES" not in copy.properties for copy in copies)
    assert (await producer.end(immune[0])).code == 0
    clock.forward(11 * SECOND)
    answer = await producer.end(immune[1])
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    asked = {check.half.properties["TRAN_PREPARED_QUEUE_OFFSET"] for check in
             await producer.asked(broker)}  # fmt: skip
    assert asked == {"1", "2", "3"}
    assert (await producer.end(immune[1], from_transaction_check=True)).code == 0


async def test_a_message_committed_by_a_check_has_the_properties_of_its_send(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    await producer.begin(topic, clock)
    clock.forward(30 * SECOND)
    [check] = await producer.asked(broker)
    assert "TRAN_PREPARED_QUEUE_OFFSET" in check.half.properties
    assert (await producer.end(check.place, from_transaction_check=True)).code == 0

    [delivered] = await producer.pulled(topic)
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in delivered.properties
    assert ops(broker) == ["0,1,"]


@pytest.mark.parametrize("text", ["soon", "-1"])
async def test_an_immunity_that_is_no_time_is_the_timeout(
    broker: Broker, producer: Producer, clock: Clock, topic: str, text: str
) -> None:
    await producer.begin(topic, clock, CHECK_IMMUNITY_TIME_IN_SECONDS=text)
    clock.forward(5 * SECOND)
    assert await producer.asked(broker) == []
    clock.forward(2 * SECOND)
    assert len(await producer.asked(broker)) == 1


async def test_a_producer_whose_clock_is_ahead_is_asked(
    broker: Broker, producer: Producer, clock: Clock, topic: str
) -> None:
    await producer.begin(topic, Clock(clock() + 3600 * SECOND))
    clock.forward(1)
    assert len(await producer.asked(broker)) == 1


async def test_members_of_the_group_are_asked_in_turn(
    broker: Broker, produce: Produce, clock: Clock, topic: str
) -> None:
    members = [await produce(broker, "PG", f"p{n}") for n in range(3)]
    stranger = await produce(broker, "Other")
    for _ in range(6):
        await members[0].begin(topic, clock)
    clock.forward(10 * SECOND)
    await members[0].asked(broker)
    for member in members:
        await member.heartbeat("settled", producer="PG")
        await stranger.heartbeat("settled", producer="Other")
    assert members[1].checks.qsize() == members[2].checks.qsize() == 2
    assert stranger.checks.empty()


async def test_nobody_to_be_asked_is_as_good_as_no_answer(
    broker: Broker, connect: Connect, clock: Clock, topic: str
) -> None:
    client = await connect(broker)
    await client.send(topic, properties={"TRAN_MSG": "true", "PGROUP": "Gone"},
                      born_timestamp=clock())  # fmt: skip
    clock.forward(10 * SECOND)
    await broker.components.transactions.checks.check()
    assert [h.properties.get("TRANSACTION_CHECK_TIMES") for h in halves(broker)] == [None, "1"]


# --- the next broker ------------------------------------------------------------------------------


async def test_the_next_broker_goes_on(
    start_clocked: StartClocked, produce: Produce, clock: Clock, topic: str
) -> None:
    broker = await start_clocked()
    producer = await produce(broker)
    started = [await producer.begin(topic, clock, b"%d" % n) for n in range(5)]
    clock.forward(10 * SECOND)
    await producer.end(started[0])
    assert len(await producer.asked(broker)) == 4
    await producer.end(started[1], ROLLBACK)
    await producer.close()
    await broker.stop()
    file = Path(broker.config.store_path_root_dir) / "config" / "consumerOffset.json"
    assert f'"{HALF_TOPIC}@CID_RMQ_SYS_TRANS":{{0:5}}' in file.read_text()

    broker = await start_clocked()
    producer = await produce(broker)
    clock.forward(10 * SECOND)
    checks = await producer.asked(broker)
    assert [bytes(check.half.body) for check in checks] == [b"2", b"3", b"4"]
    for check in checks:
        await producer.end(check.place, from_transaction_check=True)
    assert bodies(records(broker, topic)) == [b"0", b"2", b"3", b"4"]
    clock.forward(10 * SECOND)
    assert await producer.asked(broker) == []
    clock.forward(10 * SECOND)
    await producer.asked(broker)
    assert broker.tables.offsets.query("CID_RMQ_SYS_TRANS", OP_HALF_TOPIC, 0) == len(
        records(broker, OP_HALF_TOPIC)
    )


async def test_an_op_is_kept_for_the_halves_that_wait_behind_a_young_one(
    start_clocked: StartClocked, produce: Produce, clock: Clock, topic: str
) -> None:
    broker = await start_clocked()
    producer = await produce(broker)
    young, ended = [await producer.begin(topic, clock) for _ in range(2)]
    await producer.end(ended)
    assert await producer.asked(broker) == []
    await broker.stop()
    broker = await start_clocked()
    producer = await produce(broker)
    clock.forward(10 * SECOND)
    [check] = await producer.asked(broker)
    assert check.half.properties["TRAN_PREPARED_QUEUE_OFFSET"] == str(young.queue_offset)


async def test_offsets_behind_the_end_are_set_right(
    start_clocked: StartClocked, produce: Produce, clock: Clock, topic: str
) -> None:
    """The last messages were lost with the machine's power, the file of offsets was not."""
    broker = await start_clocked()
    for name in (HALF_TOPIC, OP_HALF_TOPIC):
        broker.tables.offsets.commit("CID_RMQ_SYS_TRANS", name, 0, 1000)
    await broker.stop()
    broker = await start_clocked()
    producer = await produce(broker)
    await producer.begin(topic, clock)
    clock.forward(10 * SECOND)
    assert len(await producer.asked(broker)) == 1


async def test_pending_halves_of_the_official_broker_are_asked(
    start_clocked: StartClocked, produce: Produce, clock: Clock, tmp_path: Path
) -> None:
    """Its store has nine halves, six of them ended by one op, and copies of the three others."""
    unpack(GOLDEN / "store-5.3.3-clean.tar.gz", tmp_path / "golden")
    broker = await start_clocked(
        store_path_root_dir=str(tmp_path / "golden"),
        mapped_file_size_commit_log=131072,
        mapped_file_size_consume_queue=4000,
    )
    found = halves(broker)
    clock.now = found[-1].store_timestamp + 30 * SECOND
    producer = await produce(broker, "Golden_tx")
    checks = await producer.asked(broker)
    assert [(c.half.properties["KEYS"], c.half.properties["TRANSACTION_CHECK_TIMES"])
            for c in checks] == [("t2", "3"), ("t5", "3"), ("t8", "3")]  # fmt: skip
    before = len(records(broker, "Golden_tx", 1))
    assert (await producer.end(checks[0].place, from_transaction_check=True)).code == 0
    assert len(records(broker, "Golden_tx", 1)) == before + 1


async def test_a_subscriber_gets_what_its_tag_filter_lets_through(
    broker: Broker, producer: Producer, connect: Connect, clock: Clock, topic: str
) -> None:
    consumer = await connect(broker)
    await consumer.heartbeat("c", subscription(topic, "b"))
    for tag in ("a", "b"):
        await producer.end(await producer.begin(topic, clock, tag.encode(), TAGS=tag))
    found = await consumer.pulled(topic, sys_flag=0, subscription=None)
    assert bodies(found) == [b"b"]
