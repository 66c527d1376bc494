"""What expires: commit-log files by age, by disk usage, by order; queues and index behind them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest

from pocketmq.message import properties as names
from pocketmq.store.files import Files
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import GetStatus
from tests.store.conftest import FailingFiles, StoreBench

HOUR = 3_600_000
FILE = 16 * 1024
DAY = 1_700_000_000_000  # what the clock shows; every file was written to then


class Disk(FailingFiles):
    """A disk whose usage and whose files' ages are set."""

    def __init__(self) -> None:
        super().__init__()
        self.used = 10
        self.removed: list[str] = []

    def used_percent(self, directory: Path) -> int:
        return self.used

    def modified_ms(self, path: Path) -> int:
        return DAY

    def remove(self, path: Path) -> None:
        self.removed.append(path.name)
        super().remove(path)


@pytest.fixture
def disk(bench: StoreBench) -> Disk:
    bench.files = disk = Disk()
    return disk


def hour(offset_hours: int) -> int:
    """A time on a later day at 04:30 local time plus some hours."""
    day = time.localtime((DAY + 1000 * HOUR) / 1000)
    start = (*day[:3], 4, 30, 0, 0, 0, -1)
    return int(time.mktime(start)) * 1000 + offset_hours * HOUR


async def filled(bench: StoreBench, files: int = 5, **settings: int | str) -> MessageStore:
    """A started store of so many commit-log files, all flushed; two queues, one of them old."""
    store = bench.open(delete_commit_log_files_interval=0, **settings)
    store.start()
    for n in range(3):
        bench.put(store, "Old", properties=names.encode({"KEYS": f"old{n}"}))
    n = 0
    while store.commit_log.end <= (files - 1) * FILE:
        bench.put(store, body=b"b" * 900, properties=names.encode({"KEYS": f"k{n}"}))
        n += 1
    flushed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    store.when_flushed(store.commit_log.end, flushed.set_result)
    assert await flushed
    bench.clock.now = hour(1)  # long after, but not at the hour of deleteWhen
    return store


def log_files(bench: StoreBench) -> list[int]:
    return sorted(int(path.name) // FILE for path in (bench.root / "commitlog").iterdir())


async def test_nothing_expires_at_other_hours(bench: StoreBench, disk: Disk) -> None:
    store = await filled(bench)
    assert await store.cleanup.round() == 0
    assert store.commit_log.min_offset == 0


@pytest.mark.parametrize("when", ["04", "4", "17;04", " 04 ; x"])
async def test_files_expire_at_the_hour(bench: StoreBench, disk: Disk, when: str) -> None:
    store = await filled(bench, delete_when=when)
    bench.clock.now = hour(0)
    # All but the one that is written to (and the one made ahead of it).
    assert await store.cleanup.round() == 4
    assert store.commit_log.min_offset == 4 * FILE
    assert log_files(bench)[0] == 4
    assert await store.cleanup.round() == 0


async def test_files_younger_than_the_reserved_time_stay(bench: StoreBench, disk: Disk) -> None:
    store = await filled(bench, delete_when=";".join(map(str, range(24))))
    bench.clock.now = DAY + 72 * HOUR - 1
    assert await store.cleanup.round() == 0
    bench.clock.now += 1
    assert await store.cleanup.round() == 4


async def test_age_is_when_the_file_was_last_written_to(bench: StoreBench) -> None:
    store = await filled(bench, delete_when=";".join(map(str, range(24))))
    old = bench.clock.now / 1000 - 73 * 3600
    os.utime(bench.segment(0), (old, old))
    os.utime(bench.segment(2 * FILE), (old, old))
    os.utime(bench.segment(FILE), (old + 2 * 3600, old + 2 * 3600))
    # The third is old enough, but no gap is made.
    assert await store.cleanup.round() == 1
    assert log_files(bench)[0] == 1


async def test_a_round_removes_a_bounded_number(bench: StoreBench, disk: Disk) -> None:
    store = await filled(bench, files=8, delete_file_batch_max=3)
    bench.clock.now = hour(0)
    assert [await store.cleanup.round() for _ in range(4)] == [3, 3, 1, 0]


@pytest.mark.parametrize(
    ("used", "age_hours", "forcibly", "removed"),
    [
        (75, 100, True, 0),  # not above diskMaxUsedSpaceRatio
        (76, 100, True, 4),  # expired files at any hour
        (76, 10, True, 0),
        (85, 10, True, 0),
        (86, 10, True, 4),  # whatever their age
        (86, 10, False, 0),  # cleanFileForciblyEnable=false
        (91, 10, True, 4),
    ],
)
async def test_a_full_disk_makes_files_expire(
    bench: StoreBench, disk: Disk, used: int, age_hours: int, forcibly: bool, removed: int
) -> None:
    store = await filled(bench, clean_file_forcibly_enable=forcibly, delete_when="x")
    bench.clock.now = DAY + age_hours * HOUR
    disk.used = used
    assert await store.cleanup.round() == removed


async def test_an_order_removes_expired_files_soon(bench: StoreBench, disk: Disk) -> None:
    store = await filled(bench)
    gone = [asyncio.Event() for _ in range(1)]
    loop = asyncio.get_running_loop()
    remove = disk.remove

    def watch(path: Path) -> None:
        remove(path)
        if path.name == f"{3 * FILE:020d}":
            loop.call_soon_threadsafe(gone[0].set)

    disk.remove = watch  # type: ignore[method-assign]
    store.cleanup.order()
    async with asyncio.timeout(20):
        await gone[0].wait()
    assert log_files(bench)[0] == 4


async def test_what_is_not_flushed_stays(bench: StoreBench, disk: Disk) -> None:
    store = bench.open(flush_interval_commit_log=3_600_000, delete_commit_log_files_interval=0)
    store.start()
    while store.commit_log.end <= 4 * FILE:
        bench.put(store, body=b"b" * 900)
    bench.clock.now = hour(0)
    assert store.flushed_offset == 0
    assert await store.cleanup.round() == 0


async def test_queues_forget_what_expired(bench: StoreBench, disk: Disk) -> None:
    store = await filled(bench)
    end = store.max_offset("Topic", 0)
    first = store.get("Topic", 0, 0, 32)
    bench.clock.now = hour(0)
    await store.cleanup.round()

    low = store.min_offset("Topic", 0)
    assert 0 < low < end == store.max_offset("Topic", 0)
    below = store.get("Topic", 0, low - 1, 32)
    assert (below.status, below.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, low)
    assert store.get("Topic", 0, low, 32).status is GetStatus.FOUND
    assert store.store_time_at("Topic", 0, low) > 0
    # Consume-queue files of 20 entries: those wholly below are gone, the last one stays.
    kept = sorted(int(p.name) // 400 for p in bench.queue_file("Topic", 0).parent.iterdir())
    assert kept[0] == low // 20
    assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (3, 3)
    assert store.get("Old", 0, 0, 1).status is GetStatus.OFFSET_TOO_SMALL
    assert store.get("Old", 0, 3, 1).status is GetStatus.OFFSET_OVERFLOW_ONE
    # Who was reading goes on: the slices stay whole although the file is gone.
    assert b"".join(first.buffers).count(b"b" * 900) == first.message_count == 20


async def test_after_cleaning_a_store_opens_as_it_was(bench: StoreBench, disk: Disk) -> None:
    store = await filled(bench)
    bench.clock.now = hour(0)
    await store.cleanup.round()
    state = (store.commit_log.min_offset, store.commit_log.end, *bounds(store))
    crashed = bench.copy("crashed")
    crashed.clock = bench.clock
    await store.close()
    for again in (bench, crashed):
        store = again.open()
        assert (store.commit_log.min_offset, store.commit_log.end, *bounds(store)) == state
        assert len(again.bodies(store)) == state[3] - state[2]
        assert again.put(store, "Old").queue_offset == 3
        await store.close()


def bounds(store: MessageStore) -> tuple[int, ...]:
    return (
        store.min_offset("Topic", 0),
        store.max_offset("Topic", 0),
        store.min_offset("Old", 0),
        store.max_offset("Old", 0),
    )


async def test_index_files_go_with_the_log(bench: StoreBench, disk: Disk) -> None:
    store = await filled(bench, max_index_num=10)

    async def found(key: str) -> int:
        return len((await store.index.query("Topic", key, 64, 0, 2**62)).records)

    end = store.max_offset("Topic", 0)
    assert [await found(f"k{n}") for n in range(end)] == [1] * end
    files = sorted((bench.root / "index").iterdir())
    bench.clock.now = hour(0)
    await store.cleanup.round()
    low = store.min_offset("Topic", 0)
    assert [await found(f"k{n}") for n in range(end)] == [0] * low + [1] * (end - low)
    bench.put(store, properties=names.encode({"KEYS": "more"}))
    assert await found("more") == 1  # the index thread has had a round
    kept = sorted((bench.root / "index").iterdir())
    assert len(files) - low // 9 - 1 <= len(kept) < len(files)
    assert kept[-1] == files[-1] or kept[-2] == files[-1]


async def test_expired_queues_are_deleted_on_demand(bench: StoreBench, disk: Disk) -> None:
    store = await filled(bench)
    bench.put(store, "SCHEDULE_TOPIC_XXXX", properties=names.encode({"DELAY": "1"}))
    await store.cleanup.delete_expired_queues()
    assert set(store.queues) == {"Old", "Topic", "SCHEDULE_TOPIC_XXXX"}
    bench.clock.now = hour(0)
    await store.cleanup.round()
    await store.cleanup.delete_expired_queues()
    assert set(store.queues) == {"Topic", "SCHEDULE_TOPIC_XXXX"}
    assert not (bench.root / "consumequeue" / "Old").exists()
    assert bench.put(store, "Old").queue_offset == 0
    await store.close()
    store = bench.open()
    assert store.max_offset("Old", 0) == 1


async def test_a_failing_disk_does_not_end_the_cleaning(bench: StoreBench, disk: Disk) -> None:
    store = await filled(bench)
    remove, failed = disk.remove, asyncio.Event()
    loop = asyncio.get_running_loop()

    def refuse(path: Path) -> None:
        loop.call_soon_threadsafe(failed.set)
        raise PermissionError(13, "no", str(path))

    disk.remove = refuse  # type: ignore[method-assign]
    store.cleanup.order()
    async with asyncio.timeout(20):
        await failed.wait()
    disk.remove = remove  # type: ignore[method-assign]
    bench.clock.now = hour(0)
    assert await store.cleanup.round() == 4
    assert log_files(bench)[0] == 4
    assert bench.put(store).ok


@pytest.mark.parametrize("where", ["commitlog", "consumequeue/Topic"])
async def test_a_file_that_can_not_be_removed_leaves_no_gap(
    bench: StoreBench, disk: Disk, where: str
) -> None:
    store = await filled(bench)
    remove = disk.remove
    stuck = min(path for path in (bench.root / where).rglob("*") if path.is_file())

    def refuse(path: Path) -> None:
        if path == stuck:
            raise PermissionError(13, "no", str(path))
        remove(path)

    disk.remove = refuse  # type: ignore[method-assign]
    bench.clock.now = hour(0)
    for _ in range(3):
        with contextlib.suppress(OSError):
            await store.cleanup.round()
    # Its neighbours in the run are still there, everything else is cleaned up as far as it can be.
    assert len([path for path in stuck.parent.iterdir() if path.is_file()]) > 2
    assert (store.min_offset("Old", 0) == 3) == (where != "commitlog")
    await store.close()
    store = bench.open()
    disk.remove = remove  # type: ignore[method-assign]
    bench.clock.now = hour(0)
    await store.cleanup.round()
    assert not stuck.exists()
    assert log_files(bench)[0] == 4
    await store.close()
    assert bench.bodies(bench.open())


def test_used_percent_is_that_of_df(tmp_path: Path) -> None:
    assert 0 < Files().used_percent(tmp_path) <= 100
