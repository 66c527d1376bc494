"""The messages of one queue between the pull that brought them and the end of their work.

| offset | meaning |
|---|---|
| next_offset | where the next pull begins |
| position | the first message not handed out yet |
| safe_offset | everything before it is done: what may be committed |
| committed | what the group's stored offset is known to be |

Messages are handed out in the order of the queue and may be done in any. Reference: ProcessQueue.
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
    """Bytes it counts against the limits."""
    return len(message.body) + MESSAGE_OVERHEAD


class ProcessQueue(Generic[M]):
    """One queue's messages.

    Attributes:
        buffer: read ahead, not handed out.
        unfinished: handed out and not done, by offset. In order: a message that was put back is
            handed out again before others are.
        retries: it is one of the group's retry topic.
        dropped: the queue is read by somebody else from now on; nothing more is handed out.
        paused: nothing is pulled or handed out for now.
        ready: whether it is in the list of queues to hand out from.
        gathers: its messages may have to wait until they fill a batch.
        busy: messages in work that the next one has to wait for (orderly).
        lock_doubtful: the connection over which the lock was taken is lost (orderly).
        locked_until: the broker's lock holds until then at least, clock seconds (orderly).
        commit_failed: whether the last try to store its offset failed.
        pulled_at, answered_at, consumed_at: the last time of each, monotonic seconds; None for
            never.
        failing: the last try to read it failed.
        end: the offset of the queue's next message, as the last answer told it; None before.
        count, size: messages and bytes that the pull limiter counts for it.
        kept: bytes of an answer to a pull of which some messages had no room yet.
        room: set when the queue itself has room again, if that is what its next pull waits for.
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
        """The offset of the next message to hand out; None before the first offset is known.

        Messages that the filter left out count as handed out.
        """
        return self.buffer[0].queue_offset if self.buffer else self.next_offset

    @property
    def safe_offset(self) -> int | None:
        """Everything before it is done; None before the first offset is known."""
        first = next(iter(self.unfinished), None)
        if first is None:
            return self.position
        # What was put back may lie before what is still in work.
        return min(first, self.buffer[0].queue_offset) if self.buffer else first

    @property
    def lag(self) -> int | None:
        """From the first message that is not done to the end of the queue, in offsets."""
        safe = self.safe_offset
        return None if safe is None or self.end is None else max(self.end - safe, 0)

    @property
    def body_size(self) -> int:
        """Bytes of the bodies that the pull limiter counts for it."""
        return self.size - self.count * MESSAGE_OVERHEAD

    @property
    def span(self) -> int:
        """From the first message that is not done to the last one."""
        unfinished, buffer = self.unfinished, self.buffer
        if not buffer:
            return next(reversed(unfinished)) - next(iter(unfinished)) if unfinished else 0
        first = next(iter(unfinished)) if unfinished else buffer[0].queue_offset
        return buffer[-1].queue_offset - first

    def accept(self, messages: Sequence[M], next_offset: int) -> None:
        """What a pull brought; the next one begins at `next_offset`."""
        self.next_offset = next_offset
        self.buffer.extend(messages)

    def take(self, count: int) -> list[M]:
        """Hand out up to `count` messages."""
        buffer = self.buffer
        if count >= len(buffer):
            messages = list(buffer)
            buffer.clear()
        else:
            messages = [buffer.popleft() for _ in range(count)]
        self.unfinished.update({message.queue_offset: message for message in messages})
        return messages

    def done(self, message: M) -> bool:
        """The work on a message has ended; False for one that is not in work (any more)."""
        unfinished = self.unfinished
        offset = message.queue_offset
        if unfinished.get(offset) is not message:
            return False
        del unfinished[offset]
        return True

    def holds(self, message: M) -> bool:
        """Whether the message is handed out and not done."""
        return self.unfinished.get(message.queue_offset) is message

    def put_back(self, message: M) -> bool:
        """The message is handed out again, before all that follow it in the queue; but not before
        nothing else of the queue is in work. False for one that is not in work any more."""
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
        """Everything handed out is done."""
        self.unfinished.clear()

    def drop_buffer(self) -> None:
        """Forget what was read ahead; the next pull would bring it again."""
        self.next_offset = self.position
        self.buffer.clear()

    def seek(self, offset: int) -> None:
        """Go on at another offset; what was read and what is in work does not count any more."""
        self.buffer.clear()
        self.release()
        self.next_offset = offset

    def cut(self, offset: int) -> None:
        """Go on at an offset up to `next_offset`; of what was read and what is in work, only what
        is before it counts."""
        self.buffer = deque(m for m in self.buffer if m.queue_offset < offset)
        self.unfinished = {at: m for at, m in self.unfinished.items() if at < offset}
        self.next_offset = offset
