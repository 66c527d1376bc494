"""Timed messages that are due while the broker is away: what was taken back in time stays away."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.broker.delayed_broker import DelayedBroker, broker, time
from tests.fake_time import START, FakeTime

__all__ = ["broker", "time"]

SECOND, HOUR = 1_000, 3_600_000


async def test_what_was_taken_back_in_a_life_that_was_killed(
    broker: DelayedBroker, time: FakeTime, tmp_path: Path
) -> None:
    """The queue is read again when both are long due, and the message comes first there."""
    killed = tmp_path / "killed"
    deliver = str(START + 60 * SECOND)
    broker.send(b"m", TIMER_DELIVER_MS=deliver)
    for _ in range(200):  # several turns' worth
        broker.send(b"n", TIMER_DELIVER_MS=deliver)
    time.advance(30 * SECOND)
    before = shutil.copytree(broker.root, tmp_path / "before")
    broker.send(b"-", TIMER_DELIVER_MS=deliver, TIMER_DEL_UNIQKEY="T+m")
    shutil.copytree(broker.root, killed)
    # An index of nothing: as if the machine had stopped before any of it was on the disk.
    for name in ("timerwheel", "config/timercheck"):
        (killed / name).unlink()
    shutil.rmtree(killed / "timerlog")

    time.advance(HOUR)
    async with DelayedBroker(killed, time) as again:
        time.advance()
        assert again.bodies() == [b"n"] * 200
    async with DelayedBroker(before, time) as again:
        time.advance()
        assert again.bodies() == [b"m"] + [b"n"] * 200


@pytest.mark.parametrize("later", [0, HOUR // 2])
async def test_what_was_taken_back_while_it_waited_for_long(
    tmp_path: Path, time: FakeTime, later: int
) -> None:
    """Both are to be stored anew in between, perhaps not at the same time."""
    deliver = str(START + 3 * HOUR)
    settings = {"timer_roll_window_slot": 3600}
    async with DelayedBroker(tmp_path, time, **settings) as broker:
        broker.send(b"m", TIMER_DELIVER_MS=deliver)
        time.advance(later)
        broker.send(b"-", TIMER_DELIVER_MS=deliver, TIMER_DEL_UNIQKEY="T+m")
        broker.send(b"n", TIMER_DELIVER_MS=deliver)
        time.advance(SECOND)
    time.advance(5 * HOUR)
    async with DelayedBroker(tmp_path, time, **settings) as broker:
        time.advance(SECOND)
        assert broker.bodies() == [b"n"]


async def test_what_is_due_weeks_before_a_start_after_an_early_kill(
    broker: DelayedBroker, time: FakeTime, tmp_path: Path
) -> None:
    """Its unit is in the timer log, but the process ended before it noted how far it had come."""
    broker.send(b"m", TIMER_DELIVER_MS=str(START + 60 * SECOND))
    time.advance(10)
    killed = shutil.copytree(broker.root, tmp_path / "killed")
    time.advance(30 * 24 * HOUR)
    async with DelayedBroker(killed, time) as again:
        time.advance(SECOND)
        assert again.bodies() == [b"m"]


async def test_a_stop_before_the_queue_is_read_again_after_a_kill(
    broker: DelayedBroker, time: FakeTime, tmp_path: Path
) -> None:
    """The next start cannot tell by the clock, which was set back, that the units are right."""
    broker.send(b"first", TIMER_DELAY_SEC="1")
    time.advance(2 * SECOND)
    await broker.save()
    broker.send(b"second", TIMER_DELAY_SEC="10")
    time.advance(0)
    killed = tmp_path / "killed"
    shutil.copytree(broker.root, killed)
    async with DelayedBroker(killed, time):
        time.now -= 100 * SECOND
    async with DelayedBroker(killed, time) as again:
        time.advance(200 * SECOND)
        assert again.bodies() == [b"first", b"second"]
