"""The putting half of a store: straight-line code on the event loop, without locks.

Check, reserve a place in the commit log, encode, one copy into its buffer; once that is written,
enter into the consume queue and tell who waits. Budget: 5 µs for a message of 1 KiB, half of that
within a batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.checksum import body_crc
from pocketmq.message.limits import MAX_PROPERTIES
from pocketmq.message.sysflag import (
    BORN_HOST_V6,
    HOST_MASK,
    INNER_BATCH,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
)
from pocketmq.store.config import FlushDiskType, StoreConfig
from pocketmq.store.delay_level import DelayLevels
from pocketmq.store.dispatch import delivery_time
from pocketmq.store.encoding.batch_encoder import Shared, take_apart
from pocketmq.store.encoding.record_encoder import encode_record, head_size
from pocketmq.store.errors import DiskFull
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.flush import CommitLogFlusher
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.pending_entries import PendingEntries
from pocketmq.store.queue.queue_entry import pack_entry
from pocketmq.store.results import PutResult, PutStatus
from pocketmq.store.store_reader import StoreReader

log = logging.getLogger(__name__)

_PUT_OK: Final = PutStatus.PUT_OK
IPV4_HOST: Final = 8  # bytes of a packed IPv4 address and port
# Prepared and rolled-back transactions have this bit, committed ones do not.
SPECIAL: Final = TRANSACTION_PREPARED | INNER_BATCH
NO_HOSTS: Final = ~HOST_MASK  # what a sysFlag may bring along
_DISK_RETRY_SECONDS: Final = 1.0
_NEVER: Final = float("inf")


class StoreWriter(StoreReader):
    """The putting half of a `MessageStore`.

    Attributes:
        config: the settings.
        delay_levels: messageDelayLevel as a table.
    """

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        table: ConsumeQueueTable,
        flusher: CommitLogFlusher,
        *,
        store_host: bytes,
        clock: Callable[[], int],
    ) -> None:
        """Raises ValueError for a messageDelayLevel that can not be read."""
        self._sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        super().__init__(
            commit_log, table, config, PendingEntries(commit_log, after_flush=self._sync)
        )
        self.config = config
        self.delay_levels = DelayLevels(config.message_delay_level)
        self._table = table
        self._flusher = flusher
        self._store_host = store_host
        self._store_host_flag = 0 if len(store_host) == IPV4_HOST else STORE_HOST_V6
        self._clock = clock
        # What settles at the end of a turn of the event loop; None without one.
        self._call_soon: Callable[[Callable[[], None]], object] | None = None
        self._due = False
        # Why nothing can be put at the moment, and until when that need not be tried again.
        self._refusal = "the store is not open"
        self._retry_at = _NEVER
        self._silent_until = 0.0  # no line in the log for every message of a queue without a file

    def put(
        self,
        topic: str,
        queue_id: int,
        body: ReadableBuffer,
        properties: str,
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        tags_code: int,
        accepted: bool = False,
    ) -> PutResult:
        """Store one message.

        It can be read at once, survives the process from the next `settle` on (at the latest from
        the end of this turn of the event loop), and `when_flushed` tells when it survives the
        machine.
        `properties` is the encoded text, `born_host` packed. `tags_code` goes into the consume
        queue, except in the schedule topic, where the time of delivery does. Prepared and
        rolled-back transactions (sysFlag) get no consume-queue entry and no queue offset. With
        `accepted` it may exceed maxMessageSize: that was changed since the message was taken.
        """
        if self._refusal and not self._try_again():
            return self._refused(PutStatus.SERVICE_NOT_AVAILABLE, self._refusal)
        try:
            queue = self._by_topic[topic][queue_id]
        except KeyError:
            try:
                queue = self._table.find_or_create(topic, queue_id)
            except ValueError as error:
                return self._refused(PutStatus.MESSAGE_ILLEGAL, str(error))
        property_bytes = properties.encode("utf-8", "replace")
        sys_flag = sys_flag & NO_HOSTS | self._store_host_flag
        if len(born_host) != IPV4_HOST:
            sys_flag |= BORN_HOST_V6
        topic_field = queue.topic_field
        size = head_size(sys_flag) + topic_field[2] + len(body) + len(property_bytes)
        commit_log = self.commit_log
        if (
            (len(body) > self.config.max_message_size and not accepted)
            or len(property_bytes) > MAX_PROPERTIES
            or size > commit_log.max_record_size
            or sys_flag & INNER_BATCH
        ):
            return self._illegal(len(body), len(property_bytes), size, sys_flag)
        try:
            if queue.next_offset >= queue.room and not sys_flag & SPECIAL:
                queue.make_room()
        except (DiskFull, OSError) as error:
            return self._no_queue_file(queue, error)
        try:
            physical_offset = commit_log.reserve(size)
        except (DiskFull, OSError) as error:
            return self._no_room(error)
        timestamp = self._clock()
        queue_offset = 0 if sys_flag & SPECIAL else queue.next_offset
        data = encode_record(
            size, topic_field, body_crc(body), queue_id, flag, queue_offset, physical_offset,
            sys_flag, born_timestamp, born_host, timestamp, self._store_host, reconsume_times,
            prepared_transaction_offset, body, property_bytes,
        )  # fmt: skip
        commit_log.append(data, timestamp)
        if not sys_flag & SPECIAL:
            queue.next_offset = queue_offset + 1
            if queue.delayed:
                due = delivery_time(properties, timestamp, self.delay_levels)
                tags_code = tags_code if due is None else due
            self._arrivals.add(
                physical_offset + size,
                queue,
                queue_offset,
                pack_entry(physical_offset, size, tags_code),
                timestamp,
            )
        self._put_done()
        counters = self.counters
        counters.messages_put += 1
        counters.bytes_put += size
        return PutResult(_PUT_OK, physical_offset, queue_offset, physical_offset + size, timestamp)

    def put_batch(
        self,
        topic: str,
        queue_id: int,
        body: ReadableBuffer,
        properties_suffix: str,
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int = 0,
    ) -> PutResult:
        """Store a batch body: all of its messages, or none, one after another.

        `properties_suffix` is added to the properties of each; tags codes are made from these.
        `flag` is without effect, since each message of a batch brings its own.

        Raises:
            BatchBodyError: the body is no batch; nothing is stored.
        """
        if self._refusal and not self._try_again():
            return self._refused(PutStatus.SERVICE_NOT_AVAILABLE, self._refusal)
        try:
            queue = self._table.find_or_create(topic, queue_id)
        except ValueError as error:
            return self._refused(PutStatus.MESSAGE_ILLEGAL, str(error))
        sys_flag = sys_flag & NO_HOSTS | self._store_host_flag
        if len(born_host) != IPV4_HOST:
            sys_flag |= BORN_HOST_V6
        commit_log = self.commit_log
        timestamp = self._clock()
        suffix = properties_suffix.encode("utf-8", "replace")
        if len(body) > self.config.max_message_size or sys_flag & (TRANSACTION_MASK | INNER_BATCH):
            return self._illegal(len(body), len(suffix), len(body), sys_flag)
        shared = Shared(
            queue.topic_field, suffix, queue_id, sys_flag, born_timestamp, born_host, timestamp,
            self._store_host, reconsume_times,
        )  # fmt: skip
        queue_offset = queue.next_offset
        batch = take_apart(body, shared, queue_offset, commit_log.end)
        size, count = batch.size, batch.count
        if size > commit_log.max_record_size:
            return self._illegal(len(body), len(suffix), size, sys_flag)
        try:
            if queue_offset + count > queue.room:
                queue.make_room(count)
        except (DiskFull, OSError) as error:
            return self._no_queue_file(queue, error)
        try:
            physical_offset = commit_log.reserve(size)
        except (DiskFull, OSError) as error:
            return self._no_room(error)
        buffer, at = commit_log.place
        entries, physical_offsets = batch.encode_into(buffer, at, physical_offset)
        commit_log.seal(size, timestamp)
        queue.next_offset = queue_offset + count
        self._arrivals.add(physical_offset + size, queue, queue_offset, entries, timestamp)
        self._put_done()
        counters = self.counters
        counters.messages_put += count
        counters.bytes_put += size
        return PutResult(
            _PUT_OK,
            physical_offset,
            queue_offset,
            physical_offset + size,
            timestamp,
            physical_offsets,
        )

    # --- at the end of a put ------------------------------------------------------------------

    def _put_done(self) -> None:
        """See that what was put is settled before long."""
        if self._call_soon is None:
            self.settle()
        elif self._sync:
            self._flusher.order()
        elif not self._due:
            self._due = True
            self._call_soon(self._settle_due)

    def _settle_due(self) -> None:
        self._due = False
        try:
            self.settle()
        except OSError as error:  # who waits for an answer tries again, and gets the error
            log.error("the commit log can not be written: %s", error)

    # --- refusing -----------------------------------------------------------------------------

    def _refuse(self, reason: str, retry_at: float = _NEVER) -> None:
        self._refusal = reason
        self._retry_at = retry_at

    def _try_again(self) -> bool:
        if time.monotonic() < self._retry_at:
            return False
        self._refusal = ""
        return True

    def _refused(self, status: PutStatus, remark: str) -> PutResult:
        self.counters.puts_refused += 1
        return PutResult(status, remark=remark)

    def _no_room(self, error: DiskFull | OSError) -> PutResult:
        # Once a second is enough to ask a full disk again.
        self._refuse(str(error), time.monotonic() + _DISK_RETRY_SECONDS)
        log.error("no message is taken: %s", error)
        return self._refused(PutStatus.SERVICE_NOT_AVAILABLE, str(error))

    def _no_queue_file(self, queue: ConsumeQueue, error: DiskFull | OSError) -> PutResult:
        """Only a full disk concerns other queues as well."""
        if isinstance(error, DiskFull):
            return self._no_room(error)
        reason = f"queue {queue.topic}/{queue.queue_id} can not get a file: {error.strerror}"
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + _DISK_RETRY_SECONDS
            log.error("a message is not taken: %s", reason)
        return self._refused(PutStatus.SERVICE_NOT_AVAILABLE, reason)

    def _illegal(self, body: int, properties: int, size: int, sys_flag: int) -> PutResult:
        if sys_flag & INNER_BATCH:
            reason = "inner batches are not supported"
        else:
            reason = (
                f"a body of {body} bytes ({self.config.max_message_size} are allowed), properties "
                f"of {properties} ({MAX_PROPERTIES}), {size} bytes in all "
                f"({self.commit_log.max_record_size}), sysFlag {sys_flag:#x}"
            )
        return self._refused(PutStatus.MESSAGE_ILLEGAL, reason)
