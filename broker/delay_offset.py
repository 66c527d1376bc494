"""How far each delay level is delivered, kept in config/delayOffset.json.

Offsets are queue offsets of the level's queue in SCHEDULE_TOPIC_XXXX: the next message to deliver.
Levels of the file that are not configured any more are kept. Reference: ScheduleMessageService,
DelayOffsetSerializeWrapper.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from remoting.bodies.registration import DataVersion
from store.config_file import ConfigFile, ConfigFileError


class _Stored(msgspec.Struct, rename="camel"):
    """What is read of the file."""

    offset_table: dict[int, int] = {}
    data_version: DataVersion | None = None


class DelayOffsets:
    """The offset table of one broker, by level. `clock` gives milliseconds; the data version rises
    every `version_step` changes."""

    def __init__(self, path: Path, clock: Callable[[], int], version_step: int = 200) -> None:
        self._file = ConfigFile(path)
        self._clock = clock
        self._version_step = version_step
        self._changes = 0
        self._dirty = False
        self.table: dict[int, int] = {}
        self.data_version = DataVersion(timestamp=clock())

    def load(self) -> None:
        """Read the file. Raises ConfigFileError."""
        document = self._file.load()
        try:
            stored = msgspec.convert(document, _Stored, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigFileError(self._file.path, str(error)) from None
        self.table = stored.offset_table
        if stored.data_version is not None:
            self.data_version = stored.data_version

    def next(self, level: int) -> int:
        """The queue offset of the next message to deliver."""
        return self.table.get(level, 0)

    def update(self, level: int, offset: int) -> None:
        """Everything before `offset` is delivered."""
        self.table[level] = offset
        self._dirty = True
        self._changes += 1
        if self._changes % self._version_step == 0:
            self.data_version = DataVersion(self.data_version.counter + 1, 0, self._clock())

    def unsaved(self) -> bytes | None:
        """The file's new content when something changed since the last time, else None."""
        if not self._dirty:
            return None
        self._dirty = False
        return self._file.encode(self.document())

    def document(self) -> dict[str, Any]:
        """The table as the file holds it and as GET_ALL_DELAY_OFFSET answers it."""
        version = msgspec.to_builtins(self.data_version)
        return {"dataVersion": version, "offsetTable": dict(self.table)}

    def write(self, content: bytes) -> None:
        """Write what `unsaved` gave; blocks, so not on the event loop. Raises OSError."""
        self._file.write(content)

    def not_written(self) -> None:
        """What `unsaved` gave is not on the disk: give it again."""
        self._dirty = True
