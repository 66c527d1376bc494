"""Looks whether the entries of index files point at records, and are of keys of these."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from pocketmq.message.record_layout import MAGIC_V1, MAGIC_V2, MIN_RECORD
from pocketmq.store.check.dry_files import DryFiles
from pocketmq.store.check.log_check import LogFile
from pocketmq.store.encoding.index_keys import IntArray, keys_of
from pocketmq.store.index.index_file import IndexFile
from pocketmq.store.index.index_layout import ENTRY_SIZE, entries_at, file_size

_NAME: Final = re.compile(r"[0-9]{17}")
_ENTRY: Final = np.dtype([("hash", ">i4"), ("physical", ">i8"), ("time", ">i4"), ("next", ">i4")])
_KEYS_AT_ONCE: Final = 1 << 16
_HASH_BITS: Final = 31


class IndexProblem(NamedTuple):
    """What is wrong with an index file. If it is `derived`, only the file is damaged: a start, or a
    repair, rebuilds it from the log."""

    path: Path
    reason: str
    derived: bool = True


def check_index(
    directory: Path, slots: int, capacity: int, files: Sequence[LogFile]
) -> tuple[int, list[IndexProblem]]:
    """Return the number of entries in the index of a log with `files`, and its problems."""
    paths = sorted(directory.iterdir()) if directory.is_dir() else []
    entries = 0
    problems = []
    for path in paths:
        if not _NAME.fullmatch(path.name) or not path.is_file():
            continue
        size, expected = path.stat().st_size, file_size(slots, capacity)
        if size != expected:
            reason = f"{size} bytes, but maxHashSlotNum and maxIndexNum make {expected}"
            problems.append(IndexProblem(path, reason))
            continue
        mapped = DryFiles().open(path, 0, size)
        try:
            index = IndexFile(mapped, slots, capacity)
        except ValueError as error:
            problems.append(IndexProblem(path, str(error)))
            mapped.close()
            continue
        count = index.count - 1
        entries += count
        at = entries_at(slots) + ENTRY_SIZE
        found = np.frombuffer(mapped.view, _ENTRY, count, at)
        physical, hashes = found["physical"].astype(np.int64), found["hash"].astype(np.int64)
        del found
        mapped.close()
        lost, others = _compare(physical, hashes, files)
        if lost:
            problems.append(IndexProblem(path, f"{lost} of {count} entries point at no message"))
        if len(others):
            reason = (
                f"{len(others)} of {count} entries are of keys that their messages do not have, "
                f"the first one of the message at physical offset {others[0]}: the entries or the "
                "messages are damaged"
            )
            problems.append(IndexProblem(path, reason, derived=False))
    return entries, problems


def _compare(
    physical: IntArray, hashes: IntArray, files: Sequence[LogFile]
) -> tuple[int, list[int]]:
    """Compare entries with the records at their physical offsets, of those that have not expired:
    return how many offsets have no record, and the offsets of records without the key, one for each
    such entry."""
    begin = files[0].base if files else 0
    order = np.argsort(physical, kind="stable")  # it is sorted, but for damage
    order = order[physical[order] >= begin]
    physical, hashes = physical[order], hashes[order]
    lost = len(np.unique(physical))
    others: list[int] = []
    for file in files:
        if file.size < MIN_RECORD:
            continue
        low, high = np.searchsorted(physical, (file.base, file.base + file.size - MIN_RECORD + 1))
        if low == high:
            continue
        mapped = DryFiles().open(file.path, file.base, file.size)
        try:
            at = physical[low:high] - file.base
            magic = np.ndarray((file.size - 3,), ">u4", mapped.view, 0, (1,))[at + 4]
            own = np.ndarray((file.size - 7,), ">i8", mapped.view, 0, (1,))[at + 28]
            good = ((magic == MAGIC_V1) | (magic == MAGIC_V2)) & (own == physical[low:high])
            lost -= len(np.unique(at[good]))
            for first in range(0, len(at), _KEYS_AT_ONCE):
                rows = first + np.flatnonzero(good[first : first + _KEYS_AT_ONCE])
                others += _without_key(mapped.view, file.base, at[rows], hashes[low:high][rows])
        finally:
            mapped.close()
    return lost, others


def _without_key(view: memoryview, base: int, at: IntArray, hashes: IntArray) -> list[int]:
    """Return the physical offsets of the records that do not have the key with the hash beside
    them."""
    if not len(at):
        return []
    keys = keys_of(view, base, np.unique(at).tolist())
    known = keys.physical - base << _HASH_BITS | keys.hash
    wrong = ~np.isin(at << _HASH_BITS | hashes, known)
    offsets: list[int] = (base + at[wrong]).tolist()
    return offsets
