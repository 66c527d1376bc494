"""A small text file that is replaced as a whole and keeps its predecessor as `.bak`."""

import os
import shutil
from pathlib import Path


class TextFile:
    """The file at `path`; its directory is made when it is first written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup = path.with_name(path.name + ".bak")

    def read(self) -> str | None:
        """Return the text, or None without a file. Raises OSError, UnicodeDecodeError."""
        return _read(self.path)

    def read_backup(self) -> str | None:
        """Return what the file held before it was last replaced, or None."""
        return _read(self.backup)

    def replace(self, text: str) -> None:
        """Write the text; whenever the process dies, the old or the new one is there, whole. When
        this returns the new one outlasts a power failure.

        The new file and the backup have the permissions of the old file, which may hold secrets.

        Raises OSError.
        """
        directory = self.path.parent
        missing = [path for path in (directory, *directory.parents) if not path.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(self.path.name + ".tmp")
        with open(fresh, "w", encoding="utf-8", newline="\n") as file:
            if self.path.exists():
                shutil.copymode(self.path, fresh)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            # A link or a copy, not a rename: the file itself is there at every moment.
            previous = self.path.with_name(self.path.name + ".bak.tmp")
            previous.touch()
            shutil.copymode(self.path, previous)
            previous.write_bytes(self.path.read_bytes())
            os.replace(previous, self.backup)
        os.replace(fresh, self.path)
        for changed in (directory, *(path.parent for path in missing)):
            _sync_directory(changed)


def _sync_directory(directory: Path) -> None:
    if os.name == "nt":  # Windows opens no directories
        return
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
