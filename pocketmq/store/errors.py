"""What can go wrong with a store. Every message names the file or the value, and what to do."""

from __future__ import annotations

from pathlib import Path


class StoreError(Exception):
    """Root of all errors of this package."""


def remedy(root: Path) -> str:
    """Return what an operator can do about a damaged file of the store at `root`."""
    return (
        f"bring the file back from a copy, or type: pocketmq store repair {root} (which keeps what "
        "is damaged aside and says which messages are gone; --dry-run only says it)"
    )


class StoreLocked(StoreError):
    """Another process (or another store of this one) has the directory open."""

    def __init__(self, root: Path, holder: str | None = None, *, what: str = "store") -> None:
        by = f" by process {holder}" if holder else " by another process"
        super().__init__(f"the {what} {root} is in use{by}; stop it or choose another directory")
        self.root = root


class StoreCorrupt(StoreError):
    """Data that must be whole is not. `path` and `offset` (bytes within the file) say where."""

    def __init__(self, path: Path | str, offset: int, reason: str) -> None:
        super().__init__(f"{path} at byte {offset}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason


class ForeignBytes(StoreCorrupt):
    """The bytes that a slave received are not a commit log, or do not continue its own."""

    def __init__(self, path: Path | str, offset: int, physical_offset: int, reason: str) -> None:
        super().__init__(
            path, offset,
            f"at physical offset {physical_offset} no record was received ({reason}): this log and "
            "the master's are not the same, or the master's is damaged there, as `pocketmq store "
            "check` tells; nothing more is copied. Stop this broker, move its store away, and "
            "start it with an empty one; keep the old one if it may have messages that the master "
            "has lost. If it stops at the same place again, make a member the master whose log is "
            "whole, or repair the master's",
        )  # fmt: skip
        self.physical_offset = physical_offset


class QueueMisfit(StoreCorrupt):
    """A consume queue is not as the last process left it."""


class FileSizeMismatch(StoreError):
    """A file on disk has another size than the setting that governs it."""

    def __init__(
        self, path: Path, actual: int, setting: str, expected: int, *, remedy: str = ""
    ) -> None:
        """`remedy` is what to do if the file itself is wrong."""
        super().__init__(
            f"{path} has {actual} bytes, but {setting} is {expected}: set it to the size the store "
            "was written with" + (f"; if the file is damaged, {remedy}" if remedy else "")
        )
        self.path = path
        self.actual = actual
        self.setting = setting
        self.expected = expected


def with_remedy(error: StoreCorrupt | FileSizeMismatch, root: Path) -> StoreError:
    """Return the same error of a file of the store at `root`, with `remedy` in its text."""
    if isinstance(error, StoreCorrupt):
        return StoreCorrupt(error.path, error.offset, f"{error.reason}; {remedy(root)}")
    return FileSizeMismatch(
        error.path, error.actual, error.setting, error.expected, remedy=remedy(root)
    )


class ForeignStore(StoreError):
    """A store of RocketMQ of a kind that is not served here. `path` shows which."""

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(f"{path} is {kind}")
        self.path = path


class NotADirectory(StoreError):
    """Something else is where the store keeps a directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is not a directory, but the store keeps its files there: move it away, or "
            "choose another store"
        )
        self.path = path


class NotAFile(StoreError):
    """A directory, a named pipe, a device or a symbolic link is where the store keeps a file."""

    def __init__(self, path: Path) -> None:
        kind = "a directory" if path.is_dir() else "not a regular file"
        if path.is_file():
            kind = "a symbolic link"
        super().__init__(
            f"{path} is {kind}, but the store keeps a file there: move it away, or choose another "
            "store"
        )
        self.path = path


class FileTooLarge(StoreError):
    """A file that is read as a whole is larger than any that a broker writes."""

    def __init__(self, path: Path, size: int, most: int) -> None:
        super().__init__(f"{path} has {size} bytes, at most {most} are read: it is damaged")
        self.path = path


class DiskFull(StoreError):
    """The file system has no room for the next file; nothing was written."""

    def __init__(self, path: Path, size: int, reason: str) -> None:
        super().__init__(f"no room for {path} ({size} bytes): {reason}")
        self.path = path
        self.size = size


class RecordNotFound(StoreError):
    """No record begins at this physical offset."""

    def __init__(self, physical_offset: int, reason: str) -> None:
        super().__init__(f"no record at physical offset {physical_offset}: {reason}")
        self.physical_offset = physical_offset


class StoreClosed(StoreError):
    """The store was not opened, or is closed already."""
