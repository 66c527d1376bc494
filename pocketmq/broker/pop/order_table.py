"""The queues popped in order, by group and topic, saved in config/consumerOrderInfo.json.

The table is in memory; its file is written every few seconds if something changed, and at stop.
Waiting pops of a queue are woken when it is no longer blocked. Reference: ConsumerOrderInfoManager,
ConsumerOrderInfoLockManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec

from pocketmq.broker.pop.order_info import OrderInfo, popped
from pocketmq.remoting.bodies import lenient
from pocketmq.store.config_file import ConfigFile, ConfigFileError

SEPARATOR: Final = "@"
UNUSED_MS: Final = 24 * 3600 * 1000
"""An entry that was not used for this time is removed."""


def _nobody(group: str, topic: str, queue_id: int) -> None:
    """The default for `on_change`: does nothing."""


class Ack(Enum):
    """The result of an acknowledgement that does not change the offset."""

    UNKNOWN = "unknown"
    """The message is not one of the last pop."""
    IGNORED = "ignored"
    """It belongs to an earlier pop, or to one without an entry."""


class OrderTable:
    """The table of one broker. `clock` gives milliseconds.

    `is_known(topic, group)` tells whether both still exist.

    Attributes:
        on_change: called with group, topic and queue id after each change of an entry.
    """

    def __init__(
        self, path: Path, clock: Callable[[], int], is_known: Callable[[str, str], bool]
    ) -> None:
        self._file = ConfigFile(path, "positions of consumption in order")
        self._clock = clock
        self._is_known = is_known
        self._table: dict[str, dict[int, OrderInfo]] = {}
        self._dirty = False
        self.on_change: Callable[[str, str, int], None] = _nobody

    def load(self) -> None:
        """Read the file. Raises ConfigFileError."""
        document = self._file.load()
        self._dirty = self._file.stale and bool(document)
        try:
            self._table = {
                key: {
                    int(queue_id): lenient.convert(fields, OrderInfo)
                    for queue_id, fields in queues.items()
                }
                for key, queues in (document.get("table") or {}).items()
            }
        except (AttributeError, ValueError, msgspec.ValidationError) as error:
            raise ConfigFileError(self._file.path, str(error)) from None

    async def save(self) -> None:
        """Write the file in a thread if something changed. Raises OSError."""
        self._clean()
        if not self._dirty:
            return
        self._dirty = False
        try:
            await asyncio.to_thread(self._file.write, self._file.encode(self.document()))
        except OSError:
            self._dirty = True
            raise

    def document(self) -> dict[str, Any]:
        """Return the table in the form of the file."""
        return {"table": self._table}

    def get(self, group: str, topic: str, queue_id: int) -> OrderInfo | None:
        """Return the last pop in order of a queue."""
        return self._table.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id)

    def is_blocked(
        self,
        group: str,
        topic: str,
        queue_id: int,
        attempt_id: str | None = None,
        invisible_time: int = 0,
    ) -> bool:
        """Tell whether a queue is blocked now for a pop with this attempt id."""
        info = self.get(group, topic, queue_id)
        if info is None or (attempt_id is not None and attempt_id == info.attempt_id):
            return False
        return info.blocked_until(self._clock(), invisible_time) is not None

    def update(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offsets: Sequence[int],
        *,
        attempt_id: str | None,
        pop_time: int,
        invisible_time: int,
    ) -> OrderInfo:
        """Add a pop."""
        queues = self._table.setdefault(f"{topic}{SEPARATOR}{group}", {})
        info = queues[queue_id] = popped(
            queues.get(queue_id),
            offsets,
            attempt_id=attempt_id,
            pop_time=pop_time,
            invisible_time=invisible_time,
            now=self._clock(),
        )
        self._changed(group, topic, queue_id)
        return info

    def ack(
        self, group: str, topic: str, queue_id: int, offset: int, pop_time: int, committed: int
    ) -> int | Ack:
        """Mark a message as acknowledged, and return the new consumer offset; `committed` is the
        current one."""
        info = self.get(group, topic, queue_id)
        if info is None:
            # The entry was lost in a kill or a change of master. The reference always advances past
            # the message, and so loses unacknowledged messages before it.
            return offset + 1 if offset == committed else Ack.IGNORED
        if not info.places:
            return Ack.UNKNOWN
        if info.pop_time != pop_time:
            return Ack.IGNORED
        if not info.ack(offset):
            return Ack.UNKNOWN
        self._changed(group, topic, queue_id)
        return info.next_offset

    def postpone(
        self, group: str, topic: str, queue_id: int, offset: int, pop_time: int, visible: int
    ) -> None:
        """Make a message of the last pop visible again at `visible` (Unix ms); do nothing for a
        message of an earlier pop."""
        info = self.get(group, topic, queue_id)
        if info is not None and info.pop_time == pop_time and offset in info.offsets:
            info.postpone(offset, visible)
            self._changed(group, topic, queue_id)

    def clear(self, group: str, topic: str, queue_id: int) -> None:
        """Remove a queue: its consumer offset was set."""
        queues = self._table.get(f"{topic}{SEPARATOR}{group}", {})
        if queues.pop(queue_id, None) is not None:
            self._changed(group, topic, queue_id)

    def forget_topic(self, topic: str) -> None:
        """Remove a deleted topic: a new topic of the same name has other messages."""
        prefix = f"{topic}{SEPARATOR}"
        for key in [key for key in self._table if key.startswith(prefix)]:
            del self._table[key]
            self._dirty = True

    def queues(self) -> list[tuple[str, str, int]]:
        """Return group, topic and queue id of all entries."""
        found = []
        for key, queues in self._table.items():
            topic, _, group = key.partition(SEPARATOR)
            found += [(group, topic, queue_id) for queue_id in queues]
        return found

    def _changed(self, group: str, topic: str, queue_id: int) -> None:
        self._dirty = True
        self.on_change(group, topic, queue_id)

    def _clean(self) -> None:
        """Remove entries of deleted topics and groups, and entries unused for a day."""
        now = self._clock()
        for key, queues in list(self._table.items()):
            topic, _, group = key.partition(SEPARATOR)
            if not self._is_known(topic, group):
                queues.clear()
            for queue_id, info in list(queues.items()):
                if now - info.last_consumed > UNUSED_MS:
                    del queues[queue_id]
            if not queues:
                del self._table[key]
                self._dirty = True
