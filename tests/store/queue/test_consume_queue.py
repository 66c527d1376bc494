"""One consume queue, apart from the store."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketmq.store.encoding.entry_array import EntryRun
from pocketmq.store.encoding.queue_entry import pack_entries, pack_entry
from pocketmq.store.files import Retirement
from pocketmq.store.log.queue_mappings import QueueMappings
from pocketmq.store.queue.consume_queue import FILLER_SIZE, ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.queue_view import QueuesByTopic

PER_FILE = 20


def make(bench: Any, directory: Path | None = None) -> ConsumeQueue:
    where = directory or bench.root / "Topic" / "0"
    return ConsumeQueue(
        bench.files, where, "Topic", 0, PER_FILE * 20, Retirement(), QueueMappings(bench.files)
    )


def append(queue: ConsumeQueue, count: int, start: int = 0) -> None:
    for n in range(start, start + count):
        queue.make_room()
        queue.next_offset += 1
        queue.append(pack_entry(100 * n, 100, -n))


def test_entries_are_twenty_bytes_big_endian(bench: Any) -> None:
    queue = make(bench)
    append(queue, 2)
    file = bench.root / "Topic" / "0" / f"{0:020d}"
    assert file.read_bytes()[:40] == struct.pack(">qiqqiq", 0, 100, 0, 100, 100, -1)
    assert file.stat().st_size == 400


def test_reading_across_files(bench: Any) -> None:
    queue = make(bench)
    append(queue, 50)
    assert list(queue.read(18, 10)) == [(1800, 100, -18), (1900, 100, -19)]
    assert next(queue.read(20, 3)) == (2000, 100, -20)
    assert list(queue.read(48, 10)) == [(4800, 100, -48), (4900, 100, -49)]
    assert queue.entry(49) == (4900, 100, -49)
    assert queue.entry(50) is None
    assert queue.entry(-1) is None


@pytest.mark.parametrize("end", [0, 5, 20, 30])
def test_what_is_cut_off_waits_for_a_flush(bench: Any, end: int) -> None:
    """A power cut must not bring it back behind the end that a stop knows."""
    queue = make(bench)
    append(queue, 30)
    queue.flush()
    bench.files.synced.clear()
    queue.truncate(end)
    assert queue.dirty(0)
    queue.flush()
    assert not queue.dirty(0)
    assert f"{end // PER_FILE * PER_FILE * 20:020d}" in bench.files.synced or end == 20


@pytest.mark.parametrize("count", [1, 19, 20, 21, 45, 1500])
def test_a_batch_equals_single_entries(bench: Any, count: int) -> None:
    queue = make(bench)
    append(queue, 5)
    queue.make_room(count)
    queue.next_offset += count
    queue.append(pack_entries([v for n in range(5, 5 + count) for v in (100 * n, 100, -n)]))
    assert (queue.max_offset, queue.max_physical) == (5 + count, 100 * (5 + count))
    for n in range(5 + count):
        assert queue.entry(n) == (100 * n, 100, -n)


def test_entries_as_arrays(bench: Any) -> None:
    """One array per file, no copy, and the files cannot be closed underneath it."""
    queue = make(bench)
    append(queue, 50)
    parts = list(queue.entries(10, 99))
    assert [(start, len(array)) for start, array in parts] == [(10, 10), (20, 20), (40, 10)]
    joined = np.concatenate([array for _, array in parts])
    assert joined["physical"].tolist() == [100 * n for n in range(10, 50)]
    assert joined["tags_code"].tolist() == [-n for n in range(10, 50)]
    file = queue.files.mapped[0]
    assert not file.close()
    del parts
    assert file.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [0, 1, 19, 20, 21, 65])
def test_the_end_is_found_again(bench: Any, count: int, clean: bool) -> None:
    queue = make(bench)
    append(queue, count)
    queue.files.close()
    again = make(bench)
    again.load(clean=clean)
    assert (again.min_offset, again.max_offset, again.next_offset) == (0, count, count)
    assert again.max_physical == (100 * count if count else -1)
    append(again, 3, count)
    assert [again.entry(n) for n in range(count + 3)] == [
        (100 * n, 100, -n) for n in range(count + 3)
    ]


def test_a_file_made_ahead_but_not_written(bench: Any) -> None:
    for clean in (True, False):
        queue = make(bench, bench.root / str(clean))
        append(queue, 20)
        queue.make_room(25)
        assert len(queue.files.mapped) == 3
        queue.files.close()
        again = make(bench, bench.root / str(clean))
        again.load(clean=clean)
        assert again.max_offset == 20
        append(again, 30, 20)
        assert again.entry(49) == (4900, 100, -49)


@pytest.mark.parametrize("offset", [0, 1, 20, 21, 39, 40, 44])
def test_truncating(bench: Any, offset: int) -> None:
    queue = make(bench)
    append(queue, 45)
    queue.truncate(offset)
    assert (queue.max_offset, queue.max_physical) == (offset, 100 * offset if offset else -1)
    append(queue, 3, offset)
    queue.files.close()
    again = make(bench)
    again.load(clean=True)
    assert again.max_offset == offset + 3


def test_truncating_before_the_first_file(bench: Any) -> None:
    queue = make(bench)
    queue.start_at(50)
    append(queue, 5, 50)
    queue.truncate(7)
    assert (queue.min_offset, queue.max_offset) == (7, 7)
    append(queue, 1, 7)
    assert queue.entry(7) == (700, 100, -7)


def test_starting_past_zero(bench: Any) -> None:
    queue = make(bench)
    queue.start_at(47)
    append(queue, 1, 47)
    (file,) = queue.files.mapped
    assert file.base_offset == 800
    assert bytes(file.view[:140]) == struct.pack(">qiq", 0, FILLER_SIZE, 0) * 7
    queue.files.close()
    again = make(bench)
    again.load(clean=True)
    assert (again.min_offset, again.max_offset, again.max_physical) == (40, 48, 4800)
    again.correct_min_offset(0)
    assert again.min_offset == 47


def test_fillers_in_the_middle_do_not_disturb_the_search(bench: Any) -> None:
    queue = make(bench)
    append(queue, 10)
    queue.fill_until(55)
    append(queue, 10, 55)
    for physical in range(0, 6600, 50):
        expected = min((n for n in (*range(10), *range(55, 65)) if 100 * n >= physical), default=65)

        def reached(at: int, _: int, physical: int = physical) -> bool:
            return at >= physical

        assert queue.first_where(reached) == expected
    queue.correct_min_offset(350)
    assert queue.min_offset == 4
    queue.correct_min_offset(7000)
    assert queue.min_offset == 65


def test_holes_are_seen() -> None:
    entry = struct.pack(">qiq", 5, 6, 7)
    blank = bytes(20)
    assert EntryRun.of(memoryview(entry * 3)) == (3, 3, 5)
    assert EntryRun.of(memoryview(entry * 2 + blank * 2)) == (2, 2, 5)
    assert EntryRun.of(memoryview(entry * 2 + blank + entry + blank)) == (2, 4, 5)
    assert EntryRun.of(memoryview(blank + entry)) == (0, 2, 0)
    assert EntryRun.of(memoryview(blank * 2)) == (0, 0, 0)
    assert EntryRun.of(memoryview(struct.pack(">qiq", -1, 6, 7) + entry)) == (0, 2, 0)


def after_crash(bench: Any, queue: ConsumeQueue) -> ConsumeQueue:
    queue.files.close()
    again = make(bench)
    again.load(clean=False)
    return again


def test_the_begin_of_a_queue_after_a_crash(bench: Any) -> None:
    queue = make(bench)
    append(queue, 15, start=3)
    queue = after_crash(bench, queue)
    for physical, begin in (0, 0), (300, 0), (301, 1), (1000, 7), (0, 0):
        queue.correct_min_offset(physical)
        assert queue.min_offset == begin
    queue.truncate(0)
    append(queue, 10)  # of another log, whose records begin before
    queue.correct_min_offset(250)
    assert queue.min_offset == 3


def test_the_begin_of_a_queue_with_fillers_after_a_crash(bench: Any) -> None:
    queue = make(bench)
    queue.start_at(5)
    append(queue, 3, start=6)
    queue = after_crash(bench, queue)
    queue.correct_min_offset(0)
    assert (queue.min_offset, queue.max_offset) == (5, 8)


def test_what_waits_for_a_flush(bench: Any) -> None:
    queue = make(bench)
    assert not queue.dirty(0)
    append(queue, 3)
    assert queue.dirty(0)
    assert queue.dirty(60)
    assert not queue.dirty(61)
    queue.flush()
    assert not queue.dirty(0)
    append(queue, 40, 3)
    bench.files.synced.clear()
    queue.flush()
    assert sorted(set(bench.files.synced)) == [f"{n * 400:020d}" for n in range(3)]


def test_the_table_finds_and_refuses(bench: Any) -> None:
    table = ConsumeQueueTable(bench.files, bench.root, 400, Retirement())
    queue = table.find_or_create("Topic", 3)
    assert table.find_or_create("Topic", 3) is queue
    assert table.find("Topic", 3) is queue
    assert table.find("Topic", 4) is None
    assert QueuesByTopic(table)["Topic"][3] is queue
    for topic, queue_id in (("a/b", 0), ("..", 0), ("", 0), ("Topic", -1)):
        with pytest.raises(ValueError, match="cannot have a queue"):
            table.find_or_create(topic, queue_id)
    assert len(table.all) == 1
