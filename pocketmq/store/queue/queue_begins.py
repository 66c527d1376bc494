"""Where queues begin whose first messages are in a part of a master's log that was not copied.

A slave's log may begin later than its master's. A queue without a message in it has no file, so its
begin is in the file `queuebegins`: JSON, topic → queue id → queue offset. The official broker does
not look at this file, and gives the offsets from 0 on again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.store.errors import StoreError
from pocketmq.store.files import Files

log = logging.getLogger(__name__)

BEGINS_FILE: Final = "queuebegins"

_decoder: Final = msgspec.json.Decoder(dict[str, dict[int, int]])


class QueueBegins:
    """The begins that were told, in the directory of one store."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files = files
        self._path = root / BEGINS_FILE
        self.table: dict[str, dict[int, int]] = {}

    def load(self, deleted: Mapping[str, int]) -> None:
        """Read the file, without what it says of `deleted` topics. One that cannot be read is
        ignored, with a line in the log: the master tells a slave again."""
        try:
            content = self._files.read(self._path)
            table = {} if content is None else _decoder.decode(content)
        except (OSError, StoreError, msgspec.MsgspecError) as error:
            log.warning("%s cannot be read, and is ignored: %s", self._path, error)
            table = {}
        self.table = {
            topic: begins
            for topic, begins in table.items()
            if topic not in deleted and all(each >= 0 for each in begins.values())
        }

    def add(self, begins: Mapping[tuple[str, int], int]) -> None:
        """Add begins, by topic and queue id. They are on the disk when this returns. Raises
        OSError."""
        for (topic, queue_id), offset in begins.items():
            self.table.setdefault(topic, {})[queue_id] = offset
        self._files.replace(self._path, msgspec.json.encode(self.table))
