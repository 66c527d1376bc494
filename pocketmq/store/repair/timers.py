"""Rebuilds the timers from the commit log.

The log has every timed message, in the timer topic, and each that was delivered, in the topic it
was sent to, with the properties of the timed message. A message that was neither delivered nor
stored again by a roll is pending.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, TypeAlias

from pocketmq.message import properties as names
from pocketmq.message.limits import TIMER_TOPIC
from pocketmq.message.record import Record
from pocketmq.store.config import StoreConfig
from pocketmq.store.files import Files
from pocketmq.store.log.allocation import FileAllocator
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.log_walk import LogWalk
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.log.padding import is_padding
from pocketmq.store.timer.timer_index import TimerIndex

_OUT: Final = names.TIMER_OUT_MS.encode()

#: What a pending message and the delivered one have in common.
_Identity: TypeAlias = tuple[str, str, str, int, int]


class _Waiting(NamedTuple):
    physical_offset: int
    size: int
    time: int
    topic: str
    key: str  # under which it may be recalled
    recalls: str


class WaitingMessages:
    """The timed messages of a commit log that were not delivered.

    Attributes:
        queue_end: queue offset after the last message of the timer topic.
    """

    def __init__(self) -> None:
        self.queue_end = 0
        self._waiting: dict[_Identity, deque[_Waiting]] = {}
        self._recalls: list[_Waiting] = []

    def meet(self, record: Record) -> None:
        """Take note of the next record of the log."""
        if record.topic == TIMER_TOPIC and not is_padding(record):
            self.queue_end = max(self.queue_end, record.queue_offset + 1)
        if _OUT not in bytes(record.properties_bytes):
            return
        properties = record.properties
        topic, unique = properties.get(names.REAL_TOPIC, ""), properties.get(names.UNIQ_KEY, "")
        identity = (
            topic, properties.get(names.REAL_QID, ""), unique, record.born_timestamp,
            record.body_crc,
        )  # fmt: skip
        if record.topic == topic:
            self._take(identity)
        elif record.topic == TIMER_TOPIC:
            if names.TIMER_ROLL_TIMES in properties:
                self._take(identity)
            time = properties.get(names.TIMER_OUT_MS, "")
            if not (time.isascii() and time.isdecimal() and len(time) < 19):
                return
            recalls = properties.get(names.TIMER_DEL_UNIQKEY, "")
            if recalls and not recalls.startswith(f"{topic}+"):
                recalls = f"{topic}+{recalls}"  # as brokers from 5.4 on write it
            waiting = _Waiting(
                record.physical_offset, record.size, int(time), topic, f"{topic}+{unique}", recalls
            )
            if recalls:
                self._recalls.append(waiting)
            else:
                self._waiting.setdefault(identity, deque()).append(waiting)

    def enter(self, index: TimerIndex, now: int) -> int:
        """Enter them into an empty index; return their number. Raises DiskFull."""
        waiting = [each for same in self._waiting.values() for each in same]
        keys = {each.key for each in waiting}
        recalls = [each for each in self._recalls if each.recalls in keys]
        now_slot = index.floor(now)
        index.read_time = now_slot
        for each in sorted((*waiting, *recalls)):
            # Overdue messages enter one slot together, so that recalls are among them.
            index.add(
                max(each.time, now_slot), now_slot, each.physical_offset, each.size, each.topic,
                bool(each.recalls),
            )  # fmt: skip
        index.queue_offset = self.queue_end
        return len(waiting)

    def _take(self, identity: _Identity) -> None:
        same = self._waiting.get(identity)
        if same:
            same.popleft()
            if not same:
                del self._waiting[identity]


def rebuild_timers(config: StoreConfig, files: Files, log: MappedFileQueue, now: int) -> int:
    """Make the files of the timers, of which there must be none, from a commit log; `now` is the
    time in ms. Return how many messages wait. Raises StoreError, OSError."""
    found = WaitingMessages()
    walk = LogWalk(log, log.first_offset)
    for record in walk:
        found.meet(record)
    index = TimerIndex(config, files)
    index.open(now, CommitLog(log, FileAllocator(files)))
    try:
        waiting = found.enter(index, now)
        index.checkpoint(index.progress(), now, [])
        index.seal()
    finally:
        index.close()
    return waiting
