"""Looks whether the entries of index files point at records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from pocketmq.message.record_layout import MAGIC_V1, MAGIC_V2, MIN_RECORD
from pocketmq.store.check.dry_files import DryFiles
from pocketmq.store.check.log_check import LogFile
from pocketmq.store.index.index_file import IndexFile
from pocketmq.store.index.index_layout import ENTRY_SIZE, entries_at, file_size

_NAME: Final = re.compile(r"[0-9]{17}")
_ENTRY: Final = np.dtype([("hash", ">i4"), ("physical", ">i8"), ("time", ">i4"), ("next", ">i4")])
_AT_ONCE: Final = 1 << 20


class IndexProblem(NamedTuple):
    """What is wrong with an index file. It is derived from the log: a start, or a repair, builds
    it again."""

    path: Path
    reason: str


def check_index(
    directory: Path, slots: int, capacity: int, files: Sequence[LogFile]
) -> tuple[int, list[IndexProblem]]:
    """Return how many entries the index of a log with `files` has, and what is wrong with it."""
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
        found = np.frombuffer(mapped.view, _ENTRY, count, at)["physical"].astype(np.int64)
        mapped.close()
        lost = _lost(found, files)
        if lost:
            problems.append(IndexProblem(path, f"{lost} of {count} entries point at no message"))
    return entries, problems


def _lost(physical: Any, files: Sequence[LogFile]) -> int:
    """Return how many of these physical offsets have no record, of those that have not expired."""
    begin = files[0].base if files else 0
    physical = np.sort(physical[physical >= begin], kind="stable")  # it is sorted, but for damage
    physical = physical[np.flatnonzero(np.diff(physical, prepend=-1))]
    lost = len(physical)
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
            lost -= int(np.count_nonzero(good))
        finally:
            mapped.close()
    return lost
