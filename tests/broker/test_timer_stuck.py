"""Timed messages that cannot be delivered as they are: they do not hold up the others, and what
was accepted is not lost."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import pytest

from pocketmq.message.limits import TIMER_TOPIC
from tests.broker.delayed_broker import DelayedBroker, broker, time, unwritable
from tests.fake_time import START, FakeTime
from tests.fast_files import FastFiles

__all__ = ["broker", "time", "unwritable"]

SECOND = 1_000
DAY = 86_400_000


async def test_a_queue_without_a_file_does_not_hold_up_the_others(
    broker: DelayedBroker, time: FakeTime, caplog: pytest.LogCaptureFixture, unwritable: list[str]
) -> None:
    broker.send(b"stuck", topic="Stuck", queue_id=3, TIMER_DELAY_SEC="1", TAGS="A")
    broker.send(b"same slot", TIMER_DELAY_SEC="1")
    broker.send(b"behind", TIMER_DELAY_SEC="2")
    time.advance(2 * SECOND)
    assert broker.bodies() == [b"same slot", b"behind"]
    assert "topic Stuck: a timed message was not stored" in caplog.text

    unwritable.clear()
    time.advance(10 * SECOND)
    [record] = broker.records("Stuck", 3)
    assert (bytes(record.body), record.properties["TAGS"]) == (b"stuck", "A")
    time.advance(DAY)
    assert broker.bodies("Stuck", 3) == [b"stuck"]


async def test_what_stays_unwritable_is_tried_ever_less_often(
    broker: DelayedBroker, time: FakeTime, unwritable: list[str]
) -> None:
    broker.send(b"stuck", topic="Stuck", TIMER_DELAY_SEC="1")
    time.advance(DAY)
    waited = [(r.store_timestamp - START) // SECOND for r in broker.records(TIMER_TOPIC)]
    waits = [after - before for before, after in itertools.pairwise(waited[1:])]
    assert len(waits) > 20
    assert all(0 <= wait - 2**n <= 1 for n, wait in enumerate(waits[:12]))
    assert all(4096 <= wait <= 4097 for wait in waits[12:])
    unwritable.clear()
    time.advance(4097 * SECOND)
    assert broker.bodies("Stuck") == [b"stuck"]


async def test_one_that_waits_again_survives_a_restart(
    broker: DelayedBroker, time: FakeTime, unwritable: list[str]
) -> None:
    broker.send(b"stuck", topic="Stuck", TIMER_DELAY_SEC="1")
    time.advance(SECOND)
    assert broker.bodies(TIMER_TOPIC) == [b"stuck"] * 2
    await broker.stop()
    unwritable.clear()
    async with DelayedBroker(broker.root, time) as again:
        time.advance(2 * SECOND)
        assert again.bodies("Stuck") == [b"stuck"]


async def test_overdue_ones_do_not_hold_up_the_queue_either(
    broker: DelayedBroker, time: FakeTime, unwritable: list[str]
) -> None:
    broker.send(b"stuck", topic="Stuck", TIMER_DELAY_SEC="1")
    broker.send(b"m", TIMER_DELAY_SEC="1")
    # Neither is entered before both are due.
    time.now += 5 * SECOND
    time.advance()
    assert broker.bodies() == [b"m"]
    unwritable.clear()
    time.advance(3 * SECOND)
    assert broker.bodies("Stuck") == [b"stuck"]


async def test_properties_without_room_for_more_are_delivered_as_they_are(
    tmp_path: Path, time: FakeTime
) -> None:
    async with DelayedBroker(tmp_path, time, timer_roll_window_slot=60) as broker:
        # With REAL_TOPIC, REAL_QID and TIMER_OUT_MS that is a few bytes short of the limit.
        full = "x" * 32_660
        for delay in ("10", "600"):  # the second one is stored anew in between
            assert broker.send(delay.encode(), TIMER_DELAY_SEC=delay, X=full).ok
        time.advance(600 * SECOND)
        assert broker.bodies() == [b"10", b"600"]
        assert all(record.properties["X"] == full for record in broker.records())


@pytest.mark.parametrize("rolled", ["9" * 5000, "-1", "x"])
async def test_roll_times_that_are_no_number_hold_up_nothing(
    tmp_path: Path, time: FakeTime, rolled: str
) -> None:
    async with DelayedBroker(tmp_path, time, timer_roll_window_slot=60) as broker:
        broker.send(b"odd", TIMER_DELAY_SEC="600", TIMER_ROLL_TIMES=rolled)
        time.advance(65 * SECOND)  # it should have been stored anew
        assert len(broker.records(TIMER_TOPIC)) == 2
        broker.send(b"m", TIMER_DELAY_SEC="1")
        time.advance(2 * SECOND)
        assert broker.bodies() == [b"m"]


@pytest.mark.parametrize("queue_id", ["9" * 5000, "9" * 20, "9999999999", "2147483648"])
async def test_a_queue_id_that_no_record_holds_holds_up_nothing(
    broker: DelayedBroker, time: FakeTime, caplog: pytest.LogCaptureFixture, queue_id: str
) -> None:
    # A client may send into the timer topic itself.
    slot = str(START + 5 * SECOND)
    broker.send(b"odd", topic=TIMER_TOPIC, TIMER_OUT_MS=slot, REAL_TOPIC="T", REAL_QID=queue_id)
    broker.send(b"m", TIMER_DELAY_SEC="10")
    time.advance(20 * SECOND)
    assert broker.bodies() == [b"m"]
    assert "cannot be delivered to topic T" in caplog.text


async def test_nothing_is_lost_when_the_broker_was_down_for_weeks(
    broker: DelayedBroker, time: FakeTime
) -> None:
    broker.send(b"past", TIMER_DELAY_SEC="1")
    time.advance(2 * SECOND)
    broker.send(b"first", TIMER_DELAY_SEC="10")
    broker.send(b"second", TIMER_DELAY_SEC=str(2 * 24 * 3600 - 10))
    time.advance()
    await broker.stop()
    time.now += 40 * DAY
    async with DelayedBroker(broker.root, time) as again:
        # Of the same place on the wheel as the first, 42 days later.
        again.send(b"new", TIMER_DELIVER_MS=str(START + 42 * DAY + 12 * SECOND))
        time.advance()
        assert again.bodies() == [b"past", b"first", b"second"]
        time.advance(3 * DAY)
        assert again.bodies() == [b"past", b"first", b"second", b"new"]


async def test_a_timer_log_file_that_can_not_be_removed_leaves_no_gap(
    broker: DelayedBroker, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(300):
        broker.send(b"%d" % n, TIMER_DELAY_SEC="1")
    time.advance(SECOND)
    await broker.save()
    first, *_ = files = sorted((broker.root / "timerlog").iterdir())
    assert len(files) == 4

    def remove(files: FastFiles, path: Path) -> None:
        if path == first:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        original(files, path)

    original = FastFiles.remove
    monkeypatch.setattr(FastFiles, "remove", remove)
    monkeypatch.setattr("pocketmq.store.files.Files.remove", remove)
    time.advance(8 * DAY)
    for text in (b"x", b"y"):
        broker.send(text, TIMER_DELAY_SEC="1")
        time.advance(SECOND)
        await broker.save()
    assert sorted((broker.root / "timerlog").iterdir()) == files
    monkeypatch.undo()
    broker.send(b"z", TIMER_DELAY_SEC="1")
    time.advance(SECOND)
    await broker.save()
    assert sorted((broker.root / "timerlog").iterdir()) == files[-1:]
