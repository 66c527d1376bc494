"""The `lock` file keeps other processes out of a store; the `abort` file reveals a crash.

`lock` is locked as the reference's Java code locks it (a POSIX record lock on its first byte), so
that neither broker opens what the other has open. `abort` holds the process id and exists while
the store is open: found at start, it means that the last process did not close it.

The directory of the index is locked by itself (`flock`) while a process that the broker started
writes there (`index_worker`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pocketmq.store.errors import StoreLocked
from pocketmq.store.files import Files

LOCK_FILE: Final = "lock"
ABORT_FILE: Final = "abort"
_UNLOCK_SECONDS: Final = 30.0

# POSIX record locks do not exclude the process that holds them.
_locked_here: set[Path] = set()


class StoreLock:
    """The right to write to the store at `root`."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files = files
        self._root = root
        self._abort = root / ABORT_FILE
        self._fd = -1

    @property
    def aborted(self) -> bool:
        """True when the last process that had the store did not close it."""
        return self._abort.exists()

    def acquire(self) -> None:
        """Raises `StoreLocked` when another process, or another store of this one, has it."""
        root = self._root.resolve()
        if root in _locked_here:
            raise StoreLocked(self._root, str(os.getpid()))
        fd = os.open(self._root / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(fd, b"lock", 0)  # what the reference writes, too
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise StoreLocked(self._root, self._holder()) from None
            raise
        self._fd = fd
        _locked_here.add(root)

    def mark_open(self) -> None:
        """Leave the trace of a crash until `mark_closed` removes it."""
        self._files.replace(self._abort, str(os.getpid()).encode())
        self._files.sync_directory(self._root)

    def mark_closed(self) -> None:
        """Everything is on the disk: the next start is a clean one."""
        self._files.remove(self._abort)
        self._files.sync_directory(self._root)

    def release(self) -> None:
        """Let others in. Does nothing when the lock is not held."""
        if self._fd >= 0:
            os.close(self._fd)  # which gives up the record lock
            self._fd = -1
            _locked_here.discard(self._root.resolve())

    def _holder(self) -> str | None:
        content = self._files.read(self._abort)
        text = content.decode("ascii", "replace").strip() if content else ""
        return text if text.isdigit() else None


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[int]:
    """Hold the lock of a directory, and yield the descriptor that holds it.

    A process that inherits the descriptor keeps the lock until it ends. Raises OSError, and
    BlockingIOError when another process has the lock.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


def wait_until_unlocked(root: Path, directory: Path, timeout: float = _UNLOCK_SECONDS) -> None:
    """Wait until the lock of a directory of the store at `root` is free: a process that a killed
    broker left behind has it for some milliseconds. Raises StoreLocked when it keeps the lock for
    `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            with locked(directory):
                return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreLocked(root) from None
            time.sleep(0.01)
        except OSError:
            return  # there is no such directory, or it cannot be locked at all
