"""Copies a commit log that may grow in the meantime.

The part before the flushed offset of the checkpoint never changes again: a start refuses to cut the
log there. Files entirely before it are linked. The others are copied, the last one up to the end of
its last whole record, since an incomplete one was not acknowledged.
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Final

from pocketmq.message.record_layout import peek
from pocketmq.store.check.dry_files import DryFiles
from pocketmq.store.check.log_check import LogFile, has_data, list_files
from pocketmq.store.files import Retirement, check_places
from pocketmq.store.log.log_walk import LogWalk
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.snapshot.copied_files import CopiedFiles

_TRIES: Final = 100
_PAUSE_SECONDS: Final = 0.01


class LogCopy:
    """The copy of one commit log with files of `file_size`.

    `flushed` is the physical offset up to which the log never changes; None when nobody knows.
    `open`: a broker is writing to it.

    Attributes:
        begin, end: physical offsets of the copied part.
        strange: files that do not belong to the log, and are not copied.
    """

    def __init__(self, directory: Path, file_size: int, *, flushed: int | None, open: bool) -> None:
        """Raises NotAFile: a directory has the name of a file of the log."""
        self._directory = directory
        self._file_size = file_size
        self._flushed = flushed
        self._open = open
        check_places((), directory.glob("[0-9]" * 20))
        files, self.strange = list_files(directory, file_size)
        self._files = [file for file in files if file.size]
        while len(self._files) > 1 and not has_data(self._files[-1]):
            self._files.pop()  # made ahead
        self.begin = self.end = self._files[0].base if self._files else 0

    def run(self, target: Path, copied: CopiedFiles) -> None:
        """Copy it to a directory. Raises OSError."""
        if not self._files:
            return
        end = self._find_end()
        behind = self._files[-1].base + self._file_size
        self.end = behind if end is None else end
        # The newest first: the oldest may expire in the meantime.
        for file in reversed(self._files):
            try:
                if self._never_changes(file):
                    copied.link(file.path, target / file.path.name)
                elif file.base < self.end:
                    copied.copy(file.path, target / file.path.name, self.end - file.base, told=True)
            except FileNotFoundError:
                return
            self.begin = file.base

    def _never_changes(self, file: LogFile) -> bool:
        behind = file.base + self._file_size
        return (
            file.size == self._file_size and self._flushed is not None and (behind <= self._flushed)
        )

    def _find_end(self) -> int | None:
        """Return the physical offset after the last whole record; None when the log is damaged at
        its end, or was left so by a crash: then recovery must judge it."""
        files = self._files
        start = files[-1].base
        if self._flushed is not None:
            start = max(self._flushed, files[0].base)
        behind = [file for file in files if file.base + self._file_size > start]
        if any(file.size != self._file_size for file in behind):
            return None
        retired = Retirement()
        run = MappedFileQueue(
            DryFiles(), self._directory, self._file_size, "mappedFileSizeCommitLog", retired
        )
        try:
            for file in behind:
                run.append(DryFiles().open(file.path, file.base, file.size))
            walk = self._walk(run, start)
            if walk is None or (not self._open and walk.remains()):
                return None
            return walk.reached
        finally:
            run.close()
            retired.sweep()

    @staticmethod
    def _walk(run: MappedFileQueue, start: int) -> LogWalk | None:
        """Walk to the end of the log; None when there is damage."""
        for _ in range(_TRIES):
            walk = LogWalk(run, start)
            deque(walk, 0)
            file = run.find(walk.end)
            # The first four bytes of a write are written last.
            if (
                walk.reason is None
                or file is None
                or not _size_at(file.view, walk.end - file.base_offset)
            ):
                return walk
            start = walk.end
            time.sleep(_PAUSE_SECONDS)
        return None


def _size_at(view: memoryview, at: int) -> int:
    return peek(view, at)[0]
