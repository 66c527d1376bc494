"""The directory of a table, and the files in it that do not belong to the table yet.

    DIR/*.parquet            the files of the table
    DIR/_dead_letters/       Parquet files of messages that could not be decoded
    DIR/_pocketmq/lock       locked by the process that writes
    DIR/_pocketmq/staged/    files that no commit names yet

New files are written to `staged`. The commit names them, and then they are moved to their final
places. A writer that starts after a crash moves the files named by the last commit, and removes the
rest. So a reader that lists the directory sees only committed files, and each of them once. Readers
such as Spark, and Delta's own cleanup, ignore names that begin with `_`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pocketmq.tables.commit import Commit
from pocketmq.tables.errors import TableBusy

DEAD_LETTERS: Final = "_dead_letters"
_OURS: Final = "_pocketmq"
_STAGED: Final = f"{_OURS}/staged"


class TableDirectory:
    """The directory of a table, locked until `close`.

    Raises:
        TableBusy: another process writes to the table.
        OSError: the directory cannot be made or written to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dead_letters = path / DEAD_LETTERS
        self.own = path / _OURS
        self._staged = path / _STAGED
        self._staged.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise TableBusy(path) from None

    def close(self) -> None:
        """Let other processes write."""
        os.close(self._lock)

    def sync_staged(self, names: Sequence[str]) -> None:
        """Sync the files that a commit is about to name."""
        for name in names:
            _sync(staged_path(self.path, name))
        if names:
            _sync(self._staged)

    def settle(self, commit: Commit) -> None:
        """Complete the last commit, `commit`, and remove files that no commit names."""
        for name in commit.replaced:
            (self.path / name).unlink(missing_ok=True)
        self.place(commit.files, self.path)
        self.place(commit.dead_letters, self.dead_letters)
        for left in self._staged.iterdir():
            left.unlink(missing_ok=True)

    def place(self, names: Sequence[str], directory: Path) -> None:
        """Move staged files to where readers find them; files already moved stay."""
        if not names:
            return
        directory.mkdir(exist_ok=True)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                staged_path(self.path, name).rename(directory / name)
        _sync(directory)


def new_name(number: int) -> str:
    """Return a unique name for a file of the commit with this number."""
    return f"{number:010d}-{uuid.uuid4().hex}.parquet"


def staged_path(table: Path, name: str) -> Path:
    """Return where to write a file that a commit will name. The extension hides it from readers
    that look for *.parquet in all directories."""
    return table / _STAGED / f"{name}.staged"


def write_synced(path: Path, content: bytes) -> None:
    """Replace a file atomically by a new one that is synced first."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_bytes(content)
    _sync(temporary)
    temporary.rename(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
