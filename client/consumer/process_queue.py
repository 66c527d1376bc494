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

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from message.limits import RETRY_PREFIX
from message.message import MessageExt, MessageQueue

__all__ = ["MESSAGE_OVERHEAD", "ProcessQueue", "message_size"]

#: Bytes a message in memory takes beside its body, roughly.
MESSAGE_OVERHEAD = 1024

M = TypeVar("M", bound=MessageExt)


def message_size(message: MessageExt) -> int:
    """Bytes it counts in flow control."""
    return len(message.body) + MESSAGE_OVERHEAD


class ProcessQueue(Generic[M]):
    """One queue's messages.

    Attributes:
        buffer: read ahead, not handed out.
        retries: it is one of the group's retry topic.
        dropped: the queue is read by somebody else from now on; nothing more is handed out.
        paused: nothing is pulled or handed out for now.
        ready: whether those who hand out have it in their list.
        busy: messages in work that the next one has to wait for (orderly).
        locked_until: the broker's lock holds until then at least, clock seconds (orderly).
        commit_failed: whether the last try to store its offset failed.
        pulled_at, consumed_at: the last time of each, monotonic seconds; None for never.
        count, size: messages and bytes that flow control counts for it.
    """

    __slots__ = (
        "_in_work",
        "_unfinished",
        "buffer",
        "busy",
        "commit_failed",
        "committed",
        "consumed_at",
        "count",
        "dropped",
        "locked_until",
        "next_offset",
        "paused",
        "pulled_at",
        "queue",
        "ready",
        "retries",
        "size",
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
        self.dropped = False
        self.paused = False
        self.ready = False
        self.busy = 0
        self.locked_until = 0.0
        self.pulled_at: float | None = None
        self.consumed_at: float | None = None
        # Handed out, in order. What is done leaves from the front, so the first one is not done;
        # the dict says which of the others are not.
        self._in_work: deque[M] = deque()
        self._unfinished: dict[int, M] = {}

    @property
    def position(self) -> int | None:
        """The offset of the next message to hand out; None before the first offset is known.

        Messages that the filter left out count as handed out.
        """
        return self.buffer[0].queue_offset if self.buffer else self.next_offset

    @property
    def safe_offset(self) -> int | None:
        """Everything before it is done; None before the first offset is known."""
        if not self._in_work:
            return self.position
        first = self._in_work[0].queue_offset
        # What was put back may lie before what is still in work.
        return min(first, self.buffer[0].queue_offset) if self.buffer else first

    @property
    def span(self) -> int:
        """From the first message that is not done to the last one that was read."""
        first = self._in_work[0] if self._in_work else self.buffer[0] if self.buffer else None
        last = self.buffer[-1] if self.buffer else self._in_work[-1] if self._in_work else None
        return 0 if first is None or last is None else last.queue_offset - first.queue_offset

    @property
    def unfinished(self) -> Iterator[M]:
        """What is handed out and not done, in order of handing out."""
        return iter(self._unfinished.values())

    @property
    def in_work(self) -> int:
        """How many are handed out and not done."""
        return len(self._unfinished)

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
        self._in_work.extend(messages)
        self._unfinished.update({message.queue_offset: message for message in messages})
        return messages

    def take_one(self) -> M:
        """Hand out the next message; there must be one."""
        message = self.buffer.popleft()
        self._in_work.append(message)
        self._unfinished[message.queue_offset] = message
        return message

    def done(self, message: M) -> bool:
        """The work on a message has ended; False for one that is not in work (any more)."""
        unfinished = self._unfinished
        offset = message.queue_offset
        if unfinished.get(offset) is not message:
            return False
        del unfinished[offset]
        in_work = self._in_work
        while in_work and in_work[0].queue_offset not in unfinished:
            in_work.popleft()
        return True

    def holds(self, message: M) -> bool:
        """Whether the message is handed out and not done."""
        return self._unfinished.get(message.queue_offset) is message

    def put_back(self, message: M) -> bool:
        """The message is handed out again, before all that follow it in the queue; but not before
        nothing else of the queue is in work. False for one that is not in work any more."""
        if not self.holds(message):
            return False
        offset = message.queue_offset
        del self._unfinished[offset]
        in_work, buffer = self._in_work, self.buffer
        while in_work and in_work[-1].queue_offset not in self._unfinished:
            in_work.pop()
        before: list[M] = []
        while buffer and buffer[0].queue_offset < offset:
            before.append(buffer.popleft())
        buffer.appendleft(message)
        buffer.extendleft(reversed(before))
        return True

    def release(self) -> None:
        """Everything handed out is done."""
        self._in_work.clear()
        self._unfinished.clear()

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
        self._in_work = deque(m for m in self._in_work if m.queue_offset < offset)
        self._unfinished = {at: m for at, m in self._unfinished.items() if at < offset}
        self.next_offset = offset
