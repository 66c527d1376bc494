"""A small text file that is replaced as a whole and keeps its predecessor as `.bak`."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from pocketmq.regular_file import read_regular
from pocketmq.remoting.settings.reachable import closed_directory, may_write_in


class TextFile:
    """The file at `path`; its directory is created by the first write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup = path.with_name(path.name + ".bak")

    @property
    def writable(self) -> bool:
        """Whether `replace` may write, as far as permissions say."""
        path = self.path.absolute()
        if closed_directory(path.parent) is not None:
            return False
        there = next(each for each in path.parents if each.exists())
        return there.is_dir() and may_write_in(there)

    def read(self) -> str | None:
        """Return the text, or None without a file. Raises OSError, UnicodeDecodeError."""
        return _read(self.path)

    def read_backup(self) -> str | None:
        """Return what the file held before it was last replaced, or None."""
        return _read(self.backup)

    def replace(self, pieces: Iterable[bytes]) -> None:
        """Write a text, given in UTF-8 and in pieces. If the process dies, the old or the new text
        is there, whole. When this returns, the new one survives a power failure.

        The new file and the backup have the permissions of the old file, which may hold secrets.

        Raises OSError.
        """
        directory = self.path.parent
        missing = [path for path in (directory, *directory.parents) if not path.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(self.path.name + ".tmp")
        mode = stat.S_IMODE(self.path.stat().st_mode) if self.path.exists() else None
        with open(fresh, "wb", opener=_private(mode)) as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            # A link or a copy, not a rename: the file itself exists at every moment.
            previous = self.path.with_name(self.path.name + ".bak.tmp")
            previous.unlink(missing_ok=True)
            with open(previous, "wb", opener=_private(mode)) as copy:
                copy.write(read_regular(self.path))
            os.replace(previous, self.backup)
        os.replace(fresh, self.path)
        for changed in (directory, *(path.parent for path in missing)):
            _sync_directory(changed)


def _private(mode: int | None) -> Callable[[str, int], int]:
    """Open a new file with these permissions, or with the default ones."""

    def opener(path: str, flags: int) -> int:
        fd = os.open(path, flags, 0o666 if mode is None else mode)
        if mode is not None and os.name != "nt":
            os.fchmod(fd, mode)
        return fd

    return opener


def _sync_directory(directory: Path) -> None:
    if os.name == "nt":  # Windows cannot open directories
        return
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _read(path: Path) -> str | None:
    try:
        return read_regular(path).decode()
    except FileNotFoundError:
        return None
