"""Messages that were put, on their way into the consume queues.

An entry may be seen, by a pull or by a reader in another process, only when the log holds its
record: with ASYNC_FLUSH when it is written, with SYNC_FLUSH when it is on the disk. Until then it
waits here.

Each entry is announced to the listeners of its queue. A listener may read the store, which may
enter more entries. These wait until the ones before them are announced, so a listener never runs
inside another one, and arrivals are announced in the order of the log.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_right
from collections import deque
from operator import itemgetter
from struct import Struct
from typing import Final

from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT as UNIT
from pocketmq.store.encoding.queue_entry import iter_entries
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue import ConsumeQueue

log = logging.getLogger(__name__)

_NO_LIMIT: Final = 1 << 63
_physical_offset: Final = Struct(">q").unpack_from


class PendingEntries:
    """The pending entries, in the order of the log. All but `entered` and `entered_until` belong
    to the event loop's thread.

    Attributes:
        entered: physical offset up to which every message has its entry.
        limit: physical offset after which no message is entered, since replicas may not have it.
    """

    def __init__(self, commit_log: CommitLog, checkpoint: Checkpoint, *, after_flush: bool) -> None:
        """`checkpoint` gets the mark of the entered messages."""
        self._log = commit_log
        self._checkpoint = checkpoint
        self._after_flush = after_flush
        self.entered = 0
        self.limit = _NO_LIMIT
        self._last = -1  # physical offset of the last message that was entered; -1: unknown
        # (end offset, queue, queue offset, consume-queue entries, store timestamp)
        self._waiting: deque[tuple[int, ConsumeQueue, int, bytes, int]] = deque()
        # Entered but not announced: queue, queue offset, consume-queue entries, store timestamp.
        self._arrivals: deque[tuple[ConsumeQueue, int, bytes, int]] = deque()
        self._announcing = False
        self._failure: OSError | None = None  # why the last call of `enter` left something

    def begin_at(self, entered: int, last: int) -> None:
        """Begin with a log that is entered up to the physical offset `entered`; `last` is that of
        its last record."""
        self._checkpoint.clear_mark()
        self._last = last
        self._advance(entered)

    def add(
        self,
        end: int,
        queue: ConsumeQueue,
        queue_offset: int,
        entries: bytes,
        timestamp: int,
    ) -> None:
        """Take the entries of what was appended up to the physical offset `end`; `queue_offset` is
        the first one's."""
        self._waiting.append((end, queue, queue_offset, entries, timestamp))

    def has(self, queue: ConsumeQueue, queue_offset: int, physical_offset: int) -> bool:
        """Return whether this entry waits."""
        waiting = self._waiting
        at = bisect_right(waiting, physical_offset, key=itemgetter(0))
        end = waiting[at][0] if at < len(waiting) else 0
        # One put may have stored messages of several queues.
        while at < len(waiting) and waiting[at][0] == end:
            _, its_queue, first_offset, entries, _ = waiting[at]
            begin = (queue_offset - first_offset) * UNIT
            if its_queue is queue and 0 <= begin < len(entries):
                return bool(_physical_offset(entries, begin)[0] == physical_offset)
            at += 1
        return False

    def drop(self, queue: ConsumeQueue) -> None:
        """Drop the entries of a queue that wait, and take back their queue offsets."""
        if queue.has_waiting:
            self._waiting = deque(each for each in self._waiting if each[1] is not queue)
            queue.next_offset = queue.max_offset

    def settle(self) -> None:
        """Have everything that was put written, and entered if that is enough. Raises OSError."""
        if self._log.end != self._log.written:
            self._log.write()
        if self._after_flush:
            return
        if self._waiting:
            self.enter(self._log.whole)
            if self._failure is not None:
                raise self._failure
        elif self.entered != self._log.whole:
            self._advance(self._log.whole)

    def enter_what_may_be_read(self, flushed: int) -> None:
        """Enter what only waited for `limit`; the log is on the disk up to `flushed`."""
        self.enter(flushed if self._after_flush else self._log.whole)

    def enter(self, end: int) -> None:
        """Let everything up to the physical offset `end` be read.

        If the file of a queue cannot be opened, its entries and all later ones wait for the next
        call. The failure is reported as one of the log.
        """
        waiting = self._waiting
        self._failure = None
        entered = before = self.entered
        last = b""
        if end > self.limit:
            end = self.limit
        while waiting and waiting[0][0] <= end:
            until, queue, queue_offset, entries, timestamp = waiting.popleft()
            if queue.removed:
                continue
            try:
                queue.append(entries)
            except OSError as error:
                # Some of them may be entered; the others have their places after those.
                done = (queue.max_offset - queue_offset) * UNIT
                waiting.appendleft((until, queue, queue.max_offset, entries[done:], timestamp))
                self._failure = error
                entries = entries[:done]
            if queue.listeners and entries:
                self._arrivals.append((queue, queue_offset, entries, timestamp))
            if self._failure is not None:
                if entered == until:  # entries of the same message in other queues
                    entered = before
                self._log.on_failed(self._failure)
                break
            if entered != until:
                before = entered
            entered = until
            last = entries
        else:
            entered = end
        if last:
            self._last = _physical_offset(last, len(last) - UNIT)[0]
        if entered != self.entered:
            self._advance(entered)
        if self._arrivals and not self._announcing:
            self._announce()

    def forget_from(self, physical_offset: int) -> None:
        """Drop pending entries of records from `physical_offset` on, and take back their queue
        offsets. Entries made already are left to the caller."""
        kept: deque[tuple[int, ConsumeQueue, int, bytes, int]] = deque()
        for end, queue, queue_offset, entries, timestamp in self._waiting:
            before = entries
            if end > physical_offset:
                flat = list(iter_entries(entries))
                count = sum(entry[0] < physical_offset for entry in flat)
                before = entries[: count * UNIT]
                queue.next_offset = min(queue.next_offset, queue_offset + count)
                end = min(end, physical_offset)
            if before:
                kept.append((end, queue, queue_offset, before, timestamp))
        self._waiting = kept
        self.entered = min(self.entered, physical_offset)
        self._last = -1
        self._checkpoint.clear_mark()

    def _advance(self, entered: int) -> None:
        self.entered = entered
        if 0 <= self._last < entered:
            self._checkpoint.mark_entered(entered, self._last)

    def entered_until(self) -> tuple[int, int]:
        """Return the physical offset and the store timestamp up to which every message has its
        entry."""
        offset = self.entered
        timestamp = self._log.store_timestamp
        with contextlib.suppress(IndexError):
            timestamp = min(timestamp, self._waiting[0][4] - 1)
        return offset, timestamp

    def _announce(self) -> None:
        self._announcing = True
        try:
            while self._arrivals:
                queue, first, entries, timestamp = self._arrivals.popleft()
                for offset, (_, _, tags_code) in enumerate(iter_entries(entries), first):
                    for listener in queue.listeners:
                        try:
                            listener(offset, tags_code, timestamp)
                        except Exception:
                            log.exception(
                                "queue %s/%d: a listener failed", queue.topic, queue.queue_id
                            )
        finally:
            self._announcing = False
