"""`write_snapshot`: a copy of a store, also of one that a broker has open.

The parts are copied in this order, so that each fits the later ones as after a crash:

1. Progress (consumer offsets, delay levels, timed messages): it must not be ahead of the log, or
   messages would not be delivered. Where it lags, messages are delivered again.
2. The checkpoint: what it says of queues and log holds for those that are copied later.
3. The timer wheel, then the timer log: what the wheel does not know yet is linked at the start.
4. The consume queues, without the entries that recovery makes again, and the full index files.
5. The commit log, which then has every message that the earlier parts point at.
6. The tables of topics and groups once more: they have every topic of the log.

A file is linked only when neither broker ever changes it again: files of the commit log below the
flushed offset, and index files that the checkpoint vouches for. A repair breaks the link first
(`Files.unshare`). Consume queues are always copied: recovery cuts them.

Everything is gathered in a directory beside the target, which gets its name when all of it is on
the disk. So a snapshot exists as a whole or not at all.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

from pocketmq.store.check.dry_files import DryFiles
from pocketmq.store.check.store_check import sized
from pocketmq.store.config import StoreConfig
from pocketmq.store.encoding.entry_array import ENTRY_DTYPE
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT as UNIT
from pocketmq.store.errors import FileSizeMismatch, StoreError
from pocketmq.store.file_copies import read_settled, remove_tree, sync_tree
from pocketmq.store.files import Files
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.queue.batch_topics import batch_topics
from pocketmq.store.queue.bounds_text import BOUNDS_FILE
from pocketmq.store.queue.consume_queue import FILLER_SIZE
from pocketmq.store.queue.queue_begins import BEGINS_FILE
from pocketmq.store.snapshot.copied_files import CopiedFiles
from pocketmq.store.snapshot.log_copy import LogCopy
from pocketmq.store.store_lock import ABORT_FILE, LOCK_FILE, is_locked

#: What is copied once more after the commit log.
_LATE_TABLES: Final = frozenset({"topics.json", "subscriptionGroup.json"})
_QUEUES: Final = ("consumequeue", "batchconsumequeue")
_OWN: Final = frozenset({LOCK_FILE, ABORT_FILE, "damaged"})
_INDEX_TIMES: Final = struct.Struct(">8xq").unpack_from
_PROCESS: Final = b"0"  # in the abort file, where the id of a process is


class TargetNotEmpty(StoreError):
    """A snapshot never writes into a directory that has anything in it."""

    def __init__(self, target: Path, reason: str) -> None:
        super().__init__(f"{target} {reason}: name a directory that does not exist yet")


class Snapshot(Struct, kw_only=True):
    """The result of a copy.

    Attributes:
        store, target: the directories.
        linked: files that both have, so that they take no room of their own.
        copied: the other files.
        bytes: of these, without zeros.
        begin, end: physical offsets of the commit log.
        left_out: what lies in the store's directory but does not belong to a store, or not to a
            snapshot.
    """

    store: str
    target: str
    linked: int
    copied: int
    bytes: int
    begin: int
    end: int
    left_out: list[str]


def write_snapshot(
    config: StoreConfig, target: Path, advanced: Callable[[int], None] = lambda _: None
) -> Snapshot:
    """Copy the store at `config.root` to the directory `target`, which must not exist or be empty.
    A broker may have the store open. The commit log goes to `target`/commitlog, wherever it is.

    `advanced` is called with the bytes of the commit log that were copied or linked since the last
    call.

    Raises:
        TargetNotEmpty: `target` is not empty, or is within the store.
        NotAFile: a directory has the name of a file of the log.
        OSError: the store cannot be read, or the copy cannot be written.
    """
    config = sized(config)
    files = Files()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise TargetNotEmpty(target, "exists and is not an empty directory")
    place = target.absolute()
    for directory in (config.root, config.commit_log_directory):
        if place.resolve().is_relative_to(directory.resolve()):
            raise TargetNotEmpty(target, f"lies within {directory}")
    files.make_directory(place.parent)
    draft = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        draft.chmod(config.root.stat().st_mode & 0o777)
        snapshot = _Copying(config, files, draft, advanced).run()
        sync_tree(draft)
        files.move(draft, place)
    except BaseException:
        remove_tree(draft)
        raise
    snapshot.target = str(target)
    return snapshot


class _Copying:
    def __init__(
        self, config: StoreConfig, files: Files, target: Path, advanced: Callable[[int], None]
    ) -> None:
        self._config = config
        self._root = config.root
        self._files = files
        self._target = target
        self._copied = CopiedFiles(files, advanced)
        self._left_out: list[Path] = []
        # The content of the snapshot's checkpoint; None when another broker has written to the
        # store since.
        self._flushed: int | None = None
        self._entered: int | None = None
        self._index_time = 0

    def run(self) -> Snapshot:
        config, copied = self._config, self._copied
        opened = is_locked(self._root)
        # First, so that whatever happens this never looks like a store that was closed.
        copied.put(self._target / ABORT_FILE, _PROCESS)
        self._tables(late=False)
        self._checkpoint()
        self._timers()
        self._queues()
        self._index()
        log = LogCopy(
            config.commit_log_directory, config.mapped_file_size_commit_log,
            flushed=self._flushed, open=opened,
        )  # fmt: skip
        target = self._target / "commitlog"
        self._files.make_directory(target)
        log.run(target, copied)
        self._tables(late=True)
        self._left_out += log.strange
        self._left_out += sorted(path for path in self._root.iterdir() if not self._is_known(path))
        return Snapshot(
            store=str(self._root), target=str(self._target), linked=copied.linked,
            copied=copied.copied, bytes=copied.bytes, begin=log.begin, end=log.end,
            left_out=[str(path) for path in self._left_out],
        )  # fmt: skip

    def _is_known(self, path: Path) -> bool:
        names = {"config", "checkpoint", "timerwheel", "timerlog", "index", *_QUEUES, *_OWN}
        names |= {BOUNDS_FILE, BEGINS_FILE}
        return path.name in names or path == self._config.commit_log_directory

    def _tables(self, *, late: bool) -> None:
        directory = self._root / "config"
        if not directory.is_dir():
            return
        self._files.make_directory(self._target / "config")
        found = list(directory.iterdir())
        if late:
            self._left_out += sorted(path for path in found if path.is_dir())
        # For a moment, a table that is being written exists only as its backup.
        names = {path.name.removesuffix(".bak") for path in found if path.is_file()}
        names = {name for name in names if not name.endswith(".tmp")}
        for name in sorted(names & _LATE_TABLES if late else names):
            self._small(directory / name)
            if (directory / f"{name}.bak").exists():
                self._small(directory / f"{name}.bak")

    def _small(self, path: Path) -> None:
        found = read_settled(path)
        if found is not None:
            # One of them has users and their passwords, which others may not read.
            self._copied.put(self._target / path.relative_to(self._root), *found)

    def _checkpoint(self) -> None:
        path = self._root / "checkpoint"
        if not path.exists():
            return
        self._small(path)
        for name in (BOUNDS_FILE, BEGINS_FILE):
            if (self._root / name).exists():
                self._small(self._root / name)
        checkpoint = Checkpoint(DryFiles(), self._target / "checkpoint")
        with suppress(FileSizeMismatch):
            checkpoint.open()
            if checkpoint.exact:
                self._flushed = checkpoint.confirm_physical_offset
                self._entered = checkpoint.entered_offset
                self._index_time = checkpoint.index_timestamp
            checkpoint.close()

    def _timers(self) -> None:
        if not (self._target / "config" / "timercheck").exists():
            return  # the first timed message came meanwhile; a start enters it again
        wheel = self._root / "timerwheel"
        if wheel.exists():
            self._copied.copy(wheel, self._target / "timerwheel")
        if (self._root / "timerlog").is_dir():
            self._copied.run(self._root / "timerlog", self._target / "timerlog")

    # --- the queues ---------------------------------------------------------------------------

    def _queues(self) -> None:
        foreign: frozenset[str] = frozenset()
        with suppress(StoreError):  # the table is damaged
            foreign = batch_topics(self._target)
        for kind in _QUEUES:
            for topic in _directories(self._root / kind):
                name = topic.name
                ours = kind == "consumequeue"
                for queue in _directories(topic):
                    target = self._target / queue.relative_to(self._root)
                    with suppress(FileNotFoundError):
                        self._copied.run(
                            queue, target, self._end_of if ours and name not in foreign else _all
                        )
                    if not queue.exists():  # its topic was deleted meanwhile
                        remove_tree(target)

    def _end_of(self, path: Path) -> int | None:
        """Return where the copied entries of a queue file end: recovery makes those of messages
        after `entered` again, and the last one may be half written. A file that is too large is
        damaged, and copied as it is (None)."""
        if path.stat().st_size > self._config.consume_queue_file_size:
            return None
        entries = np.fromfile(path, ENTRY_DTYPE)
        size = entries["size"]
        used = size > 0
        if self._entered is not None:
            used &= (entries["physical"] < self._entered) | (size == FILLER_SIZE)
        numbers = np.flatnonzero(used)
        return (int(numbers[-1]) + 1) * UNIT if len(numbers) else 0

    # --- the index ----------------------------------------------------------------------------

    def _index(self) -> None:
        """Take the files that are full and on the disk; the start rebuilds the others."""
        source, target = self._config.index_directory, self._target / "index"
        if not source.is_dir() or not self._index_time:
            return
        self._files.make_directory(target)
        for path in sorted(source.iterdir())[:-1]:
            with suppress(FileNotFoundError):
                ended = _INDEX_TIMES(_head(path))[0]
                if ended < self._index_time:
                    self._copied.link(path, target / path.name)
                elif ended == self._index_time:
                    self._copied.copy(path, target / path.name)
                else:
                    return


def _all(path: Path) -> int | None:
    return None


def _directories(path: Path) -> list[Path]:
    """Return the directories in one that may be missing. Raises OSError, where `glob` would leave
    out what cannot be read."""
    try:
        return sorted(each for each in path.iterdir() if each.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(16).ljust(16, b"\0")
