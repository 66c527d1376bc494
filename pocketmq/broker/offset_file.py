"""What the tables of offsets share: their file, when to write it, and its data version.

Changes only change memory; whoever keeps a table writes it every few seconds when something has
changed. Reference: ConfigManager.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from pocketmq.remoting.bodies import lenient
from pocketmq.remoting.bodies.registration import DataVersion
from pocketmq.store.config_file import ConfigFile, ConfigFileError


class _Stored(Protocol):
    """What is read of a file."""

    data_version: DataVersion | None


S = TypeVar("S", bound=_Stored)


class OffsetFile(ABC):
    """The file at `path`. `clock` gives milliseconds; the data version rises every `version_step`
    changes."""

    def __init__(self, path: Path, clock: Callable[[], int], version_step: int) -> None:
        self.data_version = DataVersion(timestamp=clock())
        self._file = ConfigFile(path)
        self._clock = clock
        self._version_step = version_step
        self._changes = 0
        self._dirty = False

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """The table as the file holds it, and as admins are answered."""

    def unsaved(self) -> bytes | None:
        """The file's new content when something changed since the last time, else None."""
        if not self._dirty:
            return None
        self._dirty = False
        return self._file.encode(self.document())

    def write(self, content: bytes) -> None:
        """Write what `unsaved` gave; blocks, so not on the event loop. Raises OSError."""
        try:
            self._file.write(content)
        except OSError:
            self.not_written()
            raise

    def not_written(self) -> None:
        """What `unsaved` gave is not on the disk: give it again."""
        self._dirty = True

    def _read(self, kind: type[S]) -> S:
        """The file's content, its data version taken over. Integer keys may stand there without
        quotes, as fastjson writes them. Raises ConfigFileError."""
        document = self._file.load()
        try:
            stored = lenient.convert(document, kind)
        except msgspec.ValidationError as error:
            raise ConfigFileError(self._file.path, str(error)) from None
        if stored.data_version is not None:
            self.data_version = stored.data_version
        return stored

    def _changed(self) -> None:
        self._dirty = True
        self._changes += 1
        if self._changes % self._version_step == 0:
            self.data_version = DataVersion(self.data_version.counter + 1, 0, self._clock())
