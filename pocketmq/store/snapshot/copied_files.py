"""The files that a snapshot has got so far."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pocketmq.store.file_copies import copy_file, link_file
from pocketmq.store.files import Files


class CopiedFiles:
    """Copies files into a snapshot and counts them. They are on the disk after `sync_tree`.

    Attributes:
        linked: files that the snapshot shares with the store.
        copied: the others.
        bytes: of those, without zeros.
    """

    def __init__(self, files: Files, advanced: Callable[[int], None]) -> None:
        self.linked = 0
        self.copied = 0
        self.bytes = 0
        self._files = files
        self._advanced = advanced

    def link(self, source: Path, target: Path) -> None:
        """Have a file that no longer changes in the snapshot as well: as a link, or as a copy on
        another file system. Raises OSError, FileNotFoundError when it is gone."""
        if not link_file(source, target):
            self.copy(source, target, told=True)
            return
        self.linked += 1
        self._advanced(target.stat().st_size)

    def copy(
        self, source: Path, target: Path, end: int | None = None, *, told: bool = False
    ) -> None:
        """Copy the first `end` bytes of a file, by default all; with `told`, `advanced` counts
        them. Raises OSError, FileNotFoundError when it is gone."""
        advanced = [self._advanced] if told else []
        self.bytes += copy_file(source, target, end, *advanced, synced=False)
        self.copied += 1

    def put(self, target: Path, content: bytes, mode: int = 0o644) -> None:
        """Write a small file, perhaps again. Raises OSError."""
        if not target.exists():
            self.copied += 1
            self.bytes += len(content)
        self._files.replace(target, content, mode=mode)

    def run(
        self, source: Path, target: Path, end_of: Callable[[Path], int | None] = lambda _: None
    ) -> None:
        """Copy the files of a directory whose names rise, the newest first: the oldest may expire
        meanwhile. `end_of` gives the bytes of each that count (0: none, None: all); files at the
        end without any are left out. Raises OSError."""
        paths = sorted(path for path in source.iterdir() if path.is_file())
        at_end = True
        for path in reversed(paths):
            try:
                end = end_of(path)
                if at_end and end == 0:
                    continue
                if at_end:
                    target.mkdir(parents=True, exist_ok=True)
                at_end = False
                self.copy(path, target / path.name, end)
            except FileNotFoundError:
                return
