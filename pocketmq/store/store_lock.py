"""The `lock` file keeps other processes out of a store; the `abort` file reveals a crash.

`lock` is locked as the reference's Java code locks it (a POSIX record lock on its first byte), so
that neither broker opens what the other has open. `abort` holds the process id and exists while
the store is open: found at start, it means that the last process did not close it.

The directory of the commit log is locked by itself (`flock`): storePathCommitLog may lead two
stores to the same one.

The directory of the index is locked in the same way while a process that the broker started writes
there (`index_worker`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
import sys
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Final

from pocketmq.store.errors import StoreLocked
from pocketmq.store.file_copies import open_regular
from pocketmq.store.files import Files, is_full, read_small

log = logging.getLogger(__name__)

LOCK_FILE: Final = "lock"
ABORT_FILE: Final = "abort"
_UNLOCK_SECONDS: Final = 30.0
_UNKNOWN: Final = 0  # of process ids

# POSIX record locks do not exclude the process that holds them. A forked child does not hold them.
_locked_here: set[tuple[int, Path]] = set()


class StoreLock:
    """The right to write to the store at `root`, and to its commit log in `log_directory`."""

    def __init__(self, files: Files, root: Path, log_directory: Path) -> None:
        self._files = files
        self._root = root
        self._log_directory = log_directory
        self._abort = root / ABORT_FILE
        self._fd = -1
        self._log_fd = -1

    @property
    def aborted(self) -> bool:
        """True when the last process that had the store did not close it."""
        return self._abort.exists()

    def acquire(self) -> None:
        """Raises `StoreLocked` when another process, or another store of this one, has either."""
        self._acquire_root()
        try:
            self._acquire_log()
        except BaseException:
            self.release()
            raise

    def _acquire_root(self) -> None:
        root = self._root.resolve()
        process = os.getpid()
        if (process, root) in _locked_here:
            raise StoreLocked(self._root, str(process))
        fd = open_regular(self._root / LOCK_FILE, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            with contextlib.suppress(OSError):  # on a full disk it does without
                os.pwrite(fd, b"lock", 0)  # what the reference writes, too
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise StoreLocked(self._root, self._holder()) from None
            raise
        self._fd = fd
        _locked_here.add((process, root))

    def _acquire_log(self) -> None:
        directory = self._log_directory
        self._files.make_directory(directory)
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise StoreLocked(directory, what="commit log") from None
        except OSError as error:  # a file system without such locks
            log.warning(
                "%s cannot be locked; make sure that no other broker uses it: %s", directory, error
            )
        self._log_fd = fd

    def mark_open(self) -> None:
        """Leave the trace of a crash until `mark_closed` removes it. On a full disk the trace that
        a crash has left will do. Raises OSError."""
        try:
            self._files.replace(self._abort, str(os.getpid()).encode())
        except OSError as error:
            if not (is_full(error) and self.aborted):
                raise
        self._files.sync_directory(self._root)

    def mark_closed(self) -> None:
        """Everything is on the disk: the next start is a clean one."""
        self._files.remove(self._abort)
        self._files.sync_directory(self._root)

    def release(self) -> None:
        """Let others in. Does nothing when the lock is not held."""
        if self._log_fd >= 0:
            os.close(self._log_fd)
            self._log_fd = -1
        if self._fd >= 0:
            os.close(self._fd)  # which gives up the record lock
            self._fd = -1
            _locked_here.discard((os.getpid(), self._root.resolve()))

    def _holder(self) -> str | None:
        content = self._files.read(self._abort)
        text = content.decode("ascii", "replace").strip() if content else ""
        return text if text.isdigit() else None


def is_locked(root: Path) -> bool:
    """Return whether a process has the store at `root` open.

    On Linux it never takes the lock itself: a broker that starts at that moment would be refused.
    """
    return _holder_of_lock(root) is not None


class Recovery(Enum):
    """Whether the queues of a store are as a broker has left them, or may be empty at their ends.

    Attributes:
        NONE: they are, or a broker has recovered them.
        UNDER_WAY: a broker is recovering them.
        PERHAPS: a broker has the store open, and may be recovering them: it cannot be seen from
            here, as on another machine.
        AHEAD: a broker was killed, and none has the store open.
    """

    NONE = "none"
    UNDER_WAY = "under way"
    PERHAPS = "perhaps"
    AHEAD = "ahead"


def recovery_of(root: Path) -> Recovery:
    """Return how far the recovery of the store at `root` is: a broker writes its process id into
    `abort` when it has recovered."""
    holder = _holder_of_lock(root)
    try:
        text = read_small(root / ABORT_FILE).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return Recovery.NONE  # closed cleanly
    if holder is None:
        return Recovery.AHEAD
    names = _names_of(holder)
    if not names:
        return Recovery.PERHAPS
    return Recovery.NONE if text in names else Recovery.UNDER_WAY


def may_recover(root: Path) -> bool:
    """Return whether the process that has the store at `root` open may still be recovering it."""
    return recovery_of(root) in (Recovery.UNDER_WAY, Recovery.PERHAPS)


def _names_of(process: int) -> set[str]:
    """Return the ids of a process: it has another one in each container that it is in. None are
    known of a process that cannot be seen from here."""
    if process == _UNKNOWN:
        return set()
    if process == os.getpid():
        return {str(process)}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text("ascii", "replace").splitlines():
            if line.startswith("NSpid:"):
                return set(line.split()[1:])
    return set()


def _holder_of_lock(root: Path) -> int | None:
    """Return the id of the process that has the store at `root` open, or `_UNKNOWN`; None if no
    process has."""
    path = root / LOCK_FILE
    if not path.exists():
        return None
    if (os.getpid(), root.resolve()) in _locked_here:
        return os.getpid()  # asking for the lock would end it
    access = os.O_RDONLY if sys.platform == "linux" else os.O_RDWR
    with os.fdopen(open_regular(path, access), "rb" if access == os.O_RDONLY else "r+b") as file:
        if sys.platform != "linux":
            try:
                fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            except OSError:
                return _UNKNOWN
            return None
        layout = "hhqqi"  # struct flock: type, whence, start, length, pid
        asked = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        answer = struct.unpack(layout, fcntl.fcntl(file.fileno(), fcntl.F_GETLK, asked))
        if answer[0] == fcntl.F_UNLCK:
            return None
        return int(answer[4]) if answer[4] > 0 else _UNKNOWN


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
    """Wait until the lock of a directory of the store at `root` is free: a process that outlives
    its killed broker holds it for some milliseconds. Raises StoreLocked when it keeps the lock for
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
            return  # the directory is missing, or cannot be locked
