"""Starts that go on from the mark: up to where the last process had entered messages into their
queues, as long as the machine runs.

A kill is a copy of the directory whose files count as the same ones. What a kill in the middle of
things leaves is put together from copies: an older checkpoint, then the queues, then the log, since
a process writes them in the other order.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.batch_body import encode_batch
from pocketmq.message.tags import tag_hash
from pocketmq.store.config import FlushDiskType
from pocketmq.store.errors import StoreCorrupt

QUEUES = 3
ENTRY = 20


def same_files(path: Path) -> tuple[int, int]:
    return 1, 1


def fill(bench: Any, store: Any, count: int) -> None:
    for n in range(count):
        bench.clock.now += 1
        tag = f"tag{n % 5}"
        bench.put(
            store, "Topic", n % QUEUES, b"%05d" % n + b"." * 100, f"TAGS\x01{tag}\x02KEYS\x01k{n}",
            tags_code=tag_hash(tag),
        )  # fmt: skip


def marked(bench: Any) -> Any:
    bench.files.identity = same_files
    return bench


def killed(bench: Any, name: str = "killed") -> Any:
    return marked(bench.copy(name))


def looked_at(caplog: pytest.LogCaptureFixture) -> str:
    """What the last recovery says of the queues and the entries."""
    line = [each for each in caplog.messages if each.startswith("recovered after a")][-1]
    return line.partition("the log ends at ")[2].partition(", ")[2]


def contents(bench: Any, store: Any) -> list[list[bytes]]:
    return [bench.bodies(store, "Topic", n) for n in range(QUEUES)]


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="pocketmq.store")


@pytest.mark.parametrize("flush", FlushDiskType)
async def test_three_kills_in_a_row(bench: Any, caplog: Any, flush: FlushDiskType) -> None:
    store = marked(bench).open(flush_disk_type=flush)
    store.start()
    fill(bench, store, 300)
    assert await store.all_flushed()
    expected = contents(bench, store)
    last = bench
    for n in range(3):
        last = killed(last, f"killed-{n}")
        opened = last.open(flush_disk_type=flush)
        assert looked_at(caplog) == "1 queues looked at, 0 entries added"
        assert contents(last, opened) == expected
    assert last.put(opened, "Topic", 0).queue_offset == 100


async def test_every_moment_between_messages_and_their_entries(bench: Any) -> None:
    """Checkpoint, queues and log of different moments, and an entry of which a part is there."""
    store = marked(bench).open()
    fill(bench, store, 150)
    older = bench.copy("older")
    fill(bench, store, 9)
    middle = bench.copy("middle")
    fill(bench, store, 9)
    expected = contents(bench, store)
    for number, part in enumerate((0, 1, 7, 11, ENTRY - 1)):
        crashed = killed(bench, f"crashed-{number}")
        shutil.copy(older.root / "checkpoint", crashed.root / "checkpoint")
        shutil.rmtree(crashed.root / "consumequeue")
        shutil.copytree(middle.root / "consumequeue", crashed.root / "consumequeue")
        for queue_id in range(QUEUES):
            at = (150 + 9) // QUEUES * ENTRY % 400
            base = (150 + 9) // QUEUES * ENTRY - at
            whole = bench.queue_file("Topic", queue_id, base).read_bytes()[at : at + part]
            with crashed.queue_file("Topic", queue_id, base).open("r+b") as file:
                file.seek(at)
                file.write(whole)
        opened = crashed.open()
        assert contents(crashed, opened) == expected
        for path in (crashed.root / "consumequeue").rglob("0*"):
            if path.is_file():
                kept = bench.root / path.relative_to(crashed.root)
                assert path.read_bytes() == kept.read_bytes()
        await opened.close()


def lose_last_entries(crashed: Any) -> None:
    """Take entries that the mark says are there."""
    for path in (crashed.root / "consumequeue/Topic/2").iterdir():
        path.write_bytes(path.read_bytes()[:200] + bytes(200))


def lose_a_queue(crashed: Any) -> None:
    shutil.rmtree(crashed.root / "consumequeue/Topic/2")


def lose_all_queues(crashed: Any) -> None:
    shutil.rmtree(crashed.root / "consumequeue")


def damage_the_mark(crashed: Any) -> None:
    content = bytearray((crashed.root / "checkpoint").read_bytes())
    content[1024:2200] = b"\1" * 1176
    (crashed.root / "checkpoint").write_bytes(content)


def take_other_files(crashed: Any) -> None:
    crashed.files.identity = lambda path: (2, 2)


def boot_again(crashed: Any) -> None:
    crashed.files.boot_id = lambda: b"another boot, 16"


@pytest.mark.parametrize(
    "change",
    [lose_last_entries, lose_a_queue, lose_all_queues, damage_the_mark, take_other_files,
     boot_again],
)  # fmt: skip
async def test_a_mark_that_does_not_fit(
    bench: Any, caplog: Any, change: Callable[[Any], None]
) -> None:
    """The walk begins at the checkpoint instead, and nothing is lost."""
    store = marked(bench).open()
    fill(bench, store, 300)
    expected = contents(bench, store)
    crashed = killed(bench)
    change(crashed)
    opened = crashed.open()
    assert looked_at(caplog) == f"{QUEUES} queues looked at, 300 entries added"
    assert contents(crashed, opened) == expected


async def test_a_cut_log_takes_the_mark_with_it(bench: Any, caplog: Any) -> None:
    store = marked(bench).open()
    store.start()
    fill(bench, store, 30)
    end = store.commit_log.end
    fill(bench, store, 30)
    store.settle()
    before = killed(bench, "before")
    await store.cut(end)
    shutil.rmtree(before.root)
    crashed = killed(bench)
    opened = crashed.open()
    assert opened.commit_log.end == end
    assert contents(crashed, opened) == contents(bench, store)


async def test_queues_that_nobody_opened_are_flushed(bench: Any) -> None:
    """The next power cut must not take what the killed process had not flushed."""
    store = marked(bench).open()
    fill(bench, store, 30)
    bench.put(store, "Other", 0)
    crashed = killed(bench)
    opened = crashed.open()
    assert opened.max_offset("Other", 0) == 1
    crashed.files.synced.clear()
    await opened.close()
    files = [p for p in (crashed.root / "consumequeue").rglob("0*") if p.is_file()]
    assert crashed.files.synced.count(f"{0:020d}") >= len(files)


async def test_the_index_goes_on_after_a_kill(bench: Any, caplog: Any) -> None:
    store = marked(bench).open()
    store.start()
    fill(bench, store, 300)
    assert len((await store.index.query("Topic", "k7", 9, 0, 1 << 60)).records) == 1
    crashed = killed(bench)
    caplog.clear()
    opened = crashed.open()
    assert not any("building it again" in line for line in caplog.messages)
    opened.start()
    fill(crashed, opened, 10)
    for n in range(300):
        found = await opened.index.query("Topic", f"k{n}", 9, 0, 1 << 60)
        assert len(found.records) == (2 if n < 10 else 1)
    await opened.close()


async def test_slots_that_a_kill_left_out_are_written(bench: Any) -> None:
    store = marked(bench).open()
    store.start()
    fill(bench, store, 300)
    await store.index.query("Topic", "k7", 9, 0, 1 << 60)
    crashed = killed(bench)
    (path,) = (crashed.root / "index").iterdir()
    content = bytearray(path.read_bytes())
    content[40 : 40 + 4 * 500] = bytes(4 * 500)
    path.write_bytes(content)
    opened = crashed.open()
    opened.start()
    for n in range(300):
        assert len((await opened.index.query("Topic", f"k{n}", 9, 0, 1 << 60)).records) == 1
    await opened.close()


# --- many records at once, and progress -------------------------------------------------------


LARGE = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 4_000}


def fill_with_everything(bench: Any, store: Any) -> None:
    """What has no entry, what is due later, long and short topics, batches, addresses."""
    store.put_batch(
        "Batch", 1, encode_batch([(0, b"." * 20, b"TAGS\x01a\x02")] * 4000), "", born_timestamp=1,
        born_host=bytes(8),
    )  # fmt: skip
    for n in range(3000):
        bench.clock.now += 1
        tag = f"t{n % 40}"
        bench.put(
            store, ("A", "B" * 200, "SCHEDULE_TOPIC_XXXX")[n % 3], n % 4, b"%d" % n,
            f"TAGS\x01{tag}\x02DELAY\x01{n % 5}\x02", tags_code=tag_hash(tag),
            sys_flag=(0, 4, 8, 12)[n % 16 // 4] if n < 2000 else 0,
            born_host=bytes(8) if n % 7 else bytes(20),
        )  # fmt: skip


def queue_files(bench: Any) -> dict[Path, bytes]:
    root = bench.root / "consumequeue"
    return {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()}


async def test_queues_that_are_built_many_records_at_a_time(bench: Any, caplog: Any) -> None:
    store = bench.open(**LARGE)
    fill_with_everything(bench, store)
    store.settle()
    expected = queue_files(bench)
    crashed = bench.copy("crashed")
    shutil.rmtree(crashed.root / "consumequeue")
    opened = crashed.open(**LARGE)
    assert queue_files(crashed) == expected
    again = bench.copy("again")
    (again.root / "checkpoint").unlink()
    opened = again.open(**LARGE)
    assert queue_files(again) == expected
    await opened.close()


class Hurried:
    """A clock by which each step takes long."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 10.0
        return self.now


class Stopped(Exception):
    """The process ends here."""


OFFICIAL = struct.pack(">5q", 1, 1, 1, 0, 0)


@pytest.mark.parametrize("checkpoint", [b"", OFFICIAL])
async def test_a_recovery_that_is_cut_short_goes_on(
    bench: Any, caplog: Any, checkpoint: bytes
) -> None:
    """Of a store after a power cut, and of another broker's."""
    store = bench.open(**LARGE)
    fill_with_everything(bench, store)
    store.start()
    assert await store.all_flushed()
    expected = queue_files(bench)
    crashed = bench.copy("crashed")
    if checkpoint:
        (crashed.root / "checkpoint").write_bytes(checkpoint.ljust(4096, b"\0"))
    crashed.files.boot_id = lambda: b"another boot, 16"
    crashed.recovery_clock = Hurried()
    syncs = []
    fdatasync = crashed.files.fdatasync

    def stopping(fd: int) -> None:
        fdatasync(fd)
        syncs.append(fd)
        if crashed.files.synced[-1] == "checkpoint" and len(syncs) > 1:
            raise Stopped

    crashed.files.fdatasync = stopping
    slow = crashed.store(**LARGE)
    with pytest.raises(Stopped):
        slow.open()
    assert slow.recovery_progress.text == ""
    crashed.files.fdatasync = fdatasync
    crashed.recovery_clock = lambda: 0.0
    caplog.clear()
    opened = crashed.open(**LARGE)
    _, entered = looked_at(caplog).split(", ")
    assert 0 < int(entered.split()[0]) < sum(
        len(queue.files.mapped) and queue.max_offset
        for queues in opened.queues.values() for queue in queues.values()
    )  # fmt: skip
    assert queue_files(crashed) == expected


async def test_damage_behind_what_was_saved(bench: Any) -> None:
    """The queues get back what they had: the next start must not take them for further."""
    store = bench.open(**LARGE)
    fill_with_everything(bench, store)
    store.start()
    assert await store.all_flushed()
    expected = queue_files(bench)
    crashed = bench.copy("crashed")
    for base in range(40_000, 80_000, 4_000):
        crashed.queue_file("Batch", 1, base).write_bytes(bytes(4_000))
    crashed.files.boot_id = lambda: b"another boot, 16"
    crashed.recovery_clock = Hurried()
    log = crashed.segment(1 << 20)
    whole = log.read_bytes()
    log.write_bytes(b"\xff" * 100 + whole[100:])
    with pytest.raises(StoreCorrupt):
        crashed.open(**LARGE)
    log.write_bytes(whole)
    opened = crashed.open(**LARGE)
    assert opened.max_offset("Batch", 1) == 4000
    assert queue_files(crashed) == expected
