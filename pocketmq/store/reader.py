"""Reads from an open store: messages of a queue, offsets, times.

Reference: DefaultMessageStore.getMessage, ConsumeQueue.binarySearchInQueueByTime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from pocketmq.message.record import RecordError, properties_of
from pocketmq.store.config import CONSUME_QUEUE_UNIT, StoreConfig
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.results import GetResult, GetStatus, StoreCounters

_FOUND: Final = GetStatus.FOUND
_NO_MATCHED_MESSAGE: Final = GetStatus.NO_MATCHED_MESSAGE
_REMOVING: Final = GetStatus.MESSAGE_WAS_REMOVING
MAX_PULL_BYTES: Final = 256 * 1024


class DiskLimits(NamedTuple):
    """Smaller limits of a read for messages that are probably no longer in memory.

    Attributes:
        memory: a message counts as in memory up to so many bytes before the end of the log.
        max_messages, max_bytes: the limits once a message lies before that.
    """

    memory: int
    max_messages: int
    max_bytes: int


_ALL_IN_MEMORY: Final = DiskLimits(2**63 - 1, 2**31 - 1, 2**31 - 1)


class StoreReader:
    """Reads for a `MessageStore`. Offsets are queue offsets unless called physical.

    Every method settles pending puts first, so it sees all messages that were put before it, as far
    as these can be written.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        table: ConsumeQueueTable,
        config: StoreConfig,
        settle: Callable[[], None],
        counters: StoreCounters,
    ) -> None:
        self._log = commit_log
        self._settle = settle
        self._by_topic = table.by_topic
        self._counters = counters
        self._scan_limit = config.max_filter_message_size // CONSUME_QUEUE_UNIT

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        max_bytes: int = MAX_PULL_BYTES,
        codes: frozenset[int] | None = None,
        accept: Callable[[Mapping[str, str]], bool] | None = None,
        disk: DiskLimits = _ALL_IN_MEMORY,
    ) -> GetResult:
        """Messages from `offset` on, in order, as slices of the mapped log.

        At most `max_messages`, and no more than fit into `max_bytes`, except that the first one is
        always given. With `codes` only messages whose tags code is among them, with `accept` only
        those whose properties it accepts; at most maxFilterMessageSize bytes of consume queue are
        scanned for them. `disk` bounds the read further where messages are old. One call never
        reads beyond the consume-queue file that `offset` lies in.
        """
        self._settle()
        queues = self._by_topic.get(topic)
        queue = queues.get(queue_id) if queues is not None else None
        if queue is None:
            return self._missed(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if not low <= offset < high:
            return self._out_of_range(offset, low, high)
        log = self._log
        limit = max_messages
        if codes is not None or accept is not None:
            limit = max(self._scan_limit, max_messages)
        buffers: list[memoryview] = []
        status = _NO_MATCHED_MESSAGE
        next_offset = offset
        count = total = 0
        memory, disk_messages, disk_bytes = disk
        on_disk = log.end - memory  # physical offset before which messages count as on the disk
        # Records that lie side by side are given as one slice: begin and end of the current one.
        run_begin = run_end = -1
        file_begin = file_end = -1
        view = None
        for physical, size, tags_code in queue.read(offset, limit):
            if count and (
                count >= max_messages
                or total + size > max_bytes
                or (physical < on_disk and (count >= disk_messages or total + size > disk_bytes))
            ):
                break
            next_offset += 1
            if codes is not None and tags_code not in codes:
                continue
            if accept is not None:
                properties = self._properties(physical, size)
                if properties is not None and not accept(properties):
                    continue
            if physical == run_end and physical + size <= file_end:
                run_end += size
            else:
                if physical < file_begin or physical + size > file_end:
                    file = log.files.find(physical)
                    if file is None or physical + size > file.base_offset + file.size:
                        # The file has expired, or the entry is a filler.
                        status = _REMOVING
                        continue
                    if view is not None and run_end > run_begin:
                        buffers.append(view[run_begin - file_begin : run_end - file_begin])
                    file_begin, view = file.base_offset, file.view
                    file_end = file_begin + file.size
                elif view is not None and run_end > run_begin:
                    buffers.append(view[run_begin - file_begin : run_end - file_begin])
                run_begin = physical
                run_end = physical + size
            count += 1
            total += size
        else:
            if next_offset == offset:
                # The file of the queue expired between two looks at it.
                unit = queue.files.file_size // CONSUME_QUEUE_UNIT
                following = offset - offset % unit + unit
                return self._missed(GetStatus.OFFSET_FOUND_NULL, following, low, high)
        if not count or view is None:
            return self._missed(status, next_offset, low, high)
        buffers.append(view[run_begin - file_begin : run_end - file_begin])
        counters = self._counters
        counters.gets_found += 1
        counters.messages_got += count
        counters.bytes_got += total
        behind = log.end - run_end
        return GetResult(_FOUND, next_offset, low, high, buffers, count, total, behind)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the oldest message's offset; 0 for an unknown queue."""
        queue = self._find(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the newest readable message; 0 for an unknown queue."""
        queue = self._find(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp: int,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """Return where a store timestamp (ms) lies in a queue.

        `lower`: the first message stored at that time or later (max_offset if there is none);
        `upper`: the last one stored at that time or earlier (min_offset if there is none).
        0 for an unknown queue.
        """
        queue = self._find(topic, queue_id)
        if queue is None:
            return 0
        time_of = self._log.store_timestamp_at
        if boundary == "lower":
            return queue.first_where(lambda physical, size: time_of(physical, size) >= timestamp)
        later = queue.first_where(lambda physical, size: time_of(physical, size) > timestamp)
        return max(later - 1, queue.min_offset)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Return the store timestamp (ms) of the oldest message of a queue; -1 without one."""
        return self.store_time_at(topic, queue_id, self.min_offset(topic, queue_id))

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store timestamp (ms) of the message at `offset`; -1 where there is none."""
        queue = self._find(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return self._log.store_timestamp_at(entry[0], entry[1]) if entry is not None else -1

    def properties_at(self, topic: str, queue_id: int, offset: int) -> dict[str, str] | None:
        """Return the properties of the message at `offset`; None where there is none."""
        queue = self._find(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return self._properties(entry[0], entry[1]) if entry is not None else None

    def record_at(self, physical_offset: int) -> memoryview:
        """Return the record that begins at a physical offset. Raises `RecordNotFound`."""
        return self._log.record_at(physical_offset)

    def _properties(self, physical: int, size: int) -> dict[str, str] | None:
        record = self._log.read(physical, size)
        try:
            return properties_of(record) if record is not None else None
        except RecordError:
            return None

    def _find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        self._settle()
        queues = self._by_topic.get(topic)
        return queues.get(queue_id) if queues is not None else None

    def _out_of_range(self, offset: int, low: int, high: int) -> GetResult:
        if high == 0:
            return self._missed(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return self._missed(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return self._missed(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        return self._missed(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)

    def _missed(self, status: GetStatus, next_offset: int, low: int, high: int) -> GetResult:
        self._counters.gets_missed += 1
        return GetResult(status, next_offset, low, high)
