"""What a power cut may leave of the files of timed messages: a broker starts and delivers all."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.errors import StoreCorrupt
from pocketmq.store.snapshot.store_snapshot import write_snapshot
from tests.broker.delayed_broker import DelayedBroker
from tests.durability.base_stores import quick_disk
from tests.durability.damage import Image
from tests.fake_time import START, FakeTime

MINUTE, DAY = 60_000, 24 * 3_600_000
#: 18 units to a file of the timer log.
SMALL = {"mapped_file_size_timer_log": 1024}
UNIT = 52


@pytest.fixture(autouse=True)
def _quick_disk() -> Iterator[None]:
    with quick_disk():
        yield


async def killed(root: Path, time: FakeTime, *, saved: int, unsaved: int) -> Path:
    """Leave what a killed broker leaves, with messages that its progress knows and others."""
    async with DelayedBroker(root, time, **SMALL) as broker:
        for n in range(saved + unsaved):
            if n == saved:
                time.advance(1)
                await broker.save()
            # Each slot has some of either kind.
            broker.send(b"%d" % n, TIMER_DELIVER_MS=str(START + MINUTE + n % 3 * 1000))
        time.advance(1)
        assert broker.bodies() == []
        left = root.with_name("left")
        Image.read(root).write(left)
    return left


async def delivered(root: Path, time: FakeTime) -> list[int]:
    async with DelayedBroker(root, time, **SMALL) as broker:
        time.advance(2 * MINUTE)
        return sorted(int(body) for body in broker.bodies())


def patch(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def blank(path: Path) -> None:
    """Let a file hold zeros only."""
    size = path.stat().st_size
    os.truncate(path, 0)
    os.truncate(path, size)


def log_file(root: Path, number: int) -> Path:
    return root / "timerlog" / f"{number * 1024:020d}"


CUTS: dict[str, Callable[[Path], Any]] = {
    "no wheel": lambda root: (root / "timerwheel").unlink(),
    "empty wheel": lambda root: (root / "timerwheel").write_bytes(b""),
    "names of the timer log in between": lambda root: log_file(root, 2).unlink(),
    "sizes of the timer log": lambda root: log_file(root, 2).write_bytes(b""),
    "half a unit": lambda root: patch(log_file(root, 1), 3 * UNIT + 24, bytes(28)),
    "the end of a unit": lambda root: patch(log_file(root, 1), 3 * UNIT + 36, bytes(16)),
    "the wheel was not written": lambda root: blank(root / "timerwheel"),
}


@pytest.mark.parametrize("cut", CUTS)
async def test_what_was_not_flushed_may_be_lost(tmp_path: Path, cut: str) -> None:
    time = FakeTime()
    saved = 0 if cut == "the wheel was not written" else 10
    root = await killed(tmp_path / "store", time, saved=saved, unsaved=60 - saved)
    CUTS[cut](root)
    assert await delivered(root, time) == list(range(60))


async def test_the_name_of_the_first_file_of_the_timer_log_may_be_lost(tmp_path: Path) -> None:
    time = FakeTime()
    root = await killed(tmp_path / "store", time, saved=0, unsaved=60)
    log_file(root, 0).unlink()
    assert await delivered(root, time) == list(range(60))


async def test_a_file_of_the_timer_log_that_was_flushed_is_not_given_up(tmp_path: Path) -> None:
    time = FakeTime()
    root = await killed(tmp_path / "store", time, saved=40, unsaved=20)
    log_file(root, 1).unlink()
    with pytest.raises(StoreCorrupt, match="pocketmq store repair"):
        await delivered(root, time)
    assert log_file(root, 2).exists()


async def test_a_second_cut_while_the_wheel_is_made_anew(tmp_path: Path) -> None:
    """Any part of the new wheel may be lost as long as the progress was not written."""
    time = FakeTime()
    root = await killed(tmp_path / "store", time, saved=40, unsaved=20)
    (root / "timerwheel").unlink()
    async with DelayedBroker(root, time, **SMALL):
        Image.read(root).write(tmp_path / "again")
    again = tmp_path / "again"
    blank(again / "timerwheel")
    assert await delivered(again, time) == list(range(60))


async def test_a_second_cut_when_older_units_of_a_slot_have_expired(tmp_path: Path) -> None:
    """The oldest unit that is left leads to one in a file that was removed."""
    time = FakeTime()
    root = tmp_path / "store"
    async with DelayedBroker(root, time, **SMALL) as broker:
        for n in range(20):  # more than a file has room for
            broker.send(b"%d" % n, TIMER_DELIVER_MS=str(START + MINUTE))
        time.advance(8 * DAY)
        broker.send(b"20", TIMER_DELAY_SEC="1")
        time.advance(MINUTE)
        for n in range(21, 30):
            broker.send(b"%d" % n, TIMER_DELIVER_MS=str(time.now + MINUTE))
        time.advance(1)
        await broker.save()
        assert not log_file(root, 0).exists()
        Image.read(root).write(tmp_path / "left")
    left = tmp_path / "left"
    (left / "timerwheel").unlink()
    async with DelayedBroker(left, time, **SMALL):
        Image.read(left).write(tmp_path / "again")
    again = tmp_path / "again"
    blank(again / "timerwheel")
    assert await delivered(again, time) == list(range(30))


async def test_progress_that_another_broker_wrote_is_no_damage(tmp_path: Path) -> None:
    """The official one counts on when it writes the progress, and leaves our seal as it is."""
    time = FakeTime()
    root = tmp_path / "store"
    async with DelayedBroker(root, time, **SMALL) as broker:
        broker.send(b"1", TIMER_DELIVER_MS=str(START + MINUTE))
        time.advance(1)
    path = root / "config" / "timercheck"
    *fields, counter = struct.unpack_from(">7q", path.read_bytes())
    fields[0] += 5_000
    patch(path, 0, struct.pack(">7q", *fields, counter + 1))
    assert await delivered(root, time) == [1]


async def test_a_snapshot_that_began_before_the_first_timed_message(tmp_path: Path) -> None:
    """Its progress is copied first, and then was not there."""
    time = FakeTime()
    root = await killed(tmp_path / "store", time, saved=0, unsaved=5)
    (root / "config" / "timercheck").unlink()
    write_snapshot(DelayedBroker(root, time, **SMALL).config, tmp_path / "snapshot")
    assert await delivered(tmp_path / "snapshot", time) == list(range(5))
