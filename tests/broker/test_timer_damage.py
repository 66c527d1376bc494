"""Timed messages whose units in the timer log are damaged: all of them are delivered."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.delayed_broker import DelayedBroker, time
from tests.fake_time import FakeTime

__all__ = ["time"]

UNIT = 52
SECOND = 1_000
FIELDS = {
    "size": (0, 4),
    "previous": (4, 8),
    "magic": (12, 4),
    "entered": (16, 8),
    "delay": (24, 4),
    "physical": (28, 8),
    "length": (36, 4),
    "all": (0, UNIT),
}


def damage(root: Path, number: int, field: str, junk: bytes) -> None:
    """Damage a field of one unit."""
    [path] = (root / "timerlog").iterdir()
    at, size = FIELDS[field]
    with path.open("r+b") as file:
        file.seek(number * UNIT + at)
        file.write(junk * size)


@pytest.mark.parametrize("junk", [b"\0", b"\xff"])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("number", [2, 5])
async def test_a_damaged_unit(
    tmp_path: Path, time: FakeTime, number: int, field: str, junk: bytes
) -> None:
    sent = [b"%d" % n for n in range(6)]
    async with DelayedBroker(tmp_path, time) as broker:
        for n, body in enumerate(sent):
            broker.send(body, TIMER_DELAY_SEC="10" if n % 2 == 0 else "20")
            time.advance(0)
        broker.send(b"to be recalled", TIMER_DELAY_SEC="10")
        broker.send(b"recall", TIMER_DELAY_SEC="10", TIMER_DEL_UNIQKEY="T+to be recalled")
        time.advance(0)
    damage(tmp_path, number, field, junk)

    async with DelayedBroker(tmp_path, time) as broker:
        time.advance(10 * SECOND)
        assert set(broker.bodies()) <= set(sent[::2])
        time.advance(20 * SECOND)
        assert sorted(broker.bodies()) == sent


async def test_a_damaged_unit_of_a_message_that_waits_longer_than_the_window(
    tmp_path: Path, time: FakeTime
) -> None:
    async with DelayedBroker(tmp_path, time, timer_roll_window_slot=60) as broker:
        broker.send(b"m", TIMER_DELAY_SEC="200")
        time.advance(0)
    damage(tmp_path, 0, "all", b"\0")
    async with DelayedBroker(tmp_path, time, timer_roll_window_slot=60) as broker:
        time.advance(199 * SECOND)
        assert broker.bodies() == []
        time.advance(2 * SECOND)
        assert broker.bodies() == [b"m"]
