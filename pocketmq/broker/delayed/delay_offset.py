"""The progress of each delay level, saved in config/delayOffset.json.

For each level, it has the offset of the next message to deliver in the level's queue of
SCHEDULE_TOPIC_XXXX. Levels in the file that are no longer configured are kept. Reference:
ScheduleMessageService, DelayOffsetSerializeWrapper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pocketmq.broker.tables.offset_file import OffsetFile
from pocketmq.remoting.bodies.registration import DataVersion
from pocketmq.remoting.headers.base import I64


class _Stored(msgspec.Struct, rename="camel"):
    """The fields that are read from the file."""

    offset_table: dict[int, I64] = {}
    data_version: DataVersion | None = None


class DelayOffsets(OffsetFile):
    """The offset table of one broker, by level. `clock` gives milliseconds; the data version
    increases every `version_step` changes."""

    def __init__(self, path: Path, clock: Callable[[], int], version_step: int = 200) -> None:
        super().__init__(path, "delay levels' progress", clock, version_step)
        self.table: dict[int, int] = {}

    def load(self) -> None:
        """Read the file. Raises ConfigFileError."""
        self.table = self._read(self._file, _Stored).offset_table

    def next(self, level: int) -> int:
        """Return the queue offset of the next message to deliver."""
        return self.table.get(level, 0)

    def update(self, level: int, offset: int) -> None:
        """Record that all messages before `offset` are delivered."""
        self.table[level] = offset
        self._changed()

    def follow(self, table: Mapping[int, int], version: DataVersion | None) -> None:
        """Copy the progress of a master."""
        if version is not None:
            self.data_version = version
        if self.table != table:
            self.table = dict(table)
            self._dirty = True

    def document(self) -> dict[str, Any]:
        """Return the table in the form of the file and of the answer to GET_ALL_DELAY_OFFSET."""
        version = msgspec.to_builtins(self.data_version)
        return {"dataVersion": version, "offsetTable": dict(self.table)}
