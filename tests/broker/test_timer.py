"""Timed messages: what waits where, when it comes, what takes it back, and how exact that is."""

from __future__ import annotations

import asyncio
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.limits import TIMER_TOPIC
from pocketmq.monitoring.families import Distribution
from pocketmq.remoting.errors import RemotingError
from pocketmq.store.timer.timer_index import TimerIndex
from pocketmq.store.timer.timer_wheel import SIZE
from tests.broker.delayed_broker import DelayedBroker, broker, time
from tests.fake_time import START, FakeTime

__all__ = ["broker", "time"]

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 24 * 3_600_000


async def test_a_timed_message_waits_in_the_timer_topic(
    broker: DelayedBroker, time: FakeTime
) -> None:
    time.advance(250)
    broker.send(b"m", queue_id=5, TIMER_DELAY_MS="10000", TAGS="A")

    assert broker.bodies() == []
    [waiting] = broker.records(TIMER_TOPIC)
    assert waiting.properties == {
        "UNIQ_KEY": "m",
        "TIMER_DELAY_MS": "10000",
        "TAGS": "A",
        "TIMER_OUT_MS": str(START + 10_000),
        "REAL_TOPIC": "T",
        "REAL_QID": "5",
    }


async def test_it_is_delivered_when_its_slot_has_passed(
    broker: DelayedBroker, time: FakeTime
) -> None:
    time.advance(250)
    broker.send(b"m", queue_id=5, TIMER_DELAY_SEC="10")
    time.advance(10_749)
    assert broker.records(queue_id=5) == []
    time.advance(1)
    [record] = broker.records(queue_id=5)
    assert record.store_timestamp == START + 11_000
    assert record.properties == {
        "UNIQ_KEY": "m",
        "TIMER_DELAY_SEC": "10",
        "TIMER_OUT_MS": str(START + 10_000),
        "REAL_TOPIC": "T",
        "REAL_QID": "5",
        "TIMER_ENQUEUE_MS": str(START),
        "TIMER_DEQUEUE_MS": str(START + 11_000),
    }


async def test_a_time_that_is_a_whole_slot_is_met_exactly(
    broker: DelayedBroker, time: FakeTime
) -> None:
    broker.send(b"m", TIMER_DELIVER_MS=str(START + 5_000))
    time.advance(4_999)
    assert broker.bodies() == []
    time.advance(1)
    assert broker.bodies() == [b"m"]


async def test_the_precision_is_a_setting(tmp_path: Path, time: FakeTime) -> None:
    async with DelayedBroker(tmp_path, time, timer_precision_ms=150) as broker:
        broker.send(b"m", TIMER_DELIVER_MS=str(START + 5_001))
        time.advance(5_099)
        assert broker.bodies() == []
        time.advance(1)
        assert broker.bodies() == [b"m"]


async def test_the_first_of_several_properties_counts(
    broker: DelayedBroker, time: FakeTime
) -> None:
    broker.send(b"m", TIMER_DELIVER_MS="no number", TIMER_DELAY_MS="2000", TIMER_DELAY_SEC="1")
    time.advance(1_000)
    assert broker.bodies() == [b"m"]


@pytest.mark.parametrize("deliver", [START, START - 1, -5])
async def test_a_time_that_has_come_is_no_delay(broker: DelayedBroker, deliver: int) -> None:
    broker.send(b"m", TIMER_DELIVER_MS=str(deliver))
    assert broker.bodies() == [b"m"]


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": "tomorrow"},
        {"TIMER_DELAY_SEC": ""},
        {"TIMER_DELAY_MS": "1e3"},
        {"TIMER_DELAY_SEC": str(3 * 24 * 3600 + 1)},
        {"TIMER_DELIVER_MS": str(START), "TIMER_DEL_UNIQKEY": "T+m"},
    ],
)
async def test_an_illegal_time_is_refused(
    broker: DelayedBroker, properties: dict[str, Any]
) -> None:
    with pytest.raises(RemotingError) as refusal:
        broker.send(b"m", **properties)
    assert refusal.value.code == 13
    assert broker.bodies() == []


async def test_timed_messages_can_be_switched_off(tmp_path: Path, time: FakeTime) -> None:
    async with DelayedBroker(tmp_path, time, timer_wheel_enable=False) as broker:
        with pytest.raises(RemotingError, match="timerWheelEnable") as refusal:
            broker.send(b"m", TIMER_DELAY_SEC="1")
        assert refusal.value.code == 1


def fill(broker: DelayedBroker, time: FakeTime) -> None:
    for n in range(20):
        broker.send(b"more %d" % n, TIMER_DELAY_SEC="60")
        time.advance()


async def test_a_slot_that_is_full_refuses(tmp_path: Path, time: FakeTime) -> None:
    async with DelayedBroker(tmp_path, time, timer_congest_num_each_slot=5) as broker:
        for n in range(6):
            broker.send(b"%d" % n, TIMER_DELAY_SEC="60")
        time.advance()
        with pytest.raises(RemotingError, match="flow control") as refusal:
            fill(broker, time)
        assert refusal.value.code == 1
        broker.send(b"another time", TIMER_DELAY_SEC="50")


async def test_files_come_with_the_first_timed_message(
    broker: DelayedBroker, time: FakeTime
) -> None:
    broker.send(b"m", DELAY="1")
    time.advance()
    assert not (broker.root / "timerwheel").exists()
    broker.send(b"m", TIMER_DELAY_SEC="1")
    time.advance()
    assert (broker.root / "timerwheel").stat().st_size == SIZE
    assert (broker.root / "timerlog" / "00000000000000000000").exists()
    assert (broker.root / "config" / "timercheck").stat().st_size == 4096


async def test_an_idle_broker_sleeps(broker: DelayedBroker, time: FakeTime) -> None:
    broker.send(b"m", TIMER_DELAY_SEC="1")
    assert time.sleeping == 1
    time.advance(SECOND)
    assert broker.bodies() == [b"m"]
    assert time.sleeping == 0


async def test_slots_come_in_order_and_each_in_order_of_arrival(
    broker: DelayedBroker, time: FakeTime
) -> None:
    for n in range(200):
        broker.send(b"%d late" % n, TIMER_DELAY_SEC="20")
        broker.send(b"%d soon" % n, TIMER_DELAY_SEC="10")
    time.advance(10 * SECOND)
    assert broker.bodies() == [b"%d soon" % n for n in range(200)]
    time.advance(10 * SECOND)
    assert broker.bodies()[200:] == [b"%d late" % n for n in range(200)]


async def test_a_message_without_a_time_does_not_hold_up_the_others(
    broker: DelayedBroker, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    broker.send(b"lost", topic=TIMER_TOPIC, TIMER_OUT_MS="x")
    broker.send(b"m", TIMER_DELAY_SEC="1")
    time.advance(SECOND)
    assert broker.bodies() == [b"m"]
    assert "TIMER_OUT_MS='x'" in caplog.text


async def test_a_store_that_refuses_gets_it_again(broker: DelayedBroker, time: FakeTime) -> None:
    broker.send(b"m", TIMER_DELAY_SEC="1")
    time.advance()
    broker.store.refuse("the disk is full")
    time.advance(3 * SECOND)
    broker.store.accept()
    time.advance(SECOND)
    assert broker.bodies() == [b"m"]


# --- taking back ------------------------------------------------------------------------------


async def test_a_message_is_taken_back(broker: DelayedBroker, time: FakeTime) -> None:
    deliver = str(START + 10_000)
    for name in (b"a", b"b"):
        broker.send(name, TIMER_DELIVER_MS=deliver)
    broker.send(b"a", topic="Other", TIMER_DELIVER_MS=deliver)
    broker.send(b"-", TIMER_DELIVER_MS=deliver, TIMER_DEL_UNIQKEY="T+a")
    time.advance(10_000)
    assert broker.bodies() == [b"b"]
    assert broker.bodies("Other") == [b"a"]


async def test_only_one_of_the_same_slot_is_taken_back(
    broker: DelayedBroker, time: FakeTime
) -> None:
    broker.send(b"a", TIMER_DELIVER_MS=str(START + 10_000))
    broker.send(b"-", TIMER_DELIVER_MS=str(START + 9_000), TIMER_DEL_UNIQKEY="T+a")
    time.advance(10_000)
    assert broker.bodies() == [b"a"]


# --- rolling ----------------------------------------------------------------------------------


async def test_a_long_wait_is_stored_anew_in_between(tmp_path: Path, time: FakeTime) -> None:
    async with DelayedBroker(tmp_path, time, timer_roll_window_slot=3600) as broker:
        broker.send(b"m", TIMER_DELAY_SEC=str(3 * 3600 + 600))
        time.advance(3 * HOUR + 599 * SECOND)
        assert broker.bodies() == []
        waits = broker.records(TIMER_TOPIC)
        assert [int(r.properties.get("TIMER_ROLL_TIMES", "0")) for r in waits] == [0, 1, 2, 3]
        # After whole windows, and half of one when little more than one is left.
        assert [(r.store_timestamp - START) // MINUTE for r in waits] == [0, 60, 120, 150]
        time.advance(SECOND)
        [record] = broker.records()
        assert record.properties["TIMER_ROLL_TIMES"] == "3"
        assert record.properties["TIMER_OUT_MS"] == waits[0].properties["TIMER_OUT_MS"]


@pytest.mark.parametrize("recalled", ["T+m", "m"], ids=["as 5.3", "as 5.4"])
async def test_a_long_wait_is_taken_back_too(tmp_path: Path, time: FakeTime, recalled: str) -> None:
    async with DelayedBroker(tmp_path, time, timer_roll_window_slot=3600) as broker:
        deliver = str(START + 3 * HOUR)
        broker.send(b"m", TIMER_DELIVER_MS=deliver)
        time.advance(HOUR // 2)
        broker.send(b"-", TIMER_DELIVER_MS=deliver, TIMER_DEL_UNIQKEY=recalled)
        time.advance(4 * HOUR)
        assert broker.bodies() == []


@pytest.mark.parametrize(
    ("due", "stop"),
    [
        pytest.param(5_500, 3_620, id="the message waits in its own slot"),
        pytest.param(200_000, 2_000, id="both wait in earlier slots"),
    ],
)
async def test_a_recall_holds_when_a_long_wait_ends_while_the_broker_is_down(
    tmp_path: Path, time: FakeTime, due: int, stop: int
) -> None:
    settings = {"timer_roll_window_slot": 3600}
    async with DelayedBroker(tmp_path, time, **settings) as broker:
        deliver = str(START + due * SECOND)
        broker.send(b"m", TIMER_DELIVER_MS=deliver)
        broker.send(b"n", TIMER_DELIVER_MS=deliver)
        time.advance(1_850 * SECOND)
        broker.send(b"-", TIMER_DELIVER_MS=deliver, TIMER_DEL_UNIQKEY="T+m")
        time.advance((stop - 1_850) * SECOND)
    time.advance(3 * DAY)
    async with DelayedBroker(tmp_path, time, **settings) as broker:
        time.advance(SECOND)
        assert broker.bodies() == [b"n"]


# --- progress on the disk ---------------------------------------------------------------------


async def test_a_clean_stop_forgets_nothing(broker: DelayedBroker, time: FakeTime) -> None:
    for n in range(1, 7):
        broker.send(b"%d" % n, TIMER_DELAY_SEC=str(n))
    time.advance(3 * SECOND)
    await broker.stop()
    time.advance(2 * SECOND)
    async with DelayedBroker(broker.root, time) as again:
        time.advance()
        assert again.bodies() == [b"1", b"2", b"3", b"4", b"5"]
        time.advance(MINUTE)
        assert again.bodies() == [b"1", b"2", b"3", b"4", b"5", b"6"]


async def test_a_stop_within_a_slot_delivers_the_rest_of_it(
    broker: DelayedBroker, time: FakeTime
) -> None:
    bodies = [b"%d" % n for n in range(300)]
    for body in bodies:
        broker.send(body, TIMER_DELAY_SEC="1")
    while not broker.bodies():
        time.step()
    assert len(broker.bodies()) < 300
    await broker.stop()
    async with DelayedBroker(broker.root, time) as again:
        time.advance(MINUTE)
        assert again.bodies() == bodies


async def test_after_a_kill_only_slots_since_the_last_save_come_again(
    broker: DelayedBroker, time: FakeTime, tmp_path: Path
) -> None:
    for n in range(1, 5):
        broker.send(b"%d" % n, TIMER_DELAY_SEC=str(n))
    time.advance(SECOND)
    await broker.save()
    time.advance(SECOND)
    broker.send(b"5", TIMER_DELAY_SEC="3")
    time.advance()
    killed = shutil.copytree(broker.root, tmp_path / "killed")

    async with DelayedBroker(killed, time) as again:
        time.advance(MINUTE)
        assert again.bodies() == [b"1", b"2", b"2", b"3", b"4", b"5"]


async def test_a_wheel_that_is_lost_is_made_anew(
    broker: DelayedBroker, time: FakeTime, tmp_path: Path
) -> None:
    """A power cut: the log lost the newest units, which the wheel knows."""
    for n in range(100):  # more than one file of the timer log
        broker.send(b"%d" % n, TIMER_DELAY_SEC=str(10 + n % 3))
    time.advance()
    await broker.save()
    broker.send(b"last", TIMER_DELAY_SEC="10")
    time.advance()
    killed = shutil.copytree(broker.root, tmp_path / "killed")
    end = broker.delayed.timer.index.progress()[1] - 52
    file = sorted((killed / "timerlog").iterdir())[-1]
    with file.open("r+b") as stream:
        stream.seek(end - int(file.name))
        stream.write(bytes(52))

    async with DelayedBroker(killed, time) as again:
        time.advance(MINUTE)
        assert sorted(again.bodies()) == sorted([b"last", *(b"%d" % n for n in range(100))])


@pytest.mark.parametrize(
    ("at", "content"),
    [
        pytest.param(4, (52).to_bytes(8), id="the unit before it"),
        pytest.param(12, (5).to_bytes(4), id="its kind"),
        pytest.param(16, (1 << 50).to_bytes(8), id="when it entered"),
        pytest.param(24, (10**9).to_bytes(4), id="its slot"),
        pytest.param(28, bytes(8), id="another message"),
        pytest.param(36, (10**6).to_bytes(4), id="the size of its message"),
    ],
)
async def test_a_damaged_unit_that_was_not_flushed_keeps_no_message_from_its_time(
    broker: DelayedBroker, time: FakeTime, tmp_path: Path, at: int, content: bytes
) -> None:
    """The message is entered anew, and the ones behind it are."""
    for n in range(3):
        broker.send(b"%d" % n, TIMER_DELAY_SEC=str(10 + n))
    time.advance()
    await broker.save()
    broker.send(b"m", TIMER_DELAY_SEC="20")
    broker.send(b"n", TIMER_DELAY_SEC="20")
    time.advance()
    end = broker.delayed.timer.index.progress()[1]
    killed = shutil.copytree(broker.root, tmp_path / "killed")
    with sorted((killed / "timerlog").iterdir())[-1].open("r+b") as stream:
        stream.seek(end - 2 * 52 + at)
        stream.write(content)

    async with DelayedBroker(killed, time) as again:
        time.advance(MINUTE)
        assert again.bodies() == [b"0", b"1", b"2", b"m", b"n"]


async def test_without_index_files_the_queue_is_read_from_its_beginning(
    broker: DelayedBroker, time: FakeTime, tmp_path: Path
) -> None:
    broker.send(b"m", TIMER_DELAY_SEC="10")
    killed = shutil.copytree(broker.root, tmp_path / "killed")  # before it was entered
    assert not (killed / "timerwheel").exists()
    async with DelayedBroker(killed, time) as again:
        time.advance(10 * SECOND)
        assert again.bodies() == [b"m"]


async def test_what_was_due_during_a_stop_comes_at_once(
    broker: DelayedBroker, time: FakeTime
) -> None:
    broker.send(b"m", TIMER_DELAY_SEC="10")
    broker.send(b"n", TIMER_DELAY_SEC="200")
    await broker.stop()
    time.advance(3 * DAY)
    async with DelayedBroker(broker.root, time) as again:
        time.advance()
        assert again.bodies() == [b"m", b"n"]


async def test_timer_log_files_expire_with_the_wheel(broker: DelayedBroker, time: FakeTime) -> None:
    def files() -> list[str]:
        return sorted(path.name for path in (broker.root / "timerlog").iterdir())

    for n in range(300):
        broker.send(b"%d" % n, TIMER_DELAY_SEC="1")
    time.advance(SECOND)
    await broker.save()
    first = files()
    assert len(first) == 4
    time.advance(8 * DAY)
    broker.send(b"last", TIMER_DELAY_SEC="1")
    time.advance(SECOND)
    await broker.save()
    assert files() == first[-1:]
    await broker.stop()
    async with DelayedBroker(broker.root, time) as again:
        again.send(b"more", TIMER_DELAY_SEC="1")
        time.advance(SECOND)
        assert len(again.bodies()) == 302


async def test_figures_for_the_operator(broker: DelayedBroker, time: FakeTime) -> None:
    broker.send(b"level", DELAY="1")
    for delay in (5, 5, 9):
        broker.send(b"m", TIMER_DELAY_SEC=str(delay))
    time.advance(SECOND)
    assert broker.delayed.figures() == {
        "scheduleMessageOffset_1": "1,1",
        "timerReadBehind": 0,
        "timerOffsetBehind": 0,
        "timerCongestNum": 3,
    }
    await broker.stop()
    time.advance(7 * SECOND)
    async with DelayedBroker(broker.root, time) as again:
        assert again.delayed.figures()["timerCongestNum"] == 3
        assert again.delayed.figures()["timerReadBehind"] == 3
        time.advance()
        assert again.delayed.figures()["timerCongestNum"] == 1


async def test_the_checkpoint_is_the_official_one(broker: DelayedBroker, time: FakeTime) -> None:
    broker.send(b"m", TIMER_DELAY_SEC="10")
    broker.send(b"n", TIMER_DELAY_SEC="20")
    time.advance(10 * SECOND)
    await broker.stop()
    content = (broker.root / "config" / "timercheck").read_bytes()
    fields = struct.unpack_from(">7q", content)
    # Read time, flushed position of the timer log, queue offset twice, data version.
    assert fields == (START + 10_000, 104, 2, 2, 0, time.now, 1)


async def test_progress_written_before_the_queue_is_read_again_doubles_nothing(
    tmp_path: Path, time: FakeTime
) -> None:
    """After a kill the queue is read again; what it entered before is known until that is done."""
    async with DelayedBroker(tmp_path / "a", time) as broker:
        broker.send(b"m", TIMER_DELAY_SEC="10")
        time.advance(1_000)
        copy = shutil.copytree(tmp_path / "a", tmp_path / "b")  # entered, but no progress written
    for _ in range(2):
        async with DelayedBroker(copy, time) as broker:
            await broker.save()
    async with DelayedBroker(copy, time) as broker:
        time.advance(20_000)
        assert broker.bodies() == [b"m"]


async def test_figures_of_a_timer(broker: DelayedBroker, time: FakeTime) -> None:
    statistics = broker.statistics
    for seconds in ("10", "10", "20"):
        broker.send(b"m", TIMER_DELAY_SEC=seconds)
    time.advance(0)
    assert (statistics.timer_enqueued, statistics.timer_dequeued) == (3, 0)
    assert broker.delayed.timer.figures()["timerCongestNum"] == 3
    statistics.tick()
    time.advance(11_000)
    statistics.tick()

    assert (statistics.timer_enqueued, statistics.timer_dequeued) == (3, 2)
    assert statistics.timer_dequeue_rate.rate(10) == pytest.approx(2 / 11)
    assert statistics.timer_enqueue_rate.rate(10) == 0
    assert broker.delayed.timer.figures() == {
        "timerReadBehind": 0,
        "timerOffsetBehind": 0,
        "timerCongestNum": 1,
    }


@pytest.mark.parametrize("back", [1, 999, HOUR, 3 * DAY])
@pytest.mark.parametrize("stopped", [False, True])
async def test_a_clock_set_back_delays_no_new_message(
    broker: DelayedBroker, time: FakeTime, back: int, stopped: bool
) -> None:
    broker.send(b"delivered", TIMER_DELAY_SEC="10")
    broker.send(b"waiting", TIMER_DELAY_SEC="60")
    time.advance(30 * SECOND)
    if stopped:
        await broker.stop()
        broker = await DelayedBroker(broker.root, time).start()
    time.set_back(back)
    asked = time.now + 5 * SECOND
    broker.send(b"new", TIMER_DELAY_SEC="5")
    broker.send(b"first", TIMER_DELAY_SEC="1")
    time.advance()
    await broker.save()

    time.advance(6 * SECOND)
    assert broker.bodies() == [b"delivered", b"first", b"new"]
    assert asked <= broker.records()[-1].store_timestamp <= asked + SECOND
    time.advance(back + 60 * SECOND)
    assert broker.bodies() == [b"delivered", b"first", b"new", b"waiting"]
    await broker.stop()


async def test_what_is_due_waits_for_the_time_that_was_set_back_to_be_written(
    broker: DelayedBroker, time: FakeTime
) -> None:
    broker.send(b"delivered", TIMER_DELAY_SEC="30")
    broker.send(b"waiting", TIMER_DELAY_SEC="60")
    time.advance(40 * SECOND)
    time.set_back(30 * SECOND)
    broker.send(b"new", TIMER_DELAY_SEC="5")
    time.advance(MINUTE)
    assert broker.bodies() == [b"delivered"]
    await broker.save()
    time.advance()
    assert broker.bodies() == [b"delivered", b"new", b"waiting"]


async def test_a_clock_that_was_set_back_to_the_progress_on_the_disk(
    broker: DelayedBroker, time: FakeTime
) -> None:
    """There is nothing to write, and nothing to wait for."""
    broker.send(b"first", TIMER_DELAY_SEC="10")
    broker.send(b"second", TIMER_DELAY_SEC="20")
    time.advance(11 * SECOND)
    await broker.save()
    time.advance(10 * SECOND)
    time.set_back(11 * SECOND)
    broker.send(b"new", TIMER_DELAY_SEC="2")
    time.advance()
    await broker.save()
    time.advance(3 * SECOND)
    assert broker.bodies() == [b"first", b"second", b"new"]


async def test_a_kill_after_the_clock_was_set_back_loses_nothing(
    broker: DelayedBroker, time: FakeTime, tmp_path: Path
) -> None:
    broker.send(b"delivered", TIMER_DELAY_SEC="10")
    time.advance(MINUTE)
    await broker.save()
    time.set_back(MINUTE)
    for body in (b"new", b"another"):
        broker.send(body, TIMER_DELAY_SEC="10")
        time.advance()
    before = shutil.copytree(broker.root, tmp_path / "before")
    await broker.save()
    time.advance()
    behind = shutil.copytree(broker.root, tmp_path / "behind")

    for killed in (before, behind):
        async with DelayedBroker(killed, time) as again:
            time.advance()
            await again.save()
            time.advance(10 * MINUTE)
            assert again.bodies() == [b"delivered", b"new", b"another"]
        time.set_back(10 * MINUTE)


@pytest.mark.parametrize("times", [1, 2])
async def test_what_the_official_broker_entered_twice_is_delivered_once(
    broker: DelayedBroker, time: FakeTime, times: int
) -> None:
    """After a kill it reads the queue from its checkpoint on, and enters what has its unit."""
    sent = [broker.send(body, TIMER_DELAY_SEC="10") for body in (b"m", b"another")]
    time.advance()
    await broker.stop()
    index = TimerIndex(broker.config)
    index.open(time.now, broker.store.commit_log)
    slot = index.next_slot()
    assert slot is not None
    for _ in range(times):
        for one in sent:
            size = one.end_offset - one.physical_offset
            index.add(slot, START, one.physical_offset, size, "T", delete=False)
    await asyncio.to_thread(index.checkpoint, index.progress(), time.now, [])
    index.close()

    async with DelayedBroker(broker.root, time) as again:
        time.advance(MINUTE)
        assert again.bodies() == [b"m", b"another"]
        assert again.delayed.timer.figures()["timerCongestNum"] == 0


async def test_an_older_message_that_enters_a_slot_late_is_no_repetition(
    broker: DelayedBroker, time: FakeTime
) -> None:
    older = broker.send(b"older", TIMER_DELAY_SEC="10")
    broker.send(b"newer", TIMER_DELAY_SEC="20")
    time.advance()
    await broker.stop()
    index = TimerIndex(broker.config)
    index.open(time.now, broker.store.commit_log)
    slot = index.next_slot()
    assert slot is not None
    size = older.end_offset - older.physical_offset
    late = slot + 10 * SECOND
    index.add(late, late, older.physical_offset, size, "T", delete=False)
    await asyncio.to_thread(index.checkpoint, index.progress(), time.now, [])
    index.close()

    async with DelayedBroker(broker.root, time) as again:
        time.advance(15 * SECOND)
        assert again.bodies() == [b"older"]
        time.advance(MINUTE)
        assert again.bodies() == [b"older", b"newer", b"older"]


# --- how many wait ----------------------------------------------------------------------------


def waiting(broker: DelayedBroker, topic: str = "T") -> int:
    return broker.statistics.timers.waiting([topic]).get(topic, 0)


async def test_a_recall_counts_at_once(broker: DelayedBroker, time: FakeTime) -> None:
    deliver = str(START + 10_000)
    for body in (b"a", b"b", b"c"):
        broker.send(body, TIMER_DELIVER_MS=deliver)
    broker.send(b"other", topic="Other", TIMER_DELIVER_MS=deliver)
    time.advance(0)
    assert waiting(broker) == 3
    for key in ("a", "b"):
        broker.send(b"-", TIMER_DELIVER_MS=deliver, TIMER_DEL_UNIQKEY=f"T+{key}")
    time.advance(0)
    assert (waiting(broker), waiting(broker, "Other")) == (1, 1)
    timers = broker.statistics.timers
    assert timers.enqueued == {"T": 3, "Other": 1}
    for (topic,), delays in timers.delays.points():
        assert isinstance(delays, Distribution)
        assert delays.observations == timers.enqueued[topic]
    time.advance(10_000)
    assert broker.bodies() == [b"c"]
    assert (waiting(broker), waiting(broker, "Other")) == (0, 0)
    assert timers.dequeued == {"T": 1, "Other": 1}
    # Nothing is left over that a later message would count less for.
    broker.send(b"d", TIMER_DELAY_SEC="10")
    time.advance(0)
    assert waiting(broker) == 1


async def test_large_recalls_are_read_in_turns(tmp_path: Path, time: FakeTime) -> None:
    """Whatever they recall: each turn reads a megabyte, and delivers after all of them."""
    async with DelayedBroker(
        tmp_path / "store", time, mapped_file_size_commit_log=1 << 23
    ) as broker:
        deliver = str(START + 10_000)
        for key in ("recalled", "delivered"):
            broker.send(key.encode(), TIMER_DELIVER_MS=deliver)
        for number in range(12):
            broker.send(
                b"x" * 500_000,
                UNIQ_KEY=f"r{number}",
                TIMER_DELIVER_MS=deliver,
                TIMER_DEL_UNIQKEY="T+recalled",
            )
        time.advance(0)
        turns = time.woken
        time.advance(10_000)
        assert time.woken - turns > 4
        assert broker.bodies() == [b"delivered"]


async def test_recalls_that_find_nothing_count_until_their_time(
    broker: DelayedBroker, time: FakeTime
) -> None:
    deliver = str(START + 10_000)
    for seconds in ("10", "20", "20"):
        broker.send(b"m" + seconds.encode(), TIMER_DELAY_SEC=seconds)
    for key in ("m10", "m10", "nothing"):
        broker.send(b"-", TIMER_DELIVER_MS=deliver, TIMER_DEL_UNIQKEY=f"T+{key}")
    time.advance(0)
    assert waiting(broker) == 0
    time.advance(10_000)
    assert broker.bodies() == []
    assert waiting(broker) == 2
    time.advance(10_000)
    assert waiting(broker) == 0


@pytest.mark.parametrize("how", ["stopped", "killed", "killed, progress saved"])
async def test_what_waits_is_known_after_a_restart(
    tmp_path: Path, time: FakeTime, how: str
) -> None:
    deliver = str(START + 10_000)
    async with DelayedBroker(tmp_path / "a", time) as broker:
        for body in (b"a", b"b", b"c"):
            broker.send(body, TIMER_DELIVER_MS=deliver)
        broker.send(b"soon", TIMER_DELAY_SEC="1")
        broker.send(b"-", TIMER_DELIVER_MS=deliver, TIMER_DEL_UNIQKEY="T+a")
        time.advance(2_000)
        assert waiting(broker) == 2
        if how == "killed, progress saved":
            await broker.save()
        if how != "stopped":
            shutil.copytree(tmp_path / "a", tmp_path / "b")
    async with DelayedBroker(tmp_path / ("a" if how == "stopped" else "b"), time) as broker:
        time.advance(0)
        assert waiting(broker) == 2
        time.advance(10_000)
        assert waiting(broker) == 0


async def test_a_message_that_is_stored_again_counts_once(tmp_path: Path, time: FakeTime) -> None:
    async with DelayedBroker(tmp_path, time, timer_roll_window_slot=60) as broker:
        deliver = str(START + 200_000)
        for body in (b"m", b"n"):
            broker.send(body, TIMER_DELIVER_MS=deliver)
        broker.send(b"-", TIMER_DELIVER_MS=deliver, TIMER_DEL_UNIQKEY="T+m")
        for _ in range(19):
            time.advance(10_000)
            assert waiting(broker) == 1
        assert broker.statistics.timers.enqueued == {"T": 2}
        time.advance(11_000)
        assert (broker.bodies(), waiting(broker)) == ([b"n"], 0)
