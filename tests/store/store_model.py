"""What a store must hold, as lists and dicts: the state machine compares a store with it.

A queue has several lives: deleting its topic, or its removal as expired, begins the next one, whose
first message gets queue offset 0. The records of earlier lives stay in the log. So when a crash
takes all messages of the last life, recovery finds the life before it again, or the end of that;
the store does not know that it was deleted, and nothing is promised about it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

MIN_BLANK: Final = 8

Queue = tuple[str, int]


class Message(NamedTuple):
    """A message that was put.

    keys: its unique key, its keys, and its tags behind T#, as the index has them. queued: whether
    it has an entry in a consume queue; half messages and rollbacks have none. light: the light
    queues that have it, with its queue offset in each.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    end: int
    timestamp: int
    body: bytes
    tag: str
    keys: tuple[str, ...]
    properties: str
    queued: bool = True
    light: Mapping[str, int] = {}

    def offset_in(self, queue: Queue) -> int:
        """Its offset in one of its queues."""
        return self.light.get(queue[0], self.queue_offset)


class QueueModel:
    """One queue.

    Attributes:
        lives: the messages of each life, at their queue offsets; the last one is the current.
        owed: of the current life, messages from this queue offset on must be there.
        low: of the current life, messages below this queue offset are not there.
    """

    def __init__(self) -> None:
        self.lives: list[list[Message]] = [[]]
        self.owed = 0
        self.low = 0

    @property
    def messages(self) -> list[Message]:
        return self.lives[-1]

    def bounds(self, begin: int) -> tuple[int, int]:
        """The minimum and maximum offset, in a log that begins at the physical offset `begin`."""
        kept = self.messages[self.low :]
        return self.low + _first_kept(kept, begin), len(self.messages)

    def end_life(self) -> None:
        self._begin_life([])

    def cut(self, end: int) -> None:
        """The log ends at `end` now."""
        self.lives = [[m for m in life if m.physical_offset < end] for life in self.lives]
        while len(self.lives) > 1 and not self.lives[-1]:
            self.lives.pop()
            self.owed = len(self.messages)

    def recovered(self, begin: int, low: int, high: int) -> None:
        """Check what a recovery found, and go on from there."""
        messages = self.messages
        expired = _first_kept(messages, begin)
        if self.owed < len(messages):
            assert high == len(messages)
            assert expired <= low <= max(expired, self.owed)
        else:
            assert 0 <= low <= high <= len(messages)
            if high < len(messages):
                self._begin_life(messages[:high])
        self.low = low

    def _begin_life(self, messages: list[Message]) -> None:
        self.lives.append(messages)
        self.owed, self.low = len(messages), 0


class StoreModel:
    """A store whose commit-log files have `file_size` bytes.

    Attributes:
        begin, end: physical offsets.
        log: every message that was put and not lost, also those that have expired.
    """

    def __init__(self, file_size: int) -> None:
        self.begin = 0
        self.end = 0
        self.log: list[Message] = []
        self.queues: dict[Queue, QueueModel] = {}
        self._file_size = file_size

    def queue(self, topic: str, queue_id: int) -> QueueModel:
        return self.queues.setdefault((topic, queue_id), QueueModel())

    def place(self, size: int) -> int:
        """The physical offset of the next record, or batch, if it has `size` bytes."""
        room = -self.end % self._file_size or self._file_size
        return self.end if size + MIN_BLANK <= room else self.end + room

    def add(self, message: Message) -> None:
        self.log.append(message)
        self.end = message.end
        queue = self.queue(message.topic, message.queue_id)
        if message.queued:
            queue.messages.append(message)
        for name in message.light:
            self.queue(name, 0).messages.append(message)

    def delete_topic(self, topic: str) -> None:
        for (name, _), queue in self.queues.items():
            if name == topic:
                queue.end_life()

    def has_expired(self, queue: QueueModel) -> bool:
        """Whether it had messages, and the log has none of them any more."""
        return bool(queue.messages) and queue.messages[-1].physical_offset < self.begin

    def lasting(self, flushed: int) -> int:
        """The end of what must survive when the log is flushed up to `flushed`: without a blank at
        the end of a file, which recovery may write over."""
        return max((m.end for m in self.log if m.end <= flushed), default=0)

    def recovered(
        self, begin: int, end: int, found: Mapping[Queue, tuple[int, int]], *, least: int
    ) -> None:
        """Check what a recovery found, and go on from there: where the log begins and ends, and
        the minimum and maximum offset of each queue. What is before `least` must be there."""
        assert self.begin <= begin
        assert end >= least
        self.log = [m for m in self.log if m.physical_offset < end]
        last = self.log[-1].end if self.log else 0
        assert end in (last, -(-last // self._file_size) * self._file_size, begin)
        self.begin, self.end = begin, end
        for key in found.keys() | self.queues.keys():
            queue = self.queue(*key)
            queue.cut(end)
            queue.recovered(begin, *found.get(key, (0, 0)))

    def found_by_key(self, topic: str, key: str, most: int, begin: int, end: int) -> list[Message]:
        """What a query finds: the newest messages with a key, each once."""
        return [
            message
            for message in self.log
            if message.topic == topic
            and key in message.keys
            and begin <= message.timestamp <= end
            and message.physical_offset >= self.begin
        ][-most:]

    def offset_by_time(
        self, queue: QueueModel, timestamp: int, boundary: Literal["lower", "upper"]
    ) -> int:
        low, high = queue.bounds(self.begin)
        times = [message.timestamp for message in queue.messages[low:high]]
        if boundary == "lower":
            return low + bisect_left(times, timestamp)
        return low + max(bisect_right(times, timestamp) - 1, 0)


def _first_kept(messages: list[Message], begin: int) -> int:
    """How many of the first messages have expired."""
    return bisect_left(messages, begin, key=lambda message: message.physical_offset)
