"""Where the records of a queue end that survive a power failure.

A broker flushes its commit log some time after it has stored a message, and notes the flushed
offset in the checkpoint. A reader that remembers where it stopped must not go further: after a
power failure the broker would give the offsets of lost messages to new ones, and the reader would
take these for known.

Nothing is held back in a store that no broker has open: it has nothing to lose any more but in a
power failure within the seconds after its broker was killed.
"""

from __future__ import annotations

from pocketmq.store.log.checkpoint import FlushedUpTo, read_flushed
from pocketmq.store.scan.planning.snapshot import State, StoreSnapshot
from pocketmq.store.scan.queues.queue_snapshot import QueueSnapshot


class FlushedEnds:
    """The flushed ends of the queues of one snapshot, as the checkpoint says now."""

    def __init__(self, store: StoreSnapshot) -> None:
        self._store = store
        # Without a checkpoint nothing was ever flushed.
        self._flushed = FlushedUpTo(0, 0)
        self._is_open = store.state is State.OPEN
        if self._is_open:
            self._flushed = read_flushed(store.root / "checkpoint") or self._flushed

    def of(self, queue: QueueSnapshot) -> int:
        """Return the queue offset after the last record of `queue` that is on the disk.

        A pocketmq broker's checkpoint has the physical offset. Official brokers write a time, which
        stands for the messages stored until then.
        """
        if not self._is_open or queue.max_offset == queue.min_offset:
            return queue.max_offset
        offset, timestamp = self._flushed
        if offset is None:
            return self._store.first_stored_from(queue, timestamp + 1)
        if queue.max_physical() <= offset:  # nearly always, and a search is slow
            return queue.max_offset
        return queue.first_from(offset)
