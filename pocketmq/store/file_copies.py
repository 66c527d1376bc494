"""Copies of files that may be changing: linked, or copied up to a byte, without the zeros.

A copy is on the disk when it is made, unless it is one of many that `sync_tree` brings there at
once; its name is not until its directory is synced.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from pocketmq import regular_file
from pocketmq.store.errors import NotAFile

# Linux only. It reports write errors since 5.8, as fsync does.
_syncfs: Final = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)

_CHUNK: Final = 1024 * 1024
_ZEROS: Final = bytes(_CHUNK)
_TRIES: Final = 400
_PAUSE_SECONDS: Final = 0.005

open_regular: Final = partial(regular_file.open_regular, refusal=NotAFile)


def copy_file(
    source: Path,
    target: Path,
    end: int | None = None,
    advanced: Callable[[int], None] = lambda _: None,
    *,
    synced: bool = True,
) -> int:
    """Copy the first `end` bytes of a file, all without it, to a new file of the same size; zeros
    become holes. Returns the bytes that were copied.

    Without `synced` the copy is not on the disk before `sync_tree`. The times are those of the
    source: commit-log files expire by them. `advanced` is called with the bytes since the last
    call, and at last with the rest of the file.

    Raises:
        FileNotFoundError: the source is gone.
        NotAFile: it is a directory, a pipe or a device.
        OSError: it cannot be read, or the copy cannot be written.
    """
    reading = open_regular(source)
    try:
        status = os.fstat(reading)
        mode = status.st_mode & 0o777
        writing = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.ftruncate(writing, status.st_size)
            stop = status.st_size if end is None else min(end, status.st_size)
            copied = told = 0
            for begin, behind in data_extents(reading, 0, stop):
                for at in range(begin, behind, _CHUNK):
                    chunk = os.pread(reading, min(_CHUNK, behind - at), at)
                    if chunk != _ZEROS[: len(chunk)]:
                        copied += _write(writing, chunk, at)
                    advanced(len(chunk))
                    told += len(chunk)
            advanced(status.st_size - told)
            os.utime(writing, ns=(status.st_atime_ns, status.st_mtime_ns))
            if synced:
                os.fsync(writing)
            return copied
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def link_file(source: Path, target: Path) -> bool:
    """Give a file a second name; False if that is impossible, as on another file system.

    Raises FileNotFoundError when the source is gone.
    """
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    return True


def sync_tree(root: Path) -> None:
    """Bring all files and directories of a tree to the disk. Raises OSError.

    Thousands of small files take minutes one by one, so the whole file system is synced where the
    platform can.
    """
    opened = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _syncfs is not None:
            if _syncfs(opened) == 0:
                return
            number = ctypes.get_errno()
            if number != errno.ENOSYS:
                raise OSError(number, os.strerror(number), str(root))
    finally:
        os.close(opened)
    for directory, _, names in os.walk(root):
        for path in (*(os.path.join(directory, name) for name in names), directory):
            opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)


def read_settled(path: Path) -> tuple[bytes, int] | None:
    """Return the content and the permissions of a small file that another process may be changing,
    in place or by renaming: what two readings in a row agree on. None when it is missing for
    seconds."""
    before: tuple[bytes, int] | None = None
    for _ in range(_TRIES):
        try:
            with os.fdopen(open_regular(path), "rb") as file:
                found = file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        except FileNotFoundError:
            before = None
            time.sleep(_PAUSE_SECONDS)
            continue
        if found == before:
            return found
        before = found
    return before


def unshare(path: Path) -> bool:
    """Give a file blocks of its own if other names lead to it, too; return whether they did.

    Raises OSError.
    """
    if path.stat().st_nlink < 2:
        return False
    draft = path.with_name(path.name + ".tmp")
    draft.unlink(missing_ok=True)
    try:
        copy_file(path, draft)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return True


def remove_tree(directory: Path) -> None:
    """Remove a directory and everything in it, as far as possible."""
    shutil.rmtree(directory, ignore_errors=True)


def data_extents(fd: int, start: int, stop: int) -> list[tuple[int, int]]:
    """Return the ranges from `start` to `stop` that may hold anything but zeros, as (begin, end)
    pairs."""
    found = []
    at = start
    while at < stop:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
            at = os.lseek(fd, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # nothing but holes from here on
            begin, at = at, stop  # a file system without holes
        if begin < stop:
            found.append((begin, min(at, stop)))
    return found


def _write(fd: int, data: bytes, at: int) -> int:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, at)
        rest, at = rest[written:], at + written
    return len(data)
