"""The process that `index_worker` starts: `python -m store.index_process`, arguments as there.

It reads lines of four physical offsets: where the log begins, from where on and up to where its
messages are to be entered, and where the last of them ends; it answers each with the offset that it
reached. It ends when its input does, or when anything fails, which it says instead of an answer.
It imports little, so that it starts quickly.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Final, NamedTuple

from pocketmq.store.errors import StoreError
from pocketmq.store.files import Files, Retirement
from pocketmq.store.index.index_builder import IndexBuilder
from pocketmq.store.index.index_table import IndexTable
from pocketmq.store.log.checkpoint import Checkpoint

# It uses the CPU time that the event loop and its clients leave.
_NICENESS: Final = 5


class _LogFile(NamedTuple):
    path: Path
    base_offset: int
    view: memoryview


class _Log:
    """The commit log of a broker, mapped read-only, one file at a time.

    Attributes:
        first_offset: physical offset at which it begins.
    """

    def __init__(self, directory: Path, file_size: int) -> None:
        self.first_offset = 0
        self._directory = directory
        self._file_size = file_size
        self._file: _LogFile | None = None

    def find(self, offset: int) -> _LogFile | None:
        base = offset - offset % self._file_size
        if self._file is None or self._file.base_offset != base:
            path = self._directory / f"{base:020d}"
            self._file = None
            try:
                with path.open("rb") as file:
                    mapping = mmap(file.fileno(), self._file_size, access=ACCESS_READ)
            except FileNotFoundError:
                return None
            self._file = _LogFile(path, base, memoryview(mapping))
        return self._file


class IndexProcess:
    """What the process does, without the process."""

    def __init__(
        self,
        table: IndexTable,
        log_directory: Path,
        log_file_size: int,
        is_wanted: Callable[[], bool],
    ) -> None:
        """`is_wanted` is asked before anything is written; when it says no, all is left as it
        is."""
        self._table = table
        self._log = _Log(log_directory, log_file_size)
        self._builder = IndexBuilder(table, self._log)
        self._is_wanted = is_wanted

    def enter(self, first: int, begin: int, enough: int, end: int) -> int:
        """Enter messages from the physical offset `begin` on until `enough` is reached, in a log
        from `first` to `end`; returns where that is.

        Raises DiskFull, OSError; and InterruptedError when it is not wanted any more.
        """
        self._log.first_offset = first
        self._table.remove_before(first)
        self._builder.position = begin
        while self._builder.position < enough:
            if not self._is_wanted():
                raise InterruptedError("the broker is gone")
            if not self._builder.turn(end, enough):
                break
        return self._builder.position


def serve(requests: Iterable[str], arguments: list[str]) -> int:
    """Answer requests until the input ends. Returns the exit status."""
    directory, slots, capacity, log_directory, log_file_size, parent = arguments
    files, retired = Files(), Retirement()
    table = IndexTable(
        files,
        Path(directory),
        int(slots),
        int(capacity),
        # Only the broker writes the checkpoint: it is not opened here.
        Checkpoint(files, Path()),
        retired,
        lambda: time.time_ns() // 1_000_000,
    )
    broker = int(parent)
    process = IndexProcess(
        table, Path(log_directory), int(log_file_size), lambda: os.getppid() == broker
    )
    loaded = False
    try:
        for line in requests:
            if not loaded:
                table.load(clean=True)
                loaded = True
            first, begin, enough, end = map(int, line.split())
            answer = process.enter(first, begin, enough, end)
            retired.sweep()
            print(answer, flush=True)
    except (StoreError, OSError, MemoryError) as error:
        with contextlib.suppress(OSError):
            print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)
        return 1
    return 0


def main() -> int:
    """Run the process."""
    # Stopping a broker may signal all of its processes; this one ends when its input does.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICENESS)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return serve(sys.stdin, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
