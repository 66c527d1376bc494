"""Delay levels: what waits where, when it comes, and how exact that is over restarts and kills."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.background import LONGEST_SLEEP_MS
from pocketmq.broker.delayed.due_run import TURN, TURN_BYTES
from pocketmq.broker.inner_message import InnerMessage
from pocketmq.message import properties as names
from pocketmq.message.limits import SCHEDULE_TOPIC
from pocketmq.remoting.errors import RemotingError
from tests.broker.delayed_broker import DelayedBroker, broker, time
from tests.fake_time import START, FakeTime

__all__ = ["broker", "time"]


async def test_a_delayed_message_waits_in_the_queue_of_its_level(broker: DelayedBroker) -> None:
    broker.send(b"later", queue_id=7, DELAY="3", TAGS="A")

    assert broker.bodies() == []
    [waiting] = broker.records(SCHEDULE_TOPIC, 2)
    assert waiting.properties == {
        "UNIQ_KEY": "later",
        "DELAY": "3",
        "TAGS": "A",
        "REAL_TOPIC": "T",
        "REAL_QID": "7",
    }
    # The time of delivery in place of the tags code.
    entry = broker.store.queues[SCHEDULE_TOPIC][2].entry(0)
    assert entry is not None
    assert entry[2] == START + 10_000


async def test_it_comes_when_it_is_due_and_not_before(
    broker: DelayedBroker, time: FakeTime
) -> None:
    inner = InnerMessage(
        "T", 3, b"later", {"DELAY": "3", "TAGS": "A"}, 5, b"\x0a\0\0\1\0\0\0\7", flag=9
    )
    inner.reconsume_times = 2
    inner.sys_flag = 0x100
    broker.put_hooks.put(inner)

    time.advance(9_999)
    assert broker.records(queue_id=3) == []
    time.advance(1)
    [record] = broker.records(queue_id=3)
    assert bytes(record.body) == b"later"
    # As on the official broker's disk, where what belongs to the delay stays too.
    expected = {"DELAY": "3", "TAGS": "A", "REAL_TOPIC": "T", "REAL_QID": "3"}
    assert record.properties == expected
    assert (record.born_timestamp, record.born_host) == (5, b"\x0a\0\0\1\0\0\0\7")
    assert (record.flag, record.sys_flag, record.reconsume_times) == (9, 0x100, 2)
    assert record.store_timestamp == START + 10_000


async def test_levels_do_not_wait_for_each_other(broker: DelayedBroker, time: FakeTime) -> None:
    for level in (3, 1, 2, 1):
        broker.send(b"level %d" % level, DELAY=str(level))
    time.advance(1_000)
    assert broker.bodies() == [b"level 1", b"level 1"]
    time.advance(9_000)
    assert broker.bodies() == [b"level 1", b"level 1", b"level 2", b"level 3"]


async def test_a_level_above_the_highest_is_the_highest(broker: DelayedBroker) -> None:
    broker.send(b"late", DELAY="99")
    [waiting] = broker.records(SCHEDULE_TOPIC, 17)
    assert waiting.properties["DELAY"] == "18"


@pytest.mark.parametrize("level", ["0", "-1"])
async def test_no_delay(broker: DelayedBroker, level: str) -> None:
    broker.send(b"now", DELAY=level)
    assert broker.bodies() == [b"now"]


@pytest.mark.parametrize("level", ["soon", "1.5", "٣", "9" * 30, " 3"])
async def test_a_level_that_is_no_number_is_refused(broker: DelayedBroker, level: str) -> None:
    with pytest.raises(RemotingError, match="DELAY") as refusal:
        broker.send(b"never", DELAY=level)
    assert refusal.value.code == 13
    assert broker.bodies() == []


async def test_a_level_counts_more_than_a_time(broker: DelayedBroker) -> None:
    broker.send(b"m", DELAY="1", TIMER_DELAY_SEC="7", TIMER_DELIVER_MS="8", TIMER_DELAY_MS="9")
    [waiting] = broker.records(SCHEDULE_TOPIC, 0)
    assert not [name for name in waiting.properties if name.startswith("TIMER")]


async def test_the_levels_are_a_setting(tmp_path: Path, time: FakeTime) -> None:
    async with DelayedBroker(tmp_path, time, message_delay_level="2s 1m") as broker:
        broker.send(b"two seconds", DELAY="1")
        broker.send(b"a minute", DELAY="3")
        time.advance(2_000)
        assert broker.bodies() == [b"two seconds"]
        time.advance(58_000)
        assert broker.bodies() == [b"two seconds", b"a minute"]


async def test_an_idle_broker_sleeps(broker: DelayedBroker, time: FakeTime) -> None:
    assert time.sleeping == 0
    broker.send(b"m", DELAY="1")
    assert time.sleeping == 1
    time.advance(1_000)
    assert broker.bodies() == [b"m"]
    assert time.sleeping == 0


@pytest.mark.parametrize("delay", [{"DELAY": "1"}, {"TIMER_DELAY_SEC": "1"}])
async def test_a_flood_is_delivered_in_turns_and_in_order(
    broker: DelayedBroker, time: FakeTime, delay: dict[str, Any]
) -> None:
    bodies = [b"%d" % n for n in range(500)]
    for body in bodies:
        broker.send(body, **delay)
    delivered = []
    while len(broker.bodies()) < 500:
        time.step()
        delivered.append(broker.bodies())
    assert delivered[-1] == bodies
    ends = [len(part) for part in delivered]
    assert max(after - before for before, after in itertools.pairwise(ends)) <= TURN
    assert delivered == [bodies[:end] for end in ends]


@pytest.mark.parametrize("delay", [{"DELAY": "1"}, {"TIMER_DELAY_SEC": "1"}])
async def test_a_turn_ends_with_so_many_bytes(
    tmp_path: Path, time: FakeTime, delay: dict[str, Any]
) -> None:
    size = 400_000
    async with DelayedBroker(tmp_path, time, mapped_file_size_commit_log=16 << 20) as broker:
        for n in range(10):
            broker.send(b"%d" % n * size, UNIQ_KEY=str(n), **delay)
        turns = [0]
        while turns[-1] < 10:
            time.step()
            turns.append(len(broker.bodies()))
    assert max(after - before for before, after in itertools.pairwise(turns)) * size < (
        TURN_BYTES + size
    )


async def test_levels_that_are_overdue_are_delivered_in_the_order_of_their_times(
    broker: DelayedBroker, time: FakeTime
) -> None:
    for body, level, later in (
        (b"third", "2", 2_000),
        (b"first", "1", 0),
        (b"second", "1", 2_500),
        (b"fourth", "1", 600),
        (b"fifth", "1", 0),
    ):
        broker.send(body, DELAY=level)
        time.now += later  # and nothing is delivered
    time.advance(60_000)
    assert broker.bodies() == [b"first", b"second", b"third", b"fourth", b"fifth"]


async def test_a_clock_set_back_does_not_hold_up_what_waits(
    broker: DelayedBroker, tmp_path: Path, time: FakeTime
) -> None:
    broker.send(b"m", DELAY="1")
    await broker.stop()
    time.now -= 3_600_000
    async with DelayedBroker(broker.root, time) as again:
        time.advance()
        assert again.bodies() == [b"m"]


async def test_a_clock_that_is_set_back_while_it_waits(
    broker: DelayedBroker, time: FakeTime
) -> None:
    broker.send(b"before", DELAY="1")
    time.set_back(3_600_000)
    broker.send(b"after", DELAY="1")
    time.advance(LONGEST_SLEEP_MS + 1_000)
    assert broker.bodies() == [b"before", b"after"]


async def test_a_store_that_refuses_gets_it_again(
    broker: DelayedBroker, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    broker.send(b"m", DELAY="1")
    broker.store.refuse("the disk is full")
    time.advance(2_500)
    assert broker.bodies() == []
    assert "the disk is full" in caplog.text
    broker.store.accept()
    time.advance(1_000)
    assert broker.bodies() == [b"m"]


# --- progress on the disk ---------------------------------------------------------------------


def offsets(broker: DelayedBroker) -> dict[str, int]:
    text = (broker.root / "config" / "delayOffset.json").read_text()
    document = json.loads(text.replace("{1:", '{"1":').replace(",2:", ',"2":'))
    assert set(document) == {"dataVersion", "offsetTable"}
    table: dict[str, int] = document["offsetTable"]
    return table


async def test_a_clean_stop_forgets_nothing(broker: DelayedBroker, time: FakeTime) -> None:
    for n in range(5):
        broker.send(b"first %d" % n, DELAY="1")
        broker.send(b"second %d" % n, DELAY="2")
        time.advance(300)
    await broker.stop()
    assert offsets(broker) == {"1": 2}

    time.advance(60_000)
    async with DelayedBroker(broker.root, time) as again:
        time.advance()
        assert sorted(again.bodies()) == sorted(
            b"%s %d" % (word, n) for word in (b"first", b"second") for n in range(5)
        )
    assert offsets(again) == {"1": 5, "2": 5}
    assert (broker.root / "config" / "delayOffset.json.bak").exists()


async def test_after_a_kill_only_what_came_since_the_last_save_comes_again(
    broker: DelayedBroker, time: FakeTime, tmp_path: Path
) -> None:
    for n in range(3):
        broker.send(b"%d" % n, DELAY="1")
        time.advance(1_000)
        if n == 0:
            await broker.save()
    broker.store.settle()
    killed = shutil.copytree(broker.root, tmp_path / "killed")

    async with DelayedBroker(killed, time) as again:
        time.advance()
        assert again.bodies() == [b"0", b"1", b"2", b"1", b"2"]


async def test_offsets_outside_of_the_queue_are_corrected(
    broker: DelayedBroker, time: FakeTime
) -> None:
    broker.send(b"old", DELAY="1")
    time.advance(1_000)
    await broker.stop()
    path = broker.root / "config" / "delayOffset.json"
    path.write_text('{"dataVersion":{"counter":7,"timestamp":1},"offsetTable":{1:900,25:3}}')

    async with DelayedBroker(broker.root, time) as again:
        again.send(b"new", DELAY="1")
        time.advance(1_000)
        assert again.bodies() == [b"old", b"new"]
        assert again.delayed.schedule.progress() == {1: (2, 2), 25: (3, 0)}
    # A level that is not configured any more, and the version, go on.
    content = path.read_text()
    assert "25:3" in content
    assert '"counter":7' in content


async def test_a_message_that_can_not_be_delivered_does_not_hold_up_the_others(
    broker: DelayedBroker, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    lost = InnerMessage(SCHEDULE_TOPIC, 0, b"nowhere to go", {names.DELAY: "1"}, 1, bytes(8))
    broker.put_hooks.put(lost, direct=True)
    broker.send(b"m", DELAY="1")
    time.advance(1_000)
    assert broker.bodies() == [b"m"]
    assert "cannot be delivered to topic None" in caplog.text


@pytest.mark.parametrize("delay", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}])
async def test_a_smaller_limit_of_size_is_for_those_that_come_then(
    broker: DelayedBroker, time: FakeTime, delay: dict[str, Any]
) -> None:
    body = bytes(2000)
    broker.send(body, **delay)
    broker.config.max_message_size = 1024

    assert not broker.send(body).ok
    time.advance(2_000)
    assert broker.bodies() == [body]
