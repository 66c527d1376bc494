"""Opening a store after a crash whose system clock had been set back, or far ahead and back.

The checkpoint says up to which physical offset the log and the queues were flushed, so recovery
need not believe the timestamps of records; except in a store that the official broker had since.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.config import FlushDiskType
from pocketmq.store.errors import StoreCorrupt
from pocketmq.store.files import MappedFile
from pocketmq.store.log.checkpoint import Checkpoint

HOUR = 3_600_000


def patch(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def fill(bench: Any, store: Any, count: int, topic: str = "Topic") -> list[Any]:
    """Put `count` messages 1 ms apart."""
    results = []
    for n in range(count):
        bench.clock.now += 1
        results.append(bench.put(store, topic, body=b"%05d" % n + b"." * 100))
    return results


async def reopened(bench: Any, store: Any, *, by: int) -> Any:
    """The store after a clean stop, with the clock moved `by` ms."""
    await store.close()
    bench.clock.now += by
    return bench.open()


async def test_a_hole_in_what_was_not_flushed(bench: Any, caplog: Any) -> None:
    """A power failure may take a page and leave the next: no damage, whatever the clock said."""
    store = bench.open()
    fill(bench, store, 10)
    store = await reopened(bench, store, by=-HOUR)
    late = fill(bench, store, 30)
    crashed = bench.copy("crashed")
    crashed.files.boot_id = lambda: b"another boot, 16"
    patch(crashed.segment(), late[10].physical_offset, bytes(150))
    opened = crashed.open()
    assert opened.max_offset("Topic", 0) == 20
    assert "19 messages after it" in caplog.text
    await opened.close()


@pytest.mark.parametrize("place", [5, 9, 12])
async def test_damage_in_what_was_flushed(bench: Any, place: int) -> None:
    """9 is the last message before the clock went back: what follows it is older."""
    store = bench.open()
    results = fill(bench, store, 10)
    bench.clock.now -= HOUR
    results += fill(bench, store, 10)
    store.start()
    assert await store.all_flushed()
    crashed = bench.copy("crashed")
    patch(crashed.segment(), results[place].physical_offset + 100, b"\xff")
    with pytest.raises(StoreCorrupt, match=f"{19 - place} good ones follow") as caught:
        crashed.open()
    assert caught.value.offset == results[place].physical_offset


async def test_damage_in_front_of_unflushed_messages(bench: Any) -> None:
    """What follows may be dropped, but not for the sake of damage."""
    store = bench.open()
    results = fill(bench, store, 10)
    store = await reopened(bench, store, by=-HOUR)
    fill(bench, store, 10)
    crashed = bench.copy("crashed")
    patch(crashed.segment(), results[9].physical_offset + 100, b"\xff")
    with pytest.raises(StoreCorrupt, match="10 good ones follow"):
        crashed.open()


@pytest.mark.parametrize("clean", [True, False])
async def test_the_last_flushed_message_is_damaged(bench: Any, clean: bool) -> None:
    """It is not cut off as one that was never written whole: its offset must not come again."""
    store = bench.open()
    results = fill(bench, store, 10)
    await store.close()
    if not clean:
        (bench.root / "abort").write_text("1")
    at = results[9].physical_offset
    patch(bench.segment(), at + 100, b"\xff")
    log = bench.segment().read_bytes()
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=f"flushed up to {results[9].end_offset}") as caught:
            bench.open()
        assert (caught.value.path, caught.value.offset) == (bench.segment(), at)
    assert bench.segment().read_bytes() == log


@pytest.mark.parametrize("clean", [True, False])
async def test_the_last_file_of_the_log_is_missing(bench: Any, clean: bool) -> None:
    store = bench.open()
    end = fill(bench, store, 100)[-1].end_offset
    await store.close()
    if not clean:
        (bench.root / "abort").write_text("1")
    queue = bench.queue_file("Topic", 0).read_bytes()
    bench.segment(16 * 1024).rename(bench.root / "moved")
    with pytest.raises(StoreCorrupt, match=f"flushed up to {end}; nothing was changed") as caught:
        bench.open()
    assert caught.value.path == bench.segment(16 * 1024)
    assert bench.queue_file("Topic", 0).read_bytes() == queue
    (bench.root / "moved").rename(bench.segment(16 * 1024))
    assert bench.open().max_offset("Topic", 0) == 100


async def test_a_message_is_acknowledged_with_the_flush_that_the_checkpoint_knows(
    bench: Any,
) -> None:
    """The checkpoint is not a second late: what a flush covers is damage when it is gone."""
    store = bench.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store.start()
    fill(bench, store, 10)
    assert await store.all_flushed()
    killed = bench.copy("killed")
    patch(killed.segment(), 0, bytes(16 * 1024))
    with pytest.raises(StoreCorrupt, match=f"flushed up to {store.commit_log.end}"):
        killed.open()


async def test_the_next_file_was_lost_before_anything_was_in_it(bench: Any) -> None:
    """The flush reached the end of the old file; the name of the new one was not on the disk."""
    store = bench.open()
    while fill(bench, store, 1)[0].physical_offset < 16 * 1024:
        before = bench.copy(f"at-{store.commit_log.end}")
    crashed = bench.copy("crashed")
    checkpoint = Checkpoint(bench.files, crashed.root / "checkpoint")
    checkpoint.open()
    checkpoint.confirm_physical_offset = 16 * 1024
    checkpoint.save()
    checkpoint.close()
    crashed.segment(16 * 1024).unlink()
    ends = []
    zero_from = MappedFile.zero_from

    def noting(file: MappedFile, start: int) -> None:
        if file.path == crashed.segment():
            ends.append(struct.unpack_from(">32xq", (crashed.root / "checkpoint").read_bytes())[0])
        zero_from(file, start)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MappedFile, "zero_from", noting)
        opened = crashed.open()
    assert ends == [opened.commit_log.end]  # noted before the blank is overwritten
    assert crashed.bodies(opened) == before.bodies(before.open())
    await opened.close()
    for store in before.opened:
        await store.close()


@pytest.mark.parametrize("how", ["without", "official"])
async def test_a_store_whose_checkpoint_says_nothing_of_it(bench: Any, how: str) -> None:
    """A copy without the file, and one that the official broker has written to since."""
    store = bench.open()
    fill(bench, store, 100)
    await store.close()
    if how == "without":
        (bench.root / "checkpoint").unlink()
    else:
        patch(bench.root / "checkpoint", 0, struct.pack(">q", bench.clock.now + 1))
    patch(bench.segment(16 * 1024), 0, bytes(16 * 1024))
    opened = bench.open()
    assert 0 < opened.max_offset("Topic", 0) < 100


async def test_entries_lost_behind_the_last_file(bench: Any) -> None:
    """A queue without a message in the last file lost its last entries: the walk must begin where
    they are, though the last file is older than the checkpoint says."""
    store = bench.open()
    fill(bench, store, 5, "Quiet")
    store = await reopened(bench, store, by=-HOUR)
    fill(bench, store, 5, "Quiet")
    fill(bench, store, 100)
    expected = bench.bodies(store, "Quiet")
    crashed = bench.copy("crashed")
    assert crashed.segment(16 * 1024).exists()
    patch(crashed.queue_file("Quiet", 0), 100, bytes(100))
    opened = crashed.open()
    assert crashed.bodies(opened, "Quiet") == expected
    await opened.close()


@pytest.mark.parametrize("flushed", [True, False])
async def test_timestamps_count_after_the_official_broker(bench: Any, flushed: bool) -> None:
    """It knows nothing of our offsets, and leaves them in the file."""
    store = bench.open()
    results = fill(bench, store, 10)
    end = store.commit_log.end
    store = await reopened(bench, store, by=1000)
    results += fill(bench, store, 20)
    crashed = bench.copy("crashed")
    patch(crashed.segment(), results[15].physical_offset, bytes(150))
    stamp = bench.clock.now if flushed else results[9].store_timestamp
    last = results[9].physical_offset
    patch(crashed.root / "checkpoint", 0, struct.pack(">5q", stamp, stamp, 0, 0, last))
    assert last < end
    if flushed:
        with pytest.raises(StoreCorrupt, match="14 good ones follow"):
            crashed.open()
    else:
        opened = crashed.open()
        assert opened.max_offset("Topic", 0) == 15
        await opened.close()


async def test_a_checkpoint_that_is_newer_than_the_log(bench: Any) -> None:
    """An older log was put in place. That looks like lost files, so somebody has to say so."""
    store = bench.open()
    fill(bench, store, 10)
    older = bench.copy("older")
    fill(bench, store, 300)
    await store.close()
    shutil.copy(bench.root / "checkpoint", older.root / "checkpoint")
    with pytest.raises(StoreCorrupt, match="on purpose, remove the file checkpoint"):
        older.open()
    (older.root / "checkpoint").unlink()
    opened = older.open()
    assert opened.max_offset("Topic", 0) == 10
    assert struct.unpack_from(">32xq", (older.root / "checkpoint").read_bytes())[0] <= (
        opened.commit_log.end
    )
    await opened.close()


async def test_the_timestamps_follow_the_clock(bench: Any) -> None:
    """As the official broker's do: it begins its walk by them."""
    store = bench.open()
    bench.clock.now += HOUR
    fill(bench, store, 2)
    ahead = bench.clock.now
    store = await reopened(bench, store, by=-HOUR)
    fill(bench, store, 2)
    end = store.commit_log.end
    await store.close()
    now = bench.clock.now
    assert now < ahead
    assert struct.unpack_from(">5q", (bench.root / "checkpoint").read_bytes()) == (
        now, now, 0, 0, end,
    )  # fmt: skip
    store = await reopened(bench, store, by=0)
    await store.close()
    assert struct.unpack_from(">q", (bench.root / "checkpoint").read_bytes())[0] == now


def test_offsets_of_a_checkpoint_that_somebody_else_wrote(bench: Any) -> None:
    path = bench.root / "checkpoint"
    checkpoint = Checkpoint(bench.files, path)
    checkpoint.open()
    assert (checkpoint.confirm_physical_offset, checkpoint.entered_offset) == (0, 0)
    checkpoint.physic_timestamp = 5
    checkpoint.confirm_physical_offset, checkpoint.entered_offset = 4000, 3000
    checkpoint.save()
    checkpoint.close()
    again = Checkpoint(bench.files, path)
    again.open()
    assert (again.exact, again.confirm_physical_offset, again.entered_offset) == (True, 4000, 3000)
    again.close()
    patch(path, 0, struct.pack(">q", 6))  # the official broker knows 40 bytes
    again = Checkpoint(bench.files, path)
    again.open()
    assert (again.exact, again.physic_timestamp) == (False, 6)
    again.close()


async def test_a_damaged_checkpoint_counts_for_nothing(bench: Any, caplog: Any) -> None:
    """A damaged offset in it must not make a start cut off what had been flushed."""
    store = bench.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store.start()
    fill(bench, store, 20)
    assert await store.all_flushed()
    last = fill(bench, store, 1)[0].physical_offset
    assert await store.all_flushed()
    killed = bench.copy("killed")
    await store.close()
    patch(killed.segment(), last - 50, b"damage")
    place = killed.root / "checkpoint"
    content = place.read_bytes()
    for at in range(48, 140):
        place.write_bytes(content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1 :])
        caplog.clear()
        with pytest.raises(StoreCorrupt, match="1 good ones follow"):
            killed.open()
        assert f"{place} is damaged: its checksum is wrong" in caplog.text
    place.write_bytes(bytes(8) + content[8:])  # another broker would have written a newer time
    with pytest.raises(StoreCorrupt, match="1 good ones follow"):
        killed.open()
    assert f"{place} is damaged: the first timestamp was {bench.clock.now}" in caplog.text
