"""A disk that remembers which of its writes are certain to survive a power cut.

A write is certain once a sync of its file has returned, a name once a sync of its directory has.
Until then a cut may leave any mixture: each sector as it was at some time since the last sync, each
change of a name made or not. The one thing that never comes apart is a rename.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

from pocketmq.store.files import Files, MappedFile

#: Contents of a file between two syncs that are remembered, beside the first and the last.
MOST_VERSIONS: Final = 6


@dataclass
class FileContent:
    """The contents that a file may have after a cut: `durable`, and all it had since."""

    durable: bytes = b""
    since: list[bytes] = field(default_factory=list)

    @property
    def current(self) -> bytes:
        return self.since[-1] if self.since else self.durable

    def now(self, content: bytes, random: random.Random) -> None:
        """Note what it holds."""
        if content != self.current:
            self.since.append(content)
            if len(self.since) > MOST_VERSIONS:
                del self.since[random.randrange(MOST_VERSIONS)]

    def synced(self, content: bytes) -> None:
        """Note that it held this when a sync began that has ended."""
        current = self.current
        self.durable = content
        self.since = [] if current == content else [current]


class NameChange(NamedTuple):
    """Names of one directory that change at once: path → identity of what it names, or None."""

    directory: str
    names: Mapping[str, int | None]


class Remains(NamedTuple):
    """The disk at one moment, as paths below its root; what a cut leaves is drawn from it.

    Paths are texts here: a disk looks at a hundred of them before and after each write, and making
    `Path`s of them took most of the time.

    names: what is certain to be named. changes: those under way, oldest first. contents: of files
    by identity. directories: the identities that are directories.
    """

    names: Mapping[str, int]
    changes: tuple[NameChange, ...]
    contents: Mapping[int, tuple[bytes, ...]]
    directories: frozenset[int]


#: Told of a moment at which the power could be cut.
Watcher = Callable[["Disk"], None]
#: Whether a sync ("file" or "directory") of a path is left out: a disk, or a program, that lies.
Lie = Callable[[str, Path], bool]


class Disk:
    """The directory `root`, as all `Files` of this process use it during `recording`."""

    def __init__(
        self, root: Path, random: random.Random, *, watcher: Watcher, lie: Lie | None = None
    ) -> None:
        self.root = root.resolve()
        self._random = random
        self._watcher = watcher
        self._lie = lie or (lambda kind, path: False)
        self._lock = threading.RLock()
        self._identities: dict[int, int] = {}  # inode → identity: inodes are used again
        self._next = 0
        self._names: dict[str, int] = {}  # as they are
        self._durable: dict[str, int] = {}
        self._changes: list[NameChange] = []
        self._contents: dict[int, FileContent] = {}
        self._directories: set[int] = set()
        self._look()
        # What is there before the first life has been there for long.
        self._durable, self._changes = dict(self._names), []
        for content in self._contents.values():
            content.synced(content.current)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record in the block what any `Files` does. Nothing is really synced: that takes long, and
        it is this disk that decides what survives."""
        disk = self
        create, rename, remove = Files.create, Files.rename, Files.remove
        append, remove_directory = Files.append, Files.remove_directory

        def fdatasync(files: Files, fd: int) -> None:
            disk.sync_file(Path(os.readlink(f"/proc/self/fd/{fd}")))

        def sync_directory(files: Files, directory: Path) -> None:
            disk.sync_directory(directory)

        def created(files: Files, path: Path, *arguments: Any, **options: Any) -> MappedFile:
            with disk.changing():
                return create(files, path, *arguments, **options)

        def appended(files: Files, path: Path, content: bytes) -> None:
            with disk.changing():
                append(files, path, content)

        def renamed(files: Files, path: Path, target: Path) -> None:
            with disk.changing():
                rename(files, path, target)

        def removed(files: Files, path: Path) -> None:
            with disk.changing():
                remove(files, path)

        def removed_directory(files: Files, directory: Path) -> None:
            with disk.changing():
                remove_directory(files, directory)

        with contextlib.ExitStack() as patches:
            for name, method in (
                ("fdatasync", fdatasync), ("sync_directory", sync_directory), ("create", created),
                ("rename", renamed), ("remove", removed), ("remove_directory", removed_directory),
                ("append", appended),
            ):  # fmt: skip
                patches.enter_context(mock.patch.object(Files, name, method))
            yield

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """A change of a name: the disk is looked at before and after it, so that neither two of
        them nor a name that is used twice are taken for one."""
        with self._lock:
            self._look()
            self._watcher(self)
            yield
            self._look()

    def sync_file(self, path: Path) -> None:
        """What the file holds now is certain; the cut may come before and after that."""
        with self._lock:
            self._look()
            self._watcher(self)
            identity = self._names.get(self._below(path))
            if identity is not None and not self._lie("file", path):
                content = self._contents[identity]
                content.synced(content.current)
            self._watcher(self)

    def sync_directory(self, directory: Path) -> None:
        """The names in it are certain."""
        with self._lock:
            self._look()
            self._watcher(self)
            if not self._lie("directory", directory):
                below = self._below(directory)
                rest = []
                for change in self._changes:
                    if change.directory == below:
                        apply(self._durable, change)
                    else:
                        rest.append(change)
                self._changes = rest
            self._watcher(self)

    def remains(self) -> Remains:
        """What a cut could leave, now."""
        with self._lock:
            self._look()
            named = {*self._durable.values(), *self._names.values()}
            for change in self._changes:
                named.update(value for value in change.names.values() if value is not None)
            return Remains(
                dict(self._durable),
                tuple(self._changes),
                {
                    identity: (content.durable, *content.since)
                    for identity, content in self._contents.items()
                    if identity in named
                },
                frozenset(self._directories),
            )

    def _below(self, path: Path) -> str:
        below = str(path.resolve().relative_to(self.root))
        return "" if below == "." else below

    def _look(self) -> None:
        """Note what has changed since the last look: names, and what is in the files."""
        inodes: dict[str, int] = {}
        directories: set[str] = set()
        _list(str(self.root), "", inodes, directories)
        gone = self._identities.keys() - inodes.values()
        for inode in gone:
            del self._identities[inode]
        names: dict[str, int] = {}
        for path, inode in inodes.items():
            identity = self._identities.get(inode)
            if identity is None:
                identity = self._identities[inode] = self._next
                self._next += 1
                if path in directories:
                    self._directories.add(identity)
                else:
                    self._contents[identity] = FileContent()
            names[path] = identity
        self._note_names(names)
        self._names = names
        for path, identity in names.items():
            if path not in directories:
                with open(f"{self.root}/{path}", "rb", buffering=0) as file:
                    self._contents[identity].now(file.read(), self._random)

    def _note_names(self, names: Mapping[str, int]) -> None:
        before = self._names
        if names == before:
            return
        placed = {identity: path for path, identity in before.items()}
        moved: set[str] = set()
        for path, identity in names.items():
            if before.get(path) == identity:
                continue
            changed: dict[str, int | None] = {path: identity}
            source = placed.get(identity)
            if source is not None and names.get(source) != identity:
                changed[source] = names.get(source)
                moved.add(source)
            self._changes.append(NameChange(_parent(path), changed))
        for path in before.keys() - names.keys() - moved:
            self._changes.append(NameChange(_parent(path), {path: None}))


def apply(names: dict[str, int], change: NameChange) -> None:
    """Make a change of names."""
    for path, identity in change.names.items():
        if identity is None:
            names.pop(path, None)
        else:
            names[path] = identity


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _list(root: str, below: str, inodes: dict[str, int], directories: set[str]) -> None:
    with os.scandir(f"{root}/{below}") as entries:
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            inodes[path] = entry.inode()
            if entry.is_dir():
                directories.add(path)
                _list(root, path, inodes, directories)
