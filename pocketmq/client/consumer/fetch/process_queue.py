"""The messages of one queue that were pulled and are not consumed yet.

| offset | meaning |
|---|---|
| next_offset | of the next pull |
| position | of the next message to deliver |
| safe_offset | may be committed: everything before it is consumed |
| committed | the group's stored offset, if known |

Messages are delivered in the order of the queue, and may be finished in any. Reference:
ProcessQueue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.message.message import MESSAGE_OVERHEAD, MessageExt, MessageQueue

M = TypeVar("M", bound=MessageExt)


def message_size(message: MessageExt) -> int:
    """Return the bytes that a message counts against the limits."""
    return len(message.body) + MESSAGE_OVERHEAD


class ProcessQueue(Generic[M]):
    """One queue's messages.

    Attributes:
        buffer: prefetched messages.
        unfinished: offset → message that was delivered and is not consumed. In order: a message
            that was put back is delivered again before others.
        retries: it belongs to the group's retry topic.
        dropped: another client reads the queue now; nothing more is delivered.
        paused: nothing is pulled or delivered for now.
        ready: whether it is in the list of queues to deliver from.
        gathers: its messages may have to wait until they fill a batch.
        busy: messages in progress, for which the next one has to wait (orderly).
        lock_doubtful: the connection over which the lock was taken is lost (orderly).
        locked_until: the broker's lock is valid at least until then, clock seconds (orderly).
        commit_failed: whether the last commit failed.
        pulled_at, answered_at, consumed_at: the last time of each, monotonic seconds; None for
            never.
        failing: whether the last pull failed.
        end: the offset after the queue's last message, from the last answer; None before.
        count, size: messages and bytes that the pull limiter counts for it.
        kept: bytes of an answer to a pull that is not fully read, for lack of room.
        room: set when the queue itself has room again, if its next pull waits for that.
    """

    __slots__ = (
        "answered_at",
        "buffer",
        "busy",
        "commit_failed",
        "committed",
        "consumed_at",
        "count",
        "dropped",
        "end",
        "failing",
        "gathers",
        "kept",
        "lock_doubtful",
        "locked_until",
        "next_offset",
        "paused",
        "pulled_at",
        "queue",
        "ready",
        "retries",
        "room",
        "size",
        "unfinished",
    )

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.retries = queue.topic.startswith(RETRY_PREFIX)
        self.next_offset: int | None = None
        self.committed: int | None = None
        self.commit_failed = False
        self.buffer: deque[M] = deque()
        self.count = 0
        self.size = 0
        self.kept = 0
        self.room: asyncio.Event | None = None
        self.dropped = False
        self.paused = False
        self.ready = False
        self.gathers = False
        self.busy = 0
        self.lock_doubtful = False
        self.locked_until = 0.0
        self.failing = False
        self.end: int | None = None
        self.pulled_at: float | None = None
        self.answered_at: float | None = None
        self.consumed_at: float | None = None
        self.unfinished: dict[int, M] = {}

    @property
    def position(self) -> int | None:
        """The offset of the next message to deliver; None before the first offset is known.

        Messages that the filter excluded count as delivered.
        """
        return self.buffer[0].queue_offset if self.buffer else self.next_offset

    @property
    def safe_offset(self) -> int | None:
        """The offset before which everything is consumed; None before the first offset is known."""
        first = next(iter(self.unfinished), None)
        if first is None:
            return self.position
        # A message that was put back may be before those in progress.
        return min(first, self.buffer[0].queue_offset) if self.buffer else first

    @property
    def lag(self) -> int | None:
        """Offsets from the first message that is not consumed to the end of the queue."""
        safe = self.safe_offset
        return None if safe is None or self.end is None else max(self.end - safe, 0)

    @property
    def body_size(self) -> int:
        """Bytes of the bodies that the pull limiter counts for this queue."""
        return self.size - self.count * MESSAGE_OVERHEAD

    @property
    def span(self) -> int:
        """Offsets from the first message that is not consumed to the last one."""
        unfinished, buffer = self.unfinished, self.buffer
        if not buffer:
            return next(reversed(unfinished)) - next(iter(unfinished)) if unfinished else 0
        first = next(iter(unfinished)) if unfinished else buffer[0].queue_offset
        return buffer[-1].queue_offset - first

    def accept(self, messages: Sequence[M], next_offset: int) -> None:
        """Add the messages of a pull; the next one begins at `next_offset`."""
        self.next_offset = next_offset
        self.buffer.extend(messages)

    def take(self, count: int) -> list[M]:
        """Return up to `count` messages for delivery."""
        buffer = self.buffer
        if count >= len(buffer):
            messages = list(buffer)
            buffer.clear()
        else:
            messages = [buffer.popleft() for _ in range(count)]
        self.unfinished.update({message.queue_offset: message for message in messages})
        return messages

    def done(self, message: M) -> bool:
        """Mark a message as consumed; return False if it is not in progress (any more)."""
        unfinished = self.unfinished
        offset = message.queue_offset
        if unfinished.get(offset) is not message:
            return False
        del unfinished[offset]
        return True

    def holds(self, message: M) -> bool:
        """Return whether a message is delivered and not consumed."""
        return self.unfinished.get(message.queue_offset) is message

    def put_back(self, message: M) -> bool:
        """Put a message back into the buffer, in the order of the queue, to be delivered again. Do
        this only when no other message of the queue is in progress. Return False if the message is
        not in progress any more."""
        if not self.holds(message):
            return False
        offset = message.queue_offset
        del self.unfinished[offset]
        buffer = self.buffer
        before: list[M] = []
        while buffer and buffer[0].queue_offset < offset:
            before.append(buffer.popleft())
        buffer.appendleft(message)
        buffer.extendleft(reversed(before))
        return True

    def release(self) -> None:
        """Mark all delivered messages as consumed."""
        self.unfinished.clear()

    def drop_buffer(self) -> None:
        """Drop prefetched messages; the next pull returns them again."""
        self.next_offset = self.position
        self.buffer.clear()

    def seek(self, offset: int) -> None:
        """Continue at another offset; drop messages that were read or are in progress."""
        self.buffer.clear()
        self.release()
        self.next_offset = offset

    def cut(self, offset: int) -> None:
        """Continue at an offset up to `next_offset`; drop messages from it on that were read or are
        in progress."""
        self.buffer = deque(m for m in self.buffer if m.queue_offset < offset)
        self.unfinished = {at: m for at, m in self.unfinished.items() if at < offset}
        self.next_offset = offset
