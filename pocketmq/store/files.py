"""The only place of the store that opens, maps, extends, syncs and removes files.

Tests replace `Files` to make the disk full or a flush fail. The rules kept here:

- A file gets its blocks before anything is written through its mapping. A store into the mapping
  of a sparse file on a full disk is a SIGBUS, which nothing catches; ENOSPC at the allocation is
  an error that a send can be answered with.
- Syncing goes through `fdatasync` of the descriptor, never `mmap.flush`: it writes the mapped
  pages as well, and it lets go of the GIL while it waits.
- A mapping is closed only when no slice of it is left. Python refuses with BufferError
  otherwise, and that is taken as the answer "later" (`Retirement`).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import resource
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator
from mmap import ACCESS_DEFAULT, MADV_RANDOM, MADV_WILLNEED, mmap
from pathlib import Path
from typing import Final
from uuid import UUID

from pocketmq.store.errors import (
    DiskFull,
    FileSizeMismatch,
    FileTooLarge,
    NotADirectory,
    NotAFile,
)
from pocketmq.store.file_copies import data_extents, open_regular, unshare

log = logging.getLogger(__name__)

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
MOST_READ: Final = 1 << 30
"""Bytes of a file that is read as a whole: tables of a million topics are smaller."""
_CHUNK: Final = 1024 * 1024
_ZEROS: Final = bytes(_CHUNK)
_MAX_MAP_COUNT: Final = Path("/proc/sys/vm/max_map_count")
_USUAL_MAP_COUNT: Final = 65_530
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def is_full(error: OSError) -> bool:
    """Return whether the disk is full, or this user's quota is used up."""
    return error.errno in _FULL


class MappedFile:
    """One file of fixed size, mapped whole and writable.

    Attributes:
        path: its path.
        base_offset: the offset of its first byte within the run of files it belongs to.
        size: bytes.
        map: the mapping; writing into it is writing the file. Not there while it is unmapped.
        view: a memoryview of `map`, to take slices from that share it without a copy.
        unsynced_directories: those that the next sync includes, since its name, or that of a
            directory above it, may not be on the disk.
        used: mapped, and used since this was last set to False; see `queue.queue_mappings`. Always
            true of a file that is never unmapped.
        closed: whether `close` has worked.
    """

    __slots__ = ("_fd", "_files", "_sync_failure", "_sync_lock", "base_offset", "closed", "map",
                 "path", "size", "unsynced_directories", "used", "view")  # fmt: skip

    def __init__(
        self,
        files: Files,
        path: Path,
        fd: int,
        base_offset: int,
        size: int,
        unsynced_directories: tuple[Path, ...] = (),
        access: int = ACCESS_DEFAULT,
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = size
        self.map = mmap(fd, size, access=access)
        self.view = memoryview(self.map)
        self._files = files
        self._fd = fd
        self.used = True
        self.closed = False
        self.unsynced_directories = unsynced_directories
        self._sync_failure: OSError | None = None
        # Held while syncing and closing, which different threads do; never on the way of a message.
        self._sync_lock = threading.Lock()

    def __del__(self) -> None:
        # `close` refuses while a slice is in use, and some slices outlive the store.
        if hasattr(self, "_fd"):  # it could be mapped
            self.save_descriptor()

    def allocate(self, size: int | None = None) -> None:
        """Make sure that the first `size` bytes (by default all) have blocks on the disk: a copied
        file may be sparse, and an index file is created sparse.

        Raises:
            DiskFull: there is no room for missing blocks.
        """
        with self._descriptor() as fd:
            _allocate(self._files, fd, self.path, self.size if size is None else size)

    def save_descriptor(self) -> None:
        """Keep no descriptor but the mapping's own: for files that exist in large numbers. An
        operation that needs one opens the file for a moment."""
        with self._sync_lock:
            self._close_descriptor()

    def keep_descriptor(self) -> None:
        """Undo `save_descriptor`: the file is written to again. Raises OSError."""
        with self._sync_lock:
            if self._fd < 0:
                self._fd = self._files.open_again(self.path)

    def _close_descriptor(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def has_descriptor(self) -> bool:
        """Whether it keeps a descriptor besides the mapping's own."""
        return self._fd >= 0

    @property
    def is_mapped(self) -> bool:
        """Whether `map` and `view` exist."""
        return hasattr(self, "map")

    def unmap(self) -> bool:
        """Give up the mapping and its descriptor until `map_again`, after `save_descriptor`. What
        was written stays written, and slices that are in use keep the mapping for themselves.
        Return False, and do nothing, while the file is being synced."""
        if not self._sync_lock.acquire(blocking=False):
            return False
        try:
            if not self.closed and self.is_mapped:
                del self.view, self.map
            self.used = False
            return True
        finally:
            self._sync_lock.release()

    def map_again(self) -> None:
        """Undo `unmap`. Raises OSError."""
        fd = self._files.open_again(self.path)
        try:
            # Of its size as it was: a shorter file would be a SIGBUS.
            if os.fstat(fd).st_size < self.size:
                raise OSError(errno.EIO, "the file has been cut short", str(self.path))
            self.map = mmap(fd, self.size)
        finally:
            os.close(fd)
        self.view = memoryview(self.map)

    @contextlib.contextmanager
    def _descriptor(self) -> Iterator[int]:
        if self._fd >= 0:
            yield self._fd
            return
        fd = self._files.open_again(self.path)
        try:
            yield fd
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Write what was changed to the disk; to be called off the event loop.

        The first sync of a new file includes its name, and those of new directories above it.
        Does nothing on a closed file.
        Raises OSError when the disk fails; what was written before may then be lost. The kernel
        says so only once, so another try would prove nothing: it raises the same error.
        """
        with self._sync_lock:
            if self.closed:
                return
            if self._sync_failure is not None:
                raise self._sync_failure
            try:
                with self._descriptor() as fd:
                    self._files.fdatasync(fd)
                for directory in self.unsynced_directories:
                    self._files.sync_directory(directory)
            except FileNotFoundError:
                return  # removed meanwhile, with its topic or as expired
            except OSError as error:
                error.filename = error.filename or str(self.path)
                self._sync_failure = error
                raise
            self.unsynced_directories = ()

    def write(self, at: int, data: memoryview) -> None:
        """Write `data` at a byte of the file, past the mapping, which shows it at once.

        What for: a page that is written through a mapping costs a fault, 2 to 10 µs, and its write
        to the disk an interrupt of every processor that runs the process, 10 µs more (measured);
        a page written this way costs 1 µs. Not after `save_descriptor`. Raises OSError.
        """
        self._files.write(self._fd, data, at)

    def read_into(self, at: int, buffer: memoryview) -> None:
        """Read the bytes from `at` on into `buffer`, past the mapping.

        What for: the first look at a page through a mapping costs a fault, which for a log that is
        read once is most of the time: 20 µs for 4 KiB on a busy machine, and 1 µs this way
        (measured). Raises OSError.
        """
        with self._descriptor() as fd:
            if os.preadv(fd, [buffer], at) != len(buffer):
                raise OSError(errno.EIO, "the file has been cut short", str(self.path))

    def expect_random(self) -> None:
        """Tell the kernel not to read ahead when a page that is touched is not in memory: for files
        that are written through the mapping, where nothing is to be read yet. A store into a fresh
        page may take 20 ms otherwise, and a look into a sparse file 6 ms, with 6 MB of memory for
        its holes (measured with 8 MiB of read-ahead)."""
        self.map.madvise(MADV_RANDOM)

    def expect_whole(self, end: int) -> None:
        """Tell the kernel to read the first `end` bytes ahead, all at once."""
        if end:
            self.map.madvise(MADV_WILLNEED, 0, end)

    def data_extents(self, start: int) -> list[tuple[int, int]]:
        """Return the ranges from `start` on that may hold anything but zeros, as (begin, end)
        pairs."""
        if self._fd >= 0:
            return data_extents(self._fd, start, self.size)
        # Without `_descriptor`, which costs as much as the calls: a recovery asks of each queue.
        fd = self._files.open_again(self.path)
        try:
            return data_extents(fd, start, self.size)
        finally:
            os.close(fd)

    def data_end(self) -> int:
        """Return an offset after which there are only zeros; not always the first such offset."""
        return min(max((end for _, end in self.data_extents(0)), default=0), self.size)

    def has_data(self, start: int) -> bool:
        """Return whether any byte from `start` on is not zero."""
        return any(True for _ in self._dirty_chunks(start))

    def zero_from(self, start: int) -> None:
        """Overwrite everything from `start` on with zeros, where it is not zero already."""
        for begin, length in self._dirty_chunks(start):
            self.map[begin : begin + length] = _ZEROS[:length]

    def _dirty_chunks(self, start: int) -> Iterator[tuple[int, int]]:
        extents = self.data_extents(start)
        with self._descriptor() as fd:
            for begin, end in extents:
                for at in range(begin, end, _CHUNK):
                    length = min(_CHUNK, end - at)
                    # Read through the descriptor: touching the mapping would make it resident.
                    if os.pread(fd, length, at) != _ZEROS[:length]:
                        yield at, length

    def close(self) -> bool:
        """Unmap and close; False when a slice is still in use, or a sync is under way."""
        if not self._sync_lock.acquire(blocking=False):
            return False
        try:
            if self.closed:
                return True
            if self.is_mapped:
                try:
                    self.view.release()
                    self.map.close()
                except BufferError:
                    return False
            self._close_descriptor()
            self.closed = True
            return True
        finally:
            self._sync_lock.release()


class Retirement:
    """Files that no longer belong to the store but may still be read: they are closed later.

    `sweep` is called now and then; the last reader's slice keeps the mapping alive until then.
    """

    def __init__(self) -> None:
        self._waiting: list[MappedFile] = []
        self._lock = threading.Lock()  # files are removed on several threads

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, file: MappedFile) -> None:
        """Close `file` now or at a later sweep."""
        if not file.close():
            with self._lock:
                self._waiting.append(file)

    def sweep(self) -> None:
        """Close what can be closed by now."""
        with self._lock:
            self._waiting = [file for file in self._waiting if not file.close()]


class Files:
    """What the store asks of the operating system; a test overrides what it wants to fail."""

    def create(
        self,
        path: Path,
        base_offset: int,
        size: int,
        *,
        allocated: int | None = None,
        most_descriptors: int | None = None,
    ) -> MappedFile:
        """Create, allocate and map a file of zeros.

        With `most_descriptors`, fail if this many descriptors are open.

        With `allocated` only its first bytes get blocks now: call `MappedFile.allocate` for the
        rest before writing to it.

        Raises:
            DiskFull: no room; no file remains.
            FileExistsError: there is such a file.
            OSError: EMFILE, too many descriptors are open.
        """
        try:
            unsynced = (path.parent, *make_directories(path.parent))
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if is_full(error):
                raise DiskFull(path, size, str(error)) from error
            raise
        try:
            if most_descriptors is not None:
                _check_descriptors(fd, most_descriptors)
            # The size first: a process killed between the two leaves a file of the right size.
            os.ftruncate(fd, size)
            _allocate(self, fd, path, size if allocated is None else allocated)
            return MappedFile(self, path, fd, base_offset, size, unsynced)
        except BaseException:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise

    def open(
        self,
        path: Path,
        base_offset: int,
        size: int,
        unsynced_directories: tuple[Path, ...] = (),
    ) -> MappedFile:
        """Map a file that exists and has `size` bytes; its first sync includes
        `unsynced_directories`. Raises OSError, NotAFile."""
        fd = open_regular(path, os.O_RDWR)
        try:
            return MappedFile(self, path, fd, base_offset, size, unsynced_directories)
        except BaseException:
            os.close(fd)
            raise

    def open_again(self, path: Path) -> int:
        """Return a new descriptor of a file that was mapped before. Raises OSError, NotAFile."""
        return open_regular(path, os.O_RDWR)

    def open_or_create(
        self, path: Path, size: int, what: str, unsynced_directories: tuple[Path, ...] = ()
    ) -> MappedFile:
        """Map a file that always has `size` bytes, `what` says of whom; one of zeros if there is
        none. `unsynced_directories` are those of `open`. Raises DiskFull, FileSizeMismatch."""
        actual = path.stat().st_size if path.exists() else 0
        if not actual:
            self.remove(path)
            return self.create(path, 0, size)
        if actual != size:
            raise FileSizeMismatch(path, actual, f"the size of a {what}", size)
        return self.open(path, 0, size, unsynced_directories)

    def save_descriptor(self, file: MappedFile) -> None:
        """Keep no descriptor of one of many files; see `MappedFile.save_descriptor`."""
        file.save_descriptor()

    def allocate(self, fd: int, size: int) -> None:
        """Reserve blocks for the first `size` bytes. Raises OSError, ENOSPC on a full disk."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)

    def write(self, fd: int, data: memoryview, at: int) -> None:
        """Write all of `data` at a byte of a file. Raises OSError."""
        while data:
            written = os.pwrite(fd, data, at)
            data = data[written:]
            at += written

    def fdatasync(self, fd: int) -> None:
        """Wait until the file's data are on the disk. Raises OSError."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(fd)
        else:
            os.fsync(fd)

    def sync_directory(self, directory: Path) -> None:
        """Wait until the names in `directory` are on the disk. Raises OSError."""
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_directory(self, directory: Path) -> None:
        """Create a directory and its missing parents, and wait until their names are on the disk.
        Does nothing if it exists. Raises OSError."""
        for changed in make_directories(directory):
            self.sync_directory(changed)

    def modified_ms(self, path: Path) -> int:
        """Return when a file was last written to, Unix ms. Raises OSError."""
        return path.stat().st_mtime_ns // 1_000_000

    def used_percent(self, directory: Path) -> int:
        """How full the file system of a directory is, as `df` shows it. Raises OSError."""
        usage = shutil.disk_usage(directory)
        return -(-100 * usage.used // max(1, usage.used + usage.free))

    def most_mappings(self) -> int:
        """Return how many files of queues may be mapped at a time: half of the descriptors that
        this process may have, and a quarter of the kernel's maps, since the log, the index and
        connections need some as well."""
        return min(descriptor_limit() // 2, _max_map_count() // 4)

    def boot_id(self) -> bytes:
        """Return 16 bytes that change with each start of the machine; zeros if the system does not
        tell."""
        try:
            return UUID(_BOOT_ID.read_text().strip()).bytes
        except (OSError, ValueError):
            return bytes(16)

    def identity(self, path: Path) -> tuple[int, int]:
        """Return two numbers that identify an existing file or directory, and tell it from a copy;
        zeros if it does not exist."""
        try:
            found = path.stat()
        except OSError:
            return 0, 0
        return found.st_dev, found.st_ino

    def read(self, path: Path) -> bytes | None:
        """Return the whole content of a small file; None if it does not exist. Raises as
        `read_small`."""
        try:
            return read_small(path)
        except FileNotFoundError:
            return None

    def append(self, path: Path, content: bytes) -> None:
        """Append to a small file, which is created if it is missing. Syncs nothing. Raises
        OSError, NotAFile."""
        fd = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        with os.fdopen(fd, "wb", buffering=0) as file:
            file.write(content)

    def replace(
        self, path: Path, content: bytes, backup: Path | None = None, *, mode: int = 0o644
    ) -> None:
        """Write a small file so that a crash leaves the old content or the new, never a part; when
        this returns the new one outlasts a power failure. Raises OSError.

        The old content becomes `backup`, if that is given; for a moment it is only there. The
        permissions stay, as settings may hold passwords; a new file gets `mode`.
        """
        if path.exists():
            mode = stat.S_IMODE(path.stat().st_mode)
        unsynced = (path.parent, *make_directories(path.parent))
        draft = path.with_name(path.name + ".tmp")
        if draft.is_symlink():
            draft.unlink()  # it may lead to any other file
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(draft, flags, mode)
        try:
            with os.fdopen(fd, "wb") as file:
                if mode != 0o644:
                    os.fchmod(fd, mode)
                file.write(content)
                file.flush()
                self.fdatasync(file.fileno())
            if backup is not None and path.exists():
                self.rename(path, backup)
            self.rename(draft, path)
        except BaseException as error:
            draft.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.filename is None:
                raise OSError(error.errno, error.strerror, str(path)) from error
            raise
        for directory in unsynced:
            self.sync_directory(directory)

    def rename(self, path: Path, target: Path) -> None:
        """Give a file another name in its directory; what had that name goes. Raises OSError."""
        path.replace(target)

    def move(self, path: Path, target: Path) -> None:
        """Give a file or a directory another place on the same file system, where nothing is yet;
        missing directories are made. Raises OSError."""
        unsynced = (target.parent, *make_directories(target.parent))
        path.rename(target)
        for directory in (*unsynced, path.parent):
            self.sync_directory(directory)

    def resize(self, path: Path, size: int) -> None:
        """Let a file have `size` bytes, new ones zeros. Raises OSError, NotAFile."""
        fd = open_regular(path, os.O_RDWR)
        try:
            os.ftruncate(fd, size)
        finally:
            os.close(fd)

    def unshare(self, path: Path) -> bool:
        """Before a file is changed that no longer changes in the course of things: if a snapshot
        has a link to it, give it a copy of its own, and return True. Raises OSError."""
        if not unshare(path):
            return False
        self.sync_directory(path.parent)
        return True

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists. Raises OSError."""
        path.unlink(missing_ok=True)

    def remove_directory(self, directory: Path) -> None:
        """Remove a directory that has become empty; one that has not stays."""
        with contextlib.suppress(OSError):
            directory.rmdir()


def make_directories(directory: Path) -> tuple[Path, ...]:
    """Create a directory and its missing parents; return the directories that got new entries, and
    must be synced for these to survive a power failure."""
    parent = directory.parent
    try:
        directory.mkdir()
    except FileNotFoundError:
        above = make_directories(parent)
        return (*make_directories(directory), *above)
    except FileExistsError:
        if not directory.is_dir():
            raise
        return ()
    return (parent,)


def check_places(directories: Iterable[Path], files: Iterable[Path]) -> None:
    """Raise NotADirectory if something else is where one of the directories is or will be, and
    NotAFile if something else is where one of the files is or will be."""
    for directory in directories:
        if directory.exists() and not directory.is_dir():
            raise NotADirectory(directory)
    for file in files:
        if file.exists() and not file.is_file():
            raise NotAFile(file)


def read_small(path: Path) -> bytes:
    """Return the content of a file that is small in any good store, such as a table of the broker.

    Raises:
        NotAFile: a directory, a pipe or a device.
        FileTooLarge: it has more than `MOST_READ` bytes.
        OSError: it cannot be read.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_READ:
            raise FileTooLarge(path, size, MOST_READ)
        return file.read(MOST_READ)


def _allocate(files: Files, fd: int, path: Path, size: int) -> None:
    try:
        files.allocate(fd, size)
    except OSError as error:
        if is_full(error):
            raise DiskFull(path, size, str(error)) from error
        raise


def _check_descriptors(fd: int, most: int) -> None:
    """Raise OSError when `most` descriptors, or more, are open."""
    # The lowest free number is given, so it says how many are. `fd` itself may fill a gap.
    number = os.dup(fd)
    os.close(number)
    if number >= most:
        raise OSError(
            errno.EMFILE,
            f"{number} of {descriptor_limit()} descriptors are open (ulimit -n), the others are "
            "kept for connections",
        )


@functools.cache
def _max_map_count() -> int:
    try:
        return int(_MAX_MAP_COUNT.read_text())
    except (OSError, ValueError):
        return _USUAL_MAP_COUNT


def descriptor_limit() -> int:
    """Return how many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def descriptors_for_queues() -> int:
    """Return how many descriptors may be open when a queue gets another file: a quarter, at most
    1024, is kept for clients, so that these can connect however many queues exist."""
    limit = descriptor_limit()
    return limit - min(limit // 4, 1024)


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard one, as the JVM does: every queue of every
    topic has a file, whose mapping needs a descriptor."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
