"""The disk of a machine: real files in memory, since the product maps them, and beside them what
would be there after a power cut.

The calls of `os` that matter are replaced for what runs on a simulated machine. A sync notes the
content of a file, or the names in a directory. A cut draws, sector by sector or page by page and
name by name, which of the later changes survive.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from .scheduler import EPOCH, MILLISECOND

if TYPE_CHECKING:
    from .machine import Machine, Process

PAGE: Final = 4096
SECTOR: Final = 512
LOG: Final = "commitlog"
MISDIRECTED: Final = 0.5
"""How likely a power cut leaves a write at a wrong place of a log from which something is lost."""
SYNC: Final = (100_000, 3 * MILLISECOND)
"""What a sync takes, drawn, nanoseconds."""
USED_PERCENT: Final = 10
SIZE: Final = 100 << 30
"""Of a disk, bytes."""

Names = dict[str, tuple[int, bool]]
"""Of a directory: inode by name, and whether it is a directory."""


class DiskUsage(NamedTuple):
    """What `shutil.disk_usage` returns."""

    total: int
    used: int
    free: int


class Disk:
    """Attributes:
    sync_time: what a sync takes, at least and at most, nanoseconds.
    fails: asked before each operation (its name, a path or None); returns an errno, or 0.
    full: there is no room for anything new.
    keeps: whether a power cut may come, so that what was synced has to be noted.
    boots: power cuts so far.
    astray: of a log file, by its name, and where in it something lies that was meant for another
        place: begin and end.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.sync_time = SYNC
        self.fails: Callable[[str], int] | None = None
        self.full = False
        self.keeps = True
        self.boots = 0
        self.lost = self.kept = 0
        self.astray: list[tuple[str, int, int]] = []
        self._chance = machine.scheduler.stream(f"disk {machine.name}")
        self._misdirected = machine.scheduler.stream(f"misdirected {machine.name}")
        self._synced: dict[int, bytes] = {}
        self._names: dict[int, Names] = {}
        self._modified: dict[int, int] = {}
        self._locks: dict[int, Process] = {}
        machine.root.mkdir(parents=True, exist_ok=True)

    # What the operating system is asked for

    def sync(self, fd: int) -> None:
        """`fsync`, `fdatasync`: others run while it takes its time. What is written meanwhile is
        not included."""
        found = os.fstat(fd)
        is_directory = stat.S_ISDIR(found.st_mode)
        content, names = b"", Names()
        if self.keeps:
            if is_directory:
                names = _names(f"/proc/self/fd/{fd}")
            else:
                content = _content(fd, found.st_size)
        scheduler = self.machine.scheduler
        scheduler.park(scheduler.now + self._chance.randrange(*self.sync_time), "its disk")
        self.check("sync")
        if is_directory:
            self._names[found.st_ino] = names
        else:
            self._synced[found.st_ino] = content
            self._modified[found.st_ino] = scheduler.now
        scheduler.step("sync", self.machine.name, 0 if is_directory else found.st_size)

    def check(self, operation: str) -> None:
        """Raise the error that was ordered for this operation."""
        number = self.fails(operation) if self.fails is not None else 0
        if self.full and operation in ("allocate", "create"):
            number = errno.ENOSPC
        if number:
            self.machine.scheduler.step("disk error", self.machine.name, operation, number)
            raise OSError(number, os.strerror(number))

    def modified_ms(self, path: Path) -> int:
        changed = self._modified.get(os.stat(path).st_ino, 0)
        return (EPOCH + changed) // MILLISECOND

    def usage(self) -> DiskUsage:
        free = 0 if self.full else SIZE - SIZE * USED_PERCENT // 100
        return DiskUsage(SIZE, SIZE - free, free)

    def used_percent(self) -> int:
        return 96 if self.full else USED_PERCENT

    def lock(self, fd: int, process: Process) -> None:
        """`flock`, `lockf`, without waiting."""
        inode = os.fstat(fd).st_ino
        holder = self._locks.get(inode)
        if holder is not None and not holder.dead:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._locks[inode] = process

    def closed(self, fd: int) -> None:
        """A descriptor is about to be closed, and with it the lock it may have."""
        if self._locks:
            self._locks.pop(os.fstat(fd).st_ino, None)

    def unlock(self, process: Process) -> None:
        """The kernel gives up what a process has locked."""
        self._locks = {i: holder for i, holder in self._locks.items() if holder is not process}

    def certain(self, path: Path) -> bytes:
        """What a file has even after a power cut; nothing if it is not there."""
        if not path.exists():
            return b""
        return self._synced.get(path.stat().st_ino, b"") if self.keeps else path.read_bytes()

    def flip(self, path: Path, at: int, bit: int) -> None:
        """Change a bit of a file, on the disk and for whoever has it in memory."""
        with path.open("r+b", buffering=0) as file:
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes((byte ^ 1 << bit,)))
        inode = path.stat().st_ino
        synced = self._synced.get(inode, b"")
        if at < len(synced):
            changed = bytes((synced[at] ^ 1 << bit,))
            self._synced[inode] = synced[:at] + changed + synced[at + 1 :]
        self.machine.scheduler.step("flip", self.machine.name, path.name, at, bit)

    # Power

    def cut(self) -> None:
        """Leave what a power cut leaves. Inodes stay the same."""
        chance = self._chance
        mode = chance.choices(("nothing", "all", "pages", "sectors"), (2, 2, 4, 3))[0]
        contents: dict[int, bytes] = {}
        for path in sorted(self.machine.root.rglob("*")):
            if path.is_file():
                contents[path.stat().st_ino] = path.read_bytes()
        self._restore(self.machine.root, mode, contents)
        self._synced.clear()
        self._names.clear()
        self._adopt(self.machine.root)
        self.boots += 1
        self.machine.scheduler.step("cut", self.machine.name, mode, self.lost, self.kept)

    def _restore(self, directory: Path, mode: str, contents: dict[int, bytes]) -> None:
        now = _names(directory)
        certain = self._names.get(directory.stat().st_ino, {})
        for name in sorted(now.keys() | certain.keys()):
            before, after = certain.get(name), now.get(name)
            kept = after
            if before != after and mode != "all":
                kept = before if mode == "nothing" else self._chance.choice((before, after))
            path = directory / name
            if kept is None or kept != after:
                _remove(path)
            if kept is None:
                continue
            inode, is_directory = kept
            if is_directory:
                path.mkdir(exist_ok=True)
                self._restore(path, mode, contents)
                continue
            synced = self._synced.get(inode, b"")
            current = contents.get(inode, synced)
            content = self._mixed(synced, current, mode, path)
            if kept != after or contents[inode] != content:
                path.write_bytes(content)

    def _mixed(self, synced: bytes, current: bytes, mode: str, path: Path) -> bytes:
        """What is left of a file. A part of a log that was never written may get what was meant for
        another one."""
        if synced == current or mode == "all":
            return current
        if mode == "nothing":
            return synced
        unit = PAGE if mode == "pages" else SECTOR
        synced = synced.ljust(len(current), b"\0")
        parts: list[bytes] = []
        changed: list[bytes] = []
        empty: list[int] = []
        for at in range(0, len(current), unit):
            before, after = synced[at : at + unit], current[at : at + unit]
            if before != after:
                changed.append(after)
                if self._chance.random() < 0.5:
                    self.kept += 1
                else:
                    after = before
                    self.lost += 1
                    if not any(before):
                        empty.append(len(parts))
            parts.append(after)
        if LOG in path.parts and empty and self._misdirected.random() < MISDIRECTED:
            place = self._misdirected.choice(empty)
            parts[place] = self._misdirected.choice(changed)
            self.astray.append((path.name, place * unit, (place + 1) * unit))
        return b"".join(parts)

    def _adopt(self, directory: Path) -> None:
        """All that is here now is on the disk."""
        names = self._names[directory.stat().st_ino] = _names(directory)
        for name, (inode, is_directory) in names.items():
            if is_directory:
                self._adopt(directory / name)
            else:
                self._synced[inode] = (directory / name).read_bytes()

    def wipe(self) -> None:
        """Put an empty disk in its place."""
        self.machine.scheduler.step("wipe", self.machine.name)
        for path in sorted(self.machine.root.iterdir()):
            _remove(path)
        self._synced.clear()
        self._names.clear()


def _names(directory: Path | str) -> Names:
    with os.scandir(directory) as entries:
        return {entry.name: (entry.inode(), entry.is_dir()) for entry in entries}


def _content(fd: int, size: int) -> bytes:
    with suppress(OSError):  # it may be open for writing only
        return os.pread(fd, size, 0)
    with open(f"/proc/self/fd/{fd}", "rb", buffering=0) as file:
        return file.read()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
