"""Reads from an open store: messages of a queue, offsets, times.

Reference: DefaultMessageStore.getMessage, ConsumeQueue.binarySearchInQueueByTime.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final, Literal

import msgspec

from pocketmq._accelerator import accelerator_wanted
from pocketmq.limited_log import LimitedLog
from pocketmq.message.properties import TAGS
from pocketmq.message.record import Record, decode
from pocketmq.message.record_layout import RecordError, properties_of
from pocketmq.message.sql_filter import FILTER_WORK, SqlFilter, cost_of, work_of
from pocketmq.message.tags import tag_hash
from pocketmq.store.config import StoreConfig
from pocketmq.store.delay_level import DelayLevels
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT, Entry, unpack_entry
from pocketmq.store.errors import RecordNotFound
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.numpy_loader import numpy_loader
from pocketmq.store.queue.consume_queue import FILLER_SIZE, ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.damaged_entries import DamagedEntries
from pocketmq.store.queue.record_heads import RecordHeads, few_agree
from pocketmq.store.results import GetResult, GetStatus, StoreCounters

log = logging.getLogger(__name__)

_FOUND: Final = GetStatus.FOUND
_NO_MATCHED_MESSAGE: Final = GetStatus.NO_MATCHED_MESSAGE
_REMOVING: Final = GetStatus.MESSAGE_WAS_REMOVING
MAX_PULL_BYTES: Final = 256 * 1024
_FEW: Final = 8  # messages; what a consumer gets that does not lag
#: Bytes of a slice, on average, below which many slices cost their reader more than one copy of
#: all: of 32 slices of 1 KiB each, a connection makes such a copy anyway, 1 µs later in a pull of
#: 20.
_SMALL: Final = 8 * 1024
# Messages that are searched at once: those of the first search may be all that a read needs.
_SEARCHED_FIRST: Final = 128
_WORTH_A_SEARCH: Final = 32
_ASKED_BEFORE: Final = 4


def _compiled() -> Callable[..., tuple[int, int, int, list[bytes | memoryview]] | None] | None:
    """Return what reads messages by compiled code; None without it."""
    if not accelerator_wanted():
        return None
    try:
        from pocketmq.store._compiled_read import read_together
    except ImportError:
        return None
    return read_together


class DiskLimits(msgspec.Struct, frozen=True):
    """Smaller limits of a read for messages that are probably no longer in memory.

    Attributes:
        memory: a message counts as in memory within this many bytes of the end of the log.
        max_messages, max_bytes: the limits for messages before that.
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
        delay_levels: DelayLevels,
        is_pending: Callable[[ConsumeQueue, int, int], bool],
    ) -> None:
        self._is_pending = is_pending
        self._log = commit_log
        self._settle = settle
        self._table = table
        self._by_topic = table.by_topic
        self._counters = counters
        self._config = config
        self._lines = LimitedLog(log)
        self._heads = RecordHeads(commit_log.files)
        self._damaged = DamagedEntries(
            commit_log, delay_levels, counters, whole_crc=config.force_verify_prop_crc
        )
        self.deleted = self._damaged.deleted
        self._read_together = _compiled()
        self._scan_limit = config.max_filter_message_size // CONSUME_QUEUE_UNIT
        self._filter_work = 0  # of the last read

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
        """Messages from `offset` on, in order, as slices of the mapped log. Small ones that lie
        apart are copied together.

        At most `max_messages`, and no more than fit into `max_bytes`, except that the first one is
        always given. With `codes` only messages whose tags code is among them, with `accept` only
        those whose properties it accepts; at most maxFilterMessageSize bytes of consume queue are
        scanned for them, and `accept` is asked no more often than FILTER_WORK allows. `disk` bounds
        the read further where messages are old. One call never reads beyond the consume-queue file
        that contains `offset`.

        Each entry is compared with the head of its record, and with checkCRCOnRead with all of it.
        A damaged entry is rebuilt from the log; a message that cannot be read is skipped, and the
        next offset is after it.
        """
        self._settle()
        self._filter_work = 0
        queues = self._by_topic.get(topic)
        queue = queues.get(queue_id) if queues is not None else None
        if queue is None and (queue := self._table.find(topic, queue_id)) is None:
            return self._missed(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if not low <= offset < high:
            return self._out_of_range(offset, low, high)
        if not self._config.check_crc_on_read and not queue.is_mixed:
            if self._read_together is not None and codes is None and accept is None:
                result = self._get_compiled(queue, offset, max_messages, max_bytes, disk.memory)
                if result is not None:
                    return result
            sql = accept if isinstance(accept, SqlFilter) and accept.needles else None
            if accept is sql and (sql is None or codes is None):
                result = self._get_together(
                    queue, offset, max_messages, max_bytes, codes, sql, disk.memory
                )
                if result is not None:
                    return result
        return self._get_one_by_one(queue, offset, max_messages, max_bytes, codes, accept, disk)

    def _get_compiled(
        self, queue: ConsumeQueue, offset: int, max_messages: int, max_bytes: int, memory: int
    ) -> GetResult | None:
        """Read like `_get_together` without a filter; None if that has to do it."""
        log = self._log
        entries = queue.raw(offset, max_messages)
        if not entries:
            return None
        first = unpack_entry(entries)[0]
        file = log.files.find(first) if first >= log.end - memory else None
        if file is None:
            return None
        magic, topic, _ = queue.topic_field
        base = file.base_offset
        assert self._read_together is not None
        found = self._read_together(
            entries, file.view, base, offset, queue.queue_id, magic, topic, max_bytes, _SMALL
        )
        if found is None:
            return None
        count, total, end, buffers = found
        return self._found(queue, offset + count, buffers, count, total, base + end)

    def _get_together(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_messages: int,
        max_bytes: int,
        codes: frozenset[int] | None,
        sql: SqlFilter | None,
        memory: int,
    ) -> GetResult | None:
        """Read the usual way: all entries are sound, and their messages are in one file and count
        as in memory. None if that is not so: then nothing was read.

        A copy of what `_get_one_by_one` does, for speed: a pull of 32 costs 0.5 µs a message this
        way, and 1.7 µs that way (bench.stages).
        """
        log = self._log
        offsets: Sequence[int]
        physicals: Sequence[int]
        sizes: Sequence[int]
        if codes is None and sql is None:
            physicals, sizes = queue.places(offset, max_messages)
            next_offset = offset + len(sizes)
            offsets = range(offset, next_offset)
        else:
            if sql is None:
                selected = self._select(queue, offset, max_messages, codes or frozenset())
            else:
                selected = self._search(queue, offset, max_messages, sql, log.end - memory)
            if selected is None:
                return None
            offsets, physicals, sizes, next_offset = selected
            if not offsets and next_offset > offset:
                return self._missed(
                    _NO_MATCHED_MESSAGE, next_offset, queue.min_offset, queue.max_offset
                )
        if not offsets or physicals[0] < log.end - memory:
            return None
        total = sum(sizes)
        if total > max_bytes:
            ends = list(accumulate(sizes))
            count = max(1, bisect_right(ends, max_bytes))
            total = ends[count - 1]
            if count < len(offsets):
                next_offset = offsets[count]
                offsets, physicals, sizes = offsets[:count], physicals[:count], sizes[:count]
        file = log.files.find(physicals[0])
        if file is None:
            return None
        if codes is None and sql is None and len(sizes) <= _FEW:
            if not few_agree(file, queue, offset, physicals, sizes):
                return None
        elif not self._heads.agree(queue, offset, next_offset):
            return None
        view, base = file.view, file.base_offset
        begin = physicals[0] - base
        end = physicals[-1] + sizes[-1] - base
        if end > file.size:
            return None
        buffers: list[bytes | memoryview] = []
        if end - begin != total:
            # Adjacent records are given as one slice.
            run_end = begin
            for physical, size in zip(physicals, sizes, strict=True):
                at = physical - base
                if at != run_end:
                    buffers.append(view[begin:run_end])
                    begin = at
                run_end = at + size
        buffers.append(view[begin:end])
        if len(buffers) > 1 and total < _SMALL * len(buffers):
            buffers = [b"".join(buffers)]
        return self._found(queue, next_offset, buffers, len(offsets), total, end + base)

    def _select(
        self, queue: ConsumeQueue, offset: int, max_messages: int, codes: frozenset[int]
    ) -> tuple[list[int], list[int], list[int], int] | None:
        """Return offsets, physical offsets and sizes of the entries with these tags codes, and the
        offset to go on from; None if an entry that is left out looks damaged."""
        offsets: list[int] = []
        physicals: list[int] = []
        sizes: list[int] = []
        end = 0
        scanned = offset
        entries = queue.read(offset, max(self._scan_limit, max_messages))
        for scanned, (physical, size, tags_code) in enumerate(entries, offset + 1):
            if tags_code in codes:
                offsets.append(scanned - 1)
                physicals.append(physical)
                sizes.append(size)
                if len(offsets) == max_messages:
                    break
            elif physical < end or size <= 0 or size == FILLER_SIZE:
                return None
            end = physical + size
        return offsets, physicals, sizes, scanned

    def _search(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_messages: int,
        sql: SqlFilter,
        in_memory: int,
    ) -> tuple[list[int], list[int], list[int], int] | None:
        """Return the same for the messages that match a filter; None if each has to be read by
        itself, as before the physical offset `in_memory`.

        Their properties are searched for the filter's needles, many at once: 0.5 to 1 µs a message,
        where asking the filter takes 4. It is asked for those that have one. Where many match,
        nothing is gained, so the first few are asked for before.
        """
        offsets: list[int] = []
        physicals: list[int] = []
        sizes: list[int] = []
        scanned = offset
        stop = min(offset + max(self._scan_limit, max_messages), queue.max_offset)
        first = queue.entry(offset)
        if stop - offset < _WORTH_A_SEARCH or first is None or first[0] < in_memory:
            return None
        if not numpy_loader.ask():
            return None
        if sql.cost * _ASKED_BEFORE > FILTER_WORK // 2:
            return None
        left = FILTER_WORK // sql.cost - _ASKED_BEFORE
        asked = queue.read(offset, _ASKED_BEFORE)
        wanted = 0
        for each in enumerate(asked, offset):
            wanted += self._accepts(sql, queue, *each)
            if wanted > 1 or self._filter_work > FILTER_WORK // 2:
                return None
        from pocketmq.store.queue.property_search import may_have

        count = _SEARCHED_FIRST
        while scanned < stop:
            _, entries = next(queue.entries(scanned, min(scanned + count, stop)), (0, None))
            if entries is None:
                break
            file = self._log.files.find(int(entries["physical"][0]))
            if file is None or not self._heads.agree(queue, scanned, scanned + len(entries)):
                return None
            found = may_have(
                file.view, file.base_offset, len(queue.topic_field.encoded), entries, sql.needles
            )
            for number in found.matches:
                if not left or self._filter_work > FILTER_WORK:
                    return offsets, physicals, sizes, scanned + number
                left -= 1
                entry = physical, size, _ = entries[number].item()
                if not self._accepts(sql, queue, scanned + number, entry):
                    continue
                offsets.append(scanned + number)
                physicals.append(physical)
                sizes.append(size)
                if len(offsets) == max_messages:
                    return offsets, physicals, sizes, scanned + number + 1
            scanned += found.searched
            if found.searched < len(entries) or len(entries) < count:
                break
            count = stop
        return offsets, physicals, sizes, scanned

    def _get_one_by_one(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_messages: int,
        max_bytes: int,
        codes: frozenset[int] | None,
        accept: Callable[[Mapping[str, str]], bool] | None,
        disk: DiskLimits,
    ) -> GetResult:
        log = self._log
        check_crc = self._config.check_crc_on_read
        limit = max_messages
        if codes is not None or accept is not None:
            limit = max(self._scan_limit, max_messages)
        if (cost := cost_of(accept)) * limit > FILTER_WORK:
            limit = max(FILTER_WORK // cost, 1)
        buffers: list[bytes | memoryview] = []
        status = _NO_MATCHED_MESSAGE
        next_offset = offset
        count = total = last_end = 0
        run_begin = run_end = -1
        log_begin = log.min_offset
        on_disk = log.end - disk.memory  # messages before it count as on the disk
        for entry in queue.read(offset, limit):
            if self._filter_work >= FILTER_WORK and next_offset > offset:
                break
            physical, size, tags_code = entry
            if codes is not None and tags_code not in codes and last_end <= physical and size > 0:
                next_offset += 1
                last_end = physical + size
                continue
            if size == FILLER_SIZE or (
                size > 0
                and physical < log_begin
                and self._damaged.is_expired(queue, next_offset, physical)
            ):
                status = _REMOVING
                next_offset += 1
                continue
            checked = self._damaged.checked(queue, next_offset, entry, crc=check_crc)
            if checked is None:
                next_offset += 1
                continue
            physical, size, tags_code = checked
            if count and (
                count >= max_messages
                or total + size > max_bytes
                or (
                    physical < on_disk
                    and (count >= disk.max_messages or total + size > disk.max_bytes)
                )
            ):
                break
            next_offset += 1
            last_end = physical + size
            if codes is not None and tags_code not in codes:
                continue
            if accept is not None and not self._accepts(accept, queue, next_offset - 1, checked):
                continue
            # Adjacent records are given as one slice.
            joined = log.read(run_begin, last_end - run_begin) if physical == run_end else None
            if joined is not None:
                buffers[-1] = joined
            else:
                record = log.read(physical, size)
                if record is None:
                    status = _REMOVING  # its file expired this very moment
                    continue
                buffers.append(record)
                run_begin = physical
            run_end = last_end
            count += 1
            total += size
        else:
            if next_offset == offset:
                # The file of the queue expired between two looks at it.
                unit = queue.files.file_size // CONSUME_QUEUE_UNIT
                following = offset - offset % unit + unit
                return self._missed(
                    GetStatus.OFFSET_FOUND_NULL, following, queue.min_offset, queue.max_offset
                )
        if not count:
            return self._missed(status, next_offset, queue.min_offset, queue.max_offset)
        return self._found(queue, next_offset, buffers, count, total, run_end)

    def _found(
        self,
        queue: ConsumeQueue,
        next_offset: int,
        buffers: list[bytes | memoryview],
        count: int,
        total: int,
        end: int,
    ) -> GetResult:
        counters = self._counters
        counters.gets_found += 1
        counters.messages_got += count
        counters.bytes_got += total
        low, high = queue.min_offset, queue.max_offset
        return GetResult(
            _FOUND,
            next_offset,
            low,
            high,
            buffers,
            count,
            total,
            self._log.end - end,
            self._filter_work,
        )

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the oldest message's offset; 0 for an unknown queue."""
        queue = self._find(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset after the newest readable message; 0 for an unknown queue."""
        queue = self._find(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp: int,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """Return the offset for a store timestamp (ms) in a queue.

        `lower`: the first message stored at that time or later (max_offset without one);
        `upper`: the last one stored at that time or earlier (min_offset without one).
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
        """Return the store timestamp (ms) of the message at `offset`; -1 without a message."""
        queue = self._find(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return self._log.store_timestamp_at(entry[0], entry[1]) if entry is not None else -1

    def properties_at(self, topic: str, queue_id: int, offset: int) -> dict[str, str] | None:
        """Return the properties of the message at `offset`; None without a message."""
        queue = self._find(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return self._properties(entry[0], entry[1]) if entry is not None else None

    def record_at(self, physical_offset: int) -> memoryview:
        """Return the record that begins at a physical offset. Raises `RecordNotFound`."""
        return self._log.record_at(physical_offset)

    def message_at(self, physical_offset: int, *, check_crc: bool = True) -> Record:
        """Return the message at a physical offset that a client named.

        Raises `RecordNotFound`, also for bytes in a body that only look like a record.
        """
        try:
            record = decode(self.record_at(physical_offset), check_crc=check_crc)
        except RecordError as error:
            raise RecordNotFound(physical_offset, str(error)) from None
        if not self.is_queued(record):
            raise RecordNotFound(physical_offset, "no queue has it")
        return record

    def is_queued(self, record: Record) -> bool:
        """Tell whether a queue has this record, or gets it as soon as it is on the disk and
        confirmed."""
        queue = self._find(record.topic, record.queue_id)
        if queue is None:
            return False
        entry = queue.entry(record.queue_offset)
        if entry is None:
            return self._is_pending(queue, record.queue_offset, record.physical_offset)
        return entry[0] == record.physical_offset

    def _accepts(
        self,
        accept: Callable[[Mapping[str, str]], bool],
        queue: ConsumeQueue,
        offset: int,
        entry: Entry,
    ) -> bool:
        """Return whether a filter wants a message; one that cannot be read is not left out."""
        properties = self._properties(entry[0], entry[1])
        if properties is None:
            return True
        self._filter_work += work_of(accept, properties)
        if tag_hash(properties.get(TAGS, "")) != entry[2] and not queue.delayed:
            self._lines.warning(
                "%s/%d offset %d has another tag than its queue entry says: one of them is "
                "damaged; `pocketmq store check` lists all of them",
                queue.topic,
                queue.queue_id,
                offset,
            )
        return accept(properties)

    def _properties(self, physical: int, size: int) -> dict[str, str] | None:
        record = self._log.read(physical, size)
        try:
            return properties_of(record) if record is not None else None
        except RecordError:
            return None

    def _find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        self._settle()
        return self._table.find(topic, queue_id)

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
        return GetResult(status, next_offset, low, high, filter_work=self._filter_work)
