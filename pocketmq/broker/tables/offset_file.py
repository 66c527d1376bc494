"""The common part of the offset tables: the file, its data version, and when to write it.

A change only changes memory; the file is written every few seconds if something changed. Reference:
ConfigManager.
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
    """The fields that are read from a file."""

    data_version: DataVersion | None


S = TypeVar("S", bound=_Stored)


class OffsetFile(ABC):
    """The file at `path`; `holds` describes its content in log lines.

    `clock` gives milliseconds; the data version increases every `version_step` changes.
    """

    def __init__(self, path: Path, holds: str, clock: Callable[[], int], version_step: int) -> None:
        self.data_version = DataVersion(timestamp=clock())
        self._file = ConfigFile(path, holds)
        self._clock = clock
        self._version_step = version_step
        self._changes = 0
        self._dirty = False

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """Return the table in the form of the file, which is also the answer to admins."""

    def unsaved(self) -> bytes | None:
        """Return the new content of the file; None if nothing changed since the last call."""
        if not self._dirty:
            return None
        self._dirty = False
        return self._file.encode(self.document())

    def write(self, content: bytes) -> None:
        """Write the result of `unsaved`. Blocks, so call it in a thread. Raises OSError."""
        try:
            self._file.write(content)
        except OSError:
            self.not_written()
            raise

    def not_written(self) -> None:
        """Mark the result of `unsaved` as not written, so that the next call returns it again."""
        self._dirty = True

    def _read(self, file: ConfigFile, kind: type[S]) -> S:
        """Return the content of a file, and adopt its data version.

        Integer keys may be unquoted, as written by fastjson. Raises ConfigFileError.
        """
        document = file.load()
        self._dirty = file.stale
        try:
            stored = lenient.convert(document, kind)
        except msgspec.ValidationError as error:
            raise ConfigFileError(file.path, str(error)) from None
        if stored.data_version is not None:
            self.data_version = stored.data_version
        return stored

    def _changed(self) -> None:
        self._dirty = True
        self._changes += 1
        if self._changes % self._version_step == 0:
            self.data_version = DataVersion(self.data_version.counter + 1, 0, self._clock())
