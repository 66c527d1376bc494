"""One index file: entries written many at once are those of one after the other."""

from __future__ import annotations

import struct
from itertools import groupby, islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.encoding.index_keys import KeyBatch
from pocketmq.store.encoding.key_hash import key_hash
from pocketmq.store.errors import DiskFull
from pocketmq.store.files import Files
from pocketmq.store.index.index_file import IndexFile
from pocketmq.store.index.index_layout import file_size
from tests.store.conftest import FailingFiles

SLOTS, CAPACITY = 7, 40
ALL_TIME = (0, 2**63 - 1)

#: hash, physical offset, store timestamp (ms)
Key = tuple[int, int, int]


def batch(keys: list[Key]) -> KeyBatch:
    columns = np.array(keys, np.int64).reshape(-1, 3).T
    return KeyBatch(*columns)


def select(file: IndexFile, key: int, most: int, begin: int, end: int) -> list[int]:
    """The physical offsets of up to `most` messages."""
    found = (physical for physical in file.search(key, begin, end) if physical is not None)
    return list(islice(found, most))


class Model:
    """The file as the reference writes it: key by key."""

    def __init__(self, end_timestamp: int = 0, end_offset: int = 0) -> None:
        self.times = [end_timestamp, end_timestamp]
        self.offsets = [end_offset, end_offset]
        self.slots = [0] * SLOTS
        self.entries = [(0, 0, 0, 0)]
        self.used = 0

    def put(self, key: Key) -> None:
        hashed, physical, timestamp = key
        slot = hashed % SLOTS
        seconds = 0
        if self.times[0] > 0:
            seconds = min(max(0, int((timestamp - self.times[0]) / 1000)), 2**31 - 1)
        self.entries.append((hashed, physical, seconds, self.slots[slot]))
        if not self.slots[slot]:
            self.used += 1
        self.slots[slot] = len(self.entries) - 1
        if len(self.entries) == 2:
            self.times[0], self.offsets[0] = timestamp, physical
        self.times[1], self.offsets[1] = timestamp, physical

    def content(self) -> bytes:
        head = struct.pack(">4q2i", *self.times, *self.offsets, self.used, len(self.entries))
        slots = struct.pack(f">{SLOTS}i", *self.slots)
        entries = b"".join(struct.pack(">iqii", *entry) for entry in self.entries)
        return (head + slots + entries).ljust(file_size(SLOTS, CAPACITY), b"\0")


keys = st.tuples(
    st.integers(0, 20) | st.integers(0, 2**31 - 1),
    st.integers(0, 2**62),
    st.integers(1, 60_000) | st.integers(1, 2**50),
)


@given(st.lists(st.lists(keys, max_size=12), max_size=5), st.integers(0, 2**40))
def test_many_at_once_equal_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Key]], before: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "20260101000000000"
    previous = None
    if before:
        previous = IndexFile.create(Files(), path.with_name("1"), SLOTS, CAPACITY, None)
        previous.append(batch([(1, before, before)]))
    file = IndexFile.create(Files(), path, SLOTS, CAPACITY, previous)
    model = Model(before, before)
    for several in batches:
        taken = file.append(batch(several))
        assert taken == min(len(several), CAPACITY - len(model.entries))
        for key in several[:taken]:
            model.put(key)
    count, full = file.count, len(model.entries) == CAPACITY
    assert file.full == full
    if count > 1 or before:
        # A reference file has its count only once there is an entry; both read as empty.
        assert path.read_bytes() == model.content()
    assert file.file.close()
    again = IndexFile(Files().open(path, 0, file_size(SLOTS, CAPACITY)), SLOTS, CAPACITY)
    assert (again.count, again.end_offset) == (count, model.offsets[1])
    assert again.file.close()


@given(st.lists(keys, max_size=39), st.integers(0, 20), st.integers(1, 40))
def test_selecting_finds_the_newest_of_a_key(
    tmp_path_factory: pytest.TempPathFactory, entered: list[Key], wanted: int, most: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "20260101000000000"
    file = IndexFile.create(Files(), path, SLOTS, CAPACITY, None)
    file.append(batch(entered))
    found = [physical for hashed, physical, _ in entered if hashed == wanted]
    found = [physical for physical, _ in groupby(found)]  # a message with several keys is one
    assert select(file, wanted, most, *ALL_TIME) == found[::-1][:most]
    assert file.file.close()


def small_file(tmp_path: Path, entered: list[Key], files: Files | None = None) -> IndexFile:
    file = IndexFile.create(files or Files(), tmp_path / "f", SLOTS, CAPACITY, None)
    file.append(batch(entered))
    return file


def test_times_bound_what_is_found(tmp_path: Path) -> None:
    base = 1_000_000
    file = small_file(tmp_path, [(5, n, base + n * 1000) for n in range(10)])
    assert select(file, 5, 64, base + 3000, base + 5000) == [5, 4, 3]
    assert select(file, 5, 64, base + 3000, base + 5999) == [5, 4, 3]
    assert select(file, 5, 2, base, base + 5000) == [5, 4]
    assert select(file, 5, 64, base + 9001, base + 9999) == []
    for span, matches in (
        ((0, base - 1), False),
        ((0, base), True),
        ((base + 4000, base + 4000), True),
        ((base + 9000, base + 99_000), True),
        ((base + 9001, base + 99_000), False),
        ((0, base * 9), True),
    ):
        assert file.matches_time(*span) is matches


def test_the_first_entry_has_its_own_time(tmp_path: Path) -> None:
    """In the file it is related to the end of the file before, as the reference writes it."""
    before = small_file(tmp_path, [(5, 1, 1_000_000)])
    file = IndexFile.create(Files(), tmp_path / "next", SLOTS, CAPACITY, before)
    file.append(batch([(5, 2, 1_007_000), (5, 3, 1_008_000)]))
    assert select(file, 5, 64, 0, 1_007_000) == [2]
    assert select(file, 5, 64, 1_007_500, 1_020_000) == [3]


def test_a_long_chain_is_searched_without_following_it(tmp_path: Path) -> None:
    """All are found, in the order of the chain."""
    slots, capacity = 7, 300_000
    file = IndexFile.create(Files(), tmp_path / "f", slots, capacity, None)
    keys = [(5 + slots * (n % 1000 > 0), n // 2 + 1, 1_000_000 + n * 10) for n in range(200_000)]
    file.append(batch(keys))
    wanted = [physical for key, physical, _ in keys if key == 5][::-1]
    steps = list(file.search(5, *ALL_TIME))
    assert [physical for physical in steps if physical is not None] == wanted
    assert steps.count(None) < 200
    times = 1_500_000, 1_700_999
    expected = [
        physical
        for key, physical, time in keys[::-1]
        if key == 5 and (times[0] <= 1_000_000 + (time - 1_000_000) // 1000 * 1000 <= times[1])
    ]
    assert select(file, 5, 10**6, *times) == expected


def test_a_damaged_chain_ends(tmp_path: Path) -> None:
    file = small_file(tmp_path, [(5, 1, 1000), (5, 2, 2000)])
    last = 40 + SLOTS * 4 + 2 * 20
    file.file.map[last + 16 : last + 20] = struct.pack(">i", 2)  # to itself
    assert select(file, 5, 64, *ALL_TIME) == [2]
    file.file.map[last + 16 : last + 20] = struct.pack(">i", 39)  # behind the last one
    assert select(file, 5, 64, *ALL_TIME) == [2]
    file.file.map[40 + 5 * 4 : 44 + 5 * 4] = struct.pack(">i", 2**31 - 1)
    assert select(file, 5, 64, *ALL_TIME) == []


def test_remains_in_a_slot_are_no_chain(tmp_path: Path) -> None:
    file = small_file(tmp_path, [])
    file.file.map[40 + 5 * 4 : 44 + 5 * 4] = struct.pack(">i", 33)
    file.append(batch([(5, 7, 1000), (5, 8, 1000)]))
    assert select(file, 5, 64, *ALL_TIME) == [8, 7]


def test_an_impossible_header_is_refused(tmp_path: Path) -> None:
    file = small_file(tmp_path, [])
    for at, value in ((36, CAPACITY + 1), (32, SLOTS + 1), (24, -1)):
        file.file.map[0:40] = bytes(40)
        file.file.map[at : at + 4] = struct.pack(">i", value)
        with pytest.raises(ValueError, match="used slots"):
            IndexFile(file.file, SLOTS, CAPACITY)


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    files = FailingFiles()
    file = IndexFile.create(files, tmp_path / "f", SLOTS, CAPACITY, None)
    before = bytes(file.file.map)
    files.full = True
    with pytest.raises(DiskFull):
        file.append(batch([(1, 1, 1)]))
    assert bytes(file.file.map) == before
    files.full = False
    assert file.append(batch([(1, 1, 1)])) == 1


def test_a_closed_file_finds_nothing(tmp_path: Path) -> None:
    file = small_file(tmp_path, [(5, 1, 1000)])
    assert file.file.close()
    assert select(file, 5, 64, *ALL_TIME) == []


def test_hashes_are_those_of_java_made_positive() -> None:
    assert key_hash("T", "k") == 81_916  # "T#k".hashCode()
    assert key_hash("Topic", "7F0000010000") == 1_419_340_636  # its hash is negative
