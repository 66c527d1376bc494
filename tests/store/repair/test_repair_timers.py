"""Damage to the files of timed messages: it is found, and a repair builds them from the log."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.limits import TIMER_TOPIC
from pocketmq.store.check.store_check import check_store
from pocketmq.store.errors import StoreError
from pocketmq.store.repair.store_repair import repair_store
from pocketmq.store.timer.timer_wheel import TimerWheel
from tests.broker.delayed_broker import DelayedBroker
from tests.durability.base_stores import quick_disk
from tests.durability.damage import Image
from tests.fake_time import START, FakeTime
from tests.fast_files import FastFiles

HOUR = 3_600_000
DUE = {b"soon": START + 60_000, b"late": START + 2 * HOUR, b"later": START + 2 * HOUR}
"""What waits, and until when."""
ROLLED = {"timer_roll_window_slot": 3_000}


@pytest.fixture(autouse=True)
def _quick_disk() -> Iterator[None]:
    with quick_disk():
        yield


def copied(root: Path, target: Path) -> Path:
    """Copy a store, but not the holes of its wheel."""
    Image.read(root).write(target)
    return target


async def made(root: Path, time: FakeTime, *, killed: bool) -> Path:
    """Leave a store with messages that wait, and some that were delivered, rolled or recalled."""
    left = root.with_name("left")
    async with DelayedBroker(root, time, **ROLLED) as broker:
        broker.send(b"done", TIMER_DELAY_MS="1000")
        broker.send(b"rolled", TIMER_DELAY_MS=str(2 * HOUR - 500_000))
        time.advance(1)
        await broker.save()
        for body, due in DUE.items():
            broker.send(body, TIMER_DELIVER_MS=str(due))
        broker.send(b"recalled", TIMER_DELIVER_MS=str(START + HOUR))
        broker.send(b"x", TIMER_DELIVER_MS=str(START + HOUR), TIMER_DEL_UNIQKEY="T+recalled")
        # As brokers from 5.4 on recall.
        broker.send(b"as 5.4", TIMER_DELIVER_MS=str(START + HOUR))
        broker.send(b"y", TIMER_DELIVER_MS=str(START + HOUR), TIMER_DEL_UNIQKEY="as 5.4")
        time.advance(5_000)
        assert broker.bodies() == [b"done"]
        await broker.save()
        if killed:
            copied(root, left)
    if not killed:
        copied(root, left)
    return left


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def patch(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def forget(root: Path) -> None:
    """Let the wheel forget the last slot."""
    wheel = TimerWheel(FastFiles(), root / "timerwheel", 1000)
    wheel.open()
    (time, _) = wheel.occupied(0)[-1]
    wheel.forget(time, time + 1000)
    wheel.close()


def first_log(root: Path) -> Path:
    return sorted((root / "timerlog").iterdir())[0]


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "no wheel": lambda root: (root / "timerwheel").unlink(),
    "short wheel": lambda root: cut(root / "timerwheel"),
    "forgetful wheel": forget,
    "no log": lambda root: shutil.rmtree(root / "timerlog"),
    "short log": lambda root: cut(first_log(root)),
    "no unit": lambda root: patch(first_log(root), 52 * 2, bytes(52)),
    "unit of another message": lambda root: patch(first_log(root), 52 * 2 + 28, b"\7" * 8),
    "unit of no place": lambda root: patch(first_log(root), 52 * 2 + 28, b"\xff" * 8),
    "no checkpoint": lambda root: (root / "config" / "timercheck").unlink(),
    "short checkpoint": lambda root: cut(root / "config" / "timercheck"),
    "read time far away": lambda root: patch(root / "config" / "timercheck", 0, b"\x7f"),
    "read time too late": lambda root: patch(
        root / "config" / "timercheck", 0, (START + 23 * HOUR).to_bytes(8)
    ),
    "log flushed too far": lambda root: patch(root / "config" / "timercheck", 8, b"\0\0\1"),
    "queue read too far": lambda root: patch(root / "config" / "timercheck", 16, bytes([0, 1]) * 8),
}


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_damaged_timers_are_built_again(tmp_path: Path, damage: str, killed: bool) -> None:
    time = FakeTime()
    root = await made(tmp_path / "store", time, killed=killed)
    config = DelayedBroker(root, time, **ROLLED).config
    assert check_store(config, clock=time.clock).problems == []
    DAMAGES[damage](root)
    report = check_store(config, clock=time.clock)
    subtle = killed and damage == "read time too late"  # nothing says that it was another
    if not (subtle or damage == "read time too late"):
        assert {problem.part for problem in report.problems} == {"timers"}
    refused = await copy_starts(copied(root, tmp_path / "tried"), time)
    assert report.starts is not bool(refused)
    assert not refused or f"pocketmq store repair {tmp_path / 'tried'}" in refused
    if subtle:
        return
    repair_store(config, clock=time.clock)
    after = check_store(config, clock=time.clock)
    assert (after.problems, after.starts) == ([], True)
    waiting = next(part.items for part in after.parts if part.part == "timers")
    assert waiting == len(DUE) + 1  # and the rolled one; the recalled one and its recall are 0
    async with DelayedBroker(root, time, **ROLLED) as broker:
        time.advance(0)
        assert broker.bodies() == [b"done"]
        time.advance(3 * HOUR)
        delivered = {bytes(record.body): record for record in broker.records()[1:]}
        assert len(broker.records()) == 1 + len(delivered)
        assert delivered.keys() == {*DUE, b"rolled"}
        for body, due in DUE.items():
            assert delivered[body].store_timestamp == due
        assert len(broker.records(TIMER_TOPIC)) >= 7


async def copy_starts(root: Path, time: FakeTime) -> str:
    """Return why a broker does not start."""
    broker = DelayedBroker(root, FakeTime(time.now), **ROLLED)
    try:
        await broker.start()
    except StoreError as error:
        return str(error)
    finally:
        await broker.stop()
    return ""


async def test_what_was_due_during_the_damage_comes_at_once(tmp_path: Path) -> None:
    time = FakeTime()
    root = await made(tmp_path / "store", time, killed=False)
    (root / "timerwheel").unlink()
    time.advance(24 * HOUR)
    repair_store(DelayedBroker(root, time, **ROLLED).config, clock=time.clock)
    async with DelayedBroker(root, time, **ROLLED) as broker:
        time.advance(1_000)
        assert sorted(broker.bodies()) == sorted([b"done", b"rolled", *DUE])


async def test_a_unit_in_an_earlier_slot_delivers_nothing_early(tmp_path: Path) -> None:
    """The slot of a unit has no checksum, but the message knows its time."""
    time = FakeTime()
    async with DelayedBroker(tmp_path / "store", time) as broker:
        broker.send(b"late", TIMER_DELIVER_MS=str(START + HOUR))
        time.advance(1)
        log = first_log(broker.root)
        wheel = TimerWheel(FastFiles(), broker.root / "timerwheel", 1000)
        await broker.stop()
        patch(log, 24, (60_000).to_bytes(4))
        wheel.open()
        wheel.clear()
        wheel.link(START + 60_000, 0)
        wheel.close()
        patch(broker.root / "config" / "timercheck", 56, bytes(8))
    async with DelayedBroker(tmp_path / "store", time) as broker:
        time.advance(HOUR - 2)
        assert broker.bodies() == []
        time.advance(1_000)
        assert broker.bodies() == [b"late"]
