"""Puts messages into a store: straight-line code on the event loop, without locks.

A put checks the message, reserves a place in the commit log, encodes the record, and copies it into
the log's buffer. The message gets its consume-queue entry when the buffer is written. Budget: 5 µs
for a message of 1 KiB, half of that within a batch.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pocketmq.error_kind import kind_of, unexpected
from pocketmq.limited_log import LimitedLog
from pocketmq.message.batch_body import BatchBodyError
from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.checksum import CRC_MASK, body_crc, crc32
from pocketmq.message.limits import MAX_PROPERTIES, MOST_IN_BATCH
from pocketmq.message.multi_dispatch import (
    LIGHT_QUEUE_ID,
    MOST_LIGHT_QUEUES,
    dispatched_to,
    is_dispatched,
    is_light_queue,
    with_offsets,
)
from pocketmq.message.properties import INNER_MULTI_DISPATCH, WAIT, find
from pocketmq.message.record_crc import FIELD_SIZE, field, fill_in, with_room
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
from pocketmq.store.encoding.batch import Shared
from pocketmq.store.encoding.batch_encoder import batch_taker
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT as UNIT
from pocketmq.store.encoding.queue_entry import pack_entries, pack_entry
from pocketmq.store.encoding.record_encoder import (
    head_packer,
    head_size,
    pack_length,
    record_parts,
)
from pocketmq.store.errors import DiskFull, StoreError
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.pending_entries import PendingEntries
from pocketmq.store.results import PutResult, PutStatus, StoreCounters

log = logging.getLogger(__name__)

_PUT_OK: Final = PutStatus.PUT_OK
TOO_FEW: Final = "too few replicas keep up with this broker"
_LOG: Final = "the commit log"
_QUEUE: Final = "a consume queue"
_IPV4_HOST: Final = 8  # bytes of a packed IPv4 address and port
# Prepared and rolled-back transactions have this bit, committed ones do not.
_SPECIAL: Final = TRANSACTION_PREPARED | INNER_BATCH
_NO_HOSTS: Final = ~HOST_MASK  # the flags that clients may set
_OVERHEAD: Final = 512  # bytes of a record that are not its body, in most cases

#: topic, queue id, body, encoded properties, flag, sysFlag, born timestamp (ms), packed born host,
#: reconsume times, prepared transaction offset, tags code: the arguments of `StoreWriter.put`.
#: A plain tuple, because one is made per message.
Put = tuple[str, int, ReadableBuffer, str, int, int, int, bytes, int, int, int]

#: Physical offset, size of the record, queue offset: where a message is stored. Also a plain tuple.
Stored = tuple[int, int, int]


class _TooManyLightQueues(StoreError):
    """A light queue does not exist, and there are as many as allowed."""


class EncodedRun(NamedTuple):
    """Records of several messages that were written into the buffer of the log.

    Attributes:
        stopped: where the encoder ended in its input.
        code: of the sends.
        messages: how many they are.
        opaques: of the sends that came by themselves.
        parents: of parents of sends: the opaque, and those of the children.
        answers: the frames of their answers.
        size: bytes of the records.
        queues: each queue, whatever the encoder knows of its topic, the queue offset of the first
            message, the queue's entries, and the bytes of its records.
        signer: whatever the encoder knows of who sent the last one.
    """

    stopped: int
    code: int
    messages: int
    opaques: Sequence[int]
    parents: Sequence[tuple[int, Sequence[int]]]
    answers: bytes
    size: int
    queues: Sequence[tuple[ConsumeQueue, Any, int, bytes, int]]
    signer: Any = None


class EncodeRun(Protocol):
    """Encodes records straight into the buffer of the log."""

    def __call__(
        self,
        by_topic: dict[str, dict[int, ConsumeQueue]],
        buffer: bytearray,
        at: int,
        room: int,
        physical_offset: int,
        timestamp: int,
        most_body: int,
        /,
    ) -> EncodedRun | None:
        """Write records into `buffer[at : at + room]`; the first one gets `physical_offset`.

        Nothing is written for a queue that has no room. Returns None if there are no records.
        """


class StoreWriter:
    """Puts messages for a `MessageStore`. Every put is refused until `accept` is called.

    With SYNC_FLUSH each put calls `order_flush`, which has the flush thread flush the log soon.

    Attributes:
        refusal: why puts are refused at the moment; empty while they are not. Of several reasons,
            it is the one that lasts longest.
        told_refusal: the same as senders are told it, who may not know the paths and the other
            topics that the disk's errors name.
    """

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        table: ConsumeQueueTable,
        pending: PendingEntries,
        counters: StoreCounters,
        *,
        delay_levels: DelayLevels,
        order_flush: Callable[[], None],
        store_host: bytes,
        clock: Callable[[], int],
        disk_retry: float,
    ) -> None:
        self._config = config
        self._log = commit_log
        self._table = table
        self._by_topic = table.by_topic
        self._pending = pending
        self._take_apart = batch_taker()
        self._counters = counters
        self._delay_levels = delay_levels
        self._order_flush = order_flush
        self._has_light_queues = config.has_light_queues
        self._append_crc = config.enabled_append_prop_crc
        self._sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._store_host = store_host
        self._store_host_flag = 0 if len(store_host) == _IPV4_HOST else STORE_HOST_V6
        self._clock = clock
        self._disk_retry = disk_retry
        self._lines = LimitedLog(log)
        # Where to settle at the end of each turn; None without one.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due = False
        # Why nothing may be put, whatever the disk is like.
        self._stance = self.refusal = self.told_refusal = "the store is not open"
        self._lacks_replicas = False
        # The disk's error, whether a restart has to repair it, and when to retry.
        self._trouble = self._told_trouble = ""
        self._failed = False
        self._retry_at = 0.0
        self._prepare: Callable[[], None] | None = None
        # Why the buffer of the log could not be written, if that was so the last time.
        self._unwritten: OSError | None = None
        self._retry: asyncio.TimerHandle | None = None

    def accept(self) -> None:
        """Accept puts (again), unless `fail` was called."""
        self._stance = ""
        if self._prepare is None:
            self._mended()

    def refuse(self, reason: str) -> None:
        """Refuse puts with `reason` until `accept`."""
        self._stance = reason
        self._judge()

    def fail(self, what: str, error: OSError) -> None:
        """Refuse puts for good, because of `what` and its error: earlier puts may never reach the
        disk."""
        self._failed = True
        self._trouble, self._told_trouble = f"{what}: {error}", f"{what}: {kind_of(error)}"
        self._judge()

    def stop(self) -> None:
        """Try nothing more."""
        self._prepare = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def lack_replicas(self, lacking: bool) -> None:
        """Refuse puts because too few replicas keep up, except those that wait for none (property
        WAIT=false); or do not refuse them for that any more."""
        if lacking != self._lacks_replicas:
            self._lacks_replicas = lacking
            self._judge()

    def accept_after(self, prepare: Callable[[], None], error: OSError) -> None:
        """Accept puts once `prepare` has worked, which is retried now and then. It raises
        OSError, the reason why puts are refused; `error` is the first one."""
        self._stance = ""
        self._prepare = prepare
        self._not_prepared(error)

    @property
    def trouble(self) -> str:
        """What is wrong with the disk; empty if nothing is known to be.

        A full disk is forgotten after a second without a put that it refused.
        """
        lasts = self._failed or self._unwritten is not None or self._prepare is not None
        return self._trouble if lasts or time.monotonic() < self._retry_at else ""

    @property
    def role_refusal(self) -> str:
        """Why puts are refused whatever the disk is like; empty while they are not."""
        return self._stance or (TOO_FEW if self._lacks_replicas else "")

    @property
    def failed(self) -> bool:
        """Whether `fail` was called."""
        return self._failed

    def _mended(self) -> None:
        if not self._failed:
            self._trouble = self._told_trouble = ""
            self._retry_at = 0.0
            self._unwritten = None
        self._judge()

    def _judge(self) -> None:
        self.refusal = self._stance or self._trouble or self.role_refusal
        self.told_refusal = self._stance or self._told_trouble or self.role_refusal

    def settle_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Settle once at the end of each turn of `loop`, not within each put."""
        self._loop = loop
        self._retry_later()

    def settle(self) -> None:
        """Have everything that was put written, so that it can be read, or flushed.

        Raises:
            OSError: it cannot be written at the moment. Nothing of it is lost, but puts are refused
                until it is written, which is retried from time to time.
        """
        if self._unwritten is not None and not self._try_again():
            raise self._unwritten
        self._pending.settle()

    def try_settle(self) -> None:
        """Do the same for a reader: what cannot be written is not there yet."""
        # Before every read, so not by a call of `settle` and `contextlib.suppress`.
        try:
            if self._unwritten is None or self._try_again():
                self._pending.settle()
        except OSError:
            pass

    def writing_failed(self, error: OSError) -> None:
        """Refuse puts until the log can be written."""
        self._unwritten = error
        what = f"{_LOG} cannot be written"
        reason = f"{what}: {error}"
        self._lines.error("messages are refused; check the disk: %s", reason)
        self._no_disk(reason, f"{what}: {kind_of(error)}")

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

        With light queues, those that the property INNER_MULTI_DISPATCH names get an entry, too, and
        the record their queue offsets. Names that cannot be light queues' are left out. What a
        message is refused for, too many of them or too long properties, only leaves them out if the
        message is `accepted`.
        """
        if self.refusal and not self._try_again():
            refused = self._refusal_of(properties)
            if refused is not None:
                return refused
        try:
            queue = self._by_topic[topic][queue_id]
        except KeyError:
            try:
                queue = self._table.find_or_create(topic, queue_id)
            except ValueError as error:
                return self._refused(PutStatus.MESSAGE_ILLEGAL, str(error))
            except (StoreError, OSError) as error:
                return self._unusable_queue(topic, queue_id, error)
        if queue.is_light:
            return self._no_topic(topic)
        light_queues: list[ConsumeQueue] | None = None
        if self._has_light_queues and INNER_MULTI_DISPATCH in properties:
            try:
                light_queues = self._light_queues(topic, properties, sys_flag, accepted=accepted)
            except _TooManyLightQueues as error:
                return self._refused(PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED, str(error))
            except (StoreError, OSError) as error:
                return self._unusable_queue(topic, queue_id, error)
            if light_queues:
                offsets = {each.topic: each.next_offset for each in light_queues}
                with_light = with_offsets(properties, offsets)
                if accepted and len(with_light.encode("utf-8", "replace")) > MAX_PROPERTIES:
                    self._lines.warning("a message to %s has no room for light queues", topic)
                    light_queues = None
                else:
                    properties = with_light
        property_bytes = properties.encode("utf-8", "replace")
        # After a power failure, zeros in properties count as bytes that were not written, unless a
        # checksum shows that they were stored.
        has_crc = self._append_crc or 0 in property_bytes
        if has_crc:
            property_bytes = with_room(property_bytes)
        sys_flag = sys_flag & _NO_HOSTS | self._store_host_flag
        if len(born_host) != _IPV4_HOST:
            sys_flag |= BORN_HOST_V6
        topic_field = queue.topic_field
        size = head_size(sys_flag) + topic_field[2] + len(body) + len(property_bytes)
        commit_log = self._log
        if (
            (len(body) > self._config.max_message_size and not accepted)
            or len(property_bytes) > MAX_PROPERTIES
            or size > commit_log.max_record_size
            or sys_flag & INNER_BATCH
        ):
            return self._illegal(len(body), len(property_bytes), size, sys_flag)
        try:
            if queue.next_offset >= queue.room and not sys_flag & _SPECIAL:
                queue.make_room()
        except (DiskFull, OSError) as error:
            return self._no_queue_file(queue, error)
        try:
            physical_offset = commit_log.reserve(size)
        except (DiskFull, OSError) as error:
            return self._no_room(error, _LOG)
        timestamp = self._clock()
        queue_offset = 0 if sys_flag & _SPECIAL else queue.next_offset
        parts = record_parts(
            size, topic_field, body_crc(body), queue_id, flag, queue_offset, physical_offset,
            sys_flag, born_timestamp, born_host, timestamp, self._store_host, reconsume_times,
            prepared_transaction_offset, body, property_bytes,
        )  # fmt: skip
        if has_crc:
            record = b"".join(parts)[:-FIELD_SIZE]
            parts = record, field(record)
        commit_log.append(parts, size, timestamp)
        if not sys_flag & _SPECIAL:
            queue.next_offset = queue_offset + 1
            if queue.delayed:
                due = delivery_time(properties, timestamp, self._delay_levels)
                tags_code = tags_code if due is None else due
            self._pending.add(
                physical_offset + size,
                queue,
                queue_offset,
                pack_entry(physical_offset, size, tags_code),
                timestamp,
            )
        if light_queues:
            entry, end = pack_entry(physical_offset, size, tags_code), physical_offset + size
            for light in light_queues:
                self._pending.add(end, light, light.next_offset, entry, timestamp)
                light.next_offset += 1
        self._put_done()
        counters = self._counters
        counters.messages_put += 1
        counters.bytes_put += size
        return PutResult(_PUT_OK, physical_offset, queue_offset, physical_offset + size, timestamp)

    def _light_queues(
        self, topic: str, properties: str, sys_flag: int, *, accepted: bool
    ) -> list[ConsumeQueue]:
        """Return the light queues of a message, with room for it. Raises StoreError, OSError."""
        text = find(properties, INNER_MULTI_DISPATCH)
        if text is None or sys_flag & _SPECIAL or not is_dispatched(topic):
            return []
        table, most = self._table, self._config.max_lmq_consume_queue_num
        every = list(dict.fromkeys(filter(is_light_queue, dispatched_to(text))))[:MOST_LIGHT_QUEUES]
        new = [name for name in every if table.find(name, LIGHT_QUEUE_ID) is None]
        if new and table.light_queues + len(new) > most:
            if not accepted:
                raise _TooManyLightQueues(f"light queue {new[0]} is not made: {most} are allowed")
            every = [name for name in every if name not in new]
        queues = [table.find_or_create(name, LIGHT_QUEUE_ID) for name in every]
        for queue in queues:
            if queue.next_offset >= queue.room:
                queue.make_room()
        return queues

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
        """Store a batch body: all of its messages, or none, one after another. Those of a batch
        are not dispatched to light queues, as with the official broker.

        `properties_suffix` is added to the properties of each; tags codes are made from these.
        `flag` is without effect, since each message of a batch brings its own.

        Raises:
            BatchBodyError: the body is not a batch, or one of more than 65,536 messages; nothing is
                stored.
        """
        if self.refusal and not self._try_again():
            refused = self._refusal_of(properties_suffix)
            if refused is not None:
                return refused
        try:
            queue = self._table.find_or_create(topic, queue_id)
        except ValueError as error:
            return self._refused(PutStatus.MESSAGE_ILLEGAL, str(error))
        except (StoreError, OSError) as error:
            return self._unusable_queue(topic, queue_id, error)
        if queue.is_light:
            return self._no_topic(topic)
        sys_flag = sys_flag & _NO_HOSTS | self._store_host_flag
        if len(born_host) != _IPV4_HOST:
            sys_flag |= BORN_HOST_V6
        commit_log = self._log
        timestamp = self._clock()
        suffix = properties_suffix.encode("utf-8", "replace")
        has_crc = self._append_crc or 0 in suffix
        if has_crc:
            suffix = with_room(suffix)
        if len(body) > self._config.max_message_size or sys_flag & (TRANSACTION_MASK | INNER_BATCH):
            return self._illegal(len(body), len(suffix), len(body), sys_flag)
        shared = Shared(
            queue.topic_field, suffix, queue_id, sys_flag, born_timestamp, born_host, timestamp,
            self._store_host, reconsume_times,
        )  # fmt: skip
        queue_offset = queue.next_offset
        batch = self._take_apart(body, shared, queue_offset, commit_log.end)
        if batch.has_zeros and not has_crc:  # as in `put`
            has_crc = True
            shared = shared._replace(suffix=with_room(suffix))
            batch = self._take_apart(body, shared, queue_offset, commit_log.end)
        size, count = batch.size, batch.count
        if count > MOST_IN_BATCH:
            raise BatchBodyError(f"a batch of more than {MOST_IN_BATCH} messages")
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
            return self._no_room(error, _LOG)
        buffer, at = commit_log.place
        entries, physical_offsets = batch.encode_into(buffer, at, physical_offset)
        if has_crc:
            fill_in(memoryview(buffer)[at : at + size])
        commit_log.seal(size, timestamp)
        queue.next_offset = queue_offset + count
        self._pending.add(physical_offset + size, queue, queue_offset, entries, timestamp)
        self._put_done()
        counters = self._counters
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

    def put_many(self, puts: Sequence[Put], *, accepted: bool = False) -> list[Stored]:
        """Store the first of these messages, as many as one write can take.

        The messages may belong to any queues. They share one clock reading, one append to the log,
        and one order to flush. Each record is the one that `put` would have written, except that
        all have the same store timestamp. `accepted` is that of `put`.

        Storing stops before the first message that needs more than an append: a new commit-log or
        consume-queue file, a queue not seen yet, a size that is refused, or zeros in the
        properties. Give that message to `put`, then call `put_many` with the rest. With
        enabledAppendPropCRC that is each message. Messages for light queues must not be among them.

        Returns one result for each stored message; the list may be empty. When the log is flushed
        up to the end of the last one, all of them are on the disk.
        """
        results: list[Stored] = []
        if self.refusal or self._append_crc:
            return results
        by_topic = self._by_topic
        commit_log = self._log
        most_body = commit_log.max_record_size if accepted else self._config.max_message_size
        store_host = self._store_host
        common_flag = self._store_host_flag
        host_length = _IPV4_HOST
        pack_head = head_packer(common_flag)
        fixed_size = head_size(common_flag)
        timestamp = self._clock()
        try:
            # Without room for all, storing stops half-way and the rest is examined twice.
            commit_log.widen(sum([len(put[2]) for put in puts]) + _OVERHEAD * len(puts))
        except OSError:
            return results
        physical = begin = commit_log.end
        stop = begin + commit_log.room
        parts: list[ReadableBuffer] = []
        # For each queue the first offset, and its entries: physical offset, size and tags code of
        # each message, flat.
        entries: dict[ConsumeQueue, tuple[int, list[int]]] = {}
        try:
            for put in puts:
                (
                    topic, queue_id, body, properties, flag, sys_flag, born, born_host,
                    reconsume_times, prepared_offset, code,
                ) = put  # fmt: skip
                try:
                    queue = by_topic[topic][queue_id]
                except KeyError:
                    break
                if len(born_host) != host_length:
                    host_length = len(born_host)
                    common_flag = self._store_host_flag
                    if host_length != _IPV4_HOST:
                        common_flag |= BORN_HOST_V6
                    pack_head = head_packer(common_flag)
                    fixed_size = head_size(common_flag)
                encoded = properties.encode("utf-8", "replace")
                magic, topic_bytes, overhead = queue.topic_field
                body_length = len(body)
                properties_length = len(encoded)
                size = fixed_size + overhead + body_length + properties_length
                queue_offset = queue.next_offset
                end = physical + size
                if (
                    end > stop
                    or queue_offset >= queue.room
                    or body_length > most_body
                    or properties_length > MAX_PROPERTIES
                    or sys_flag & _SPECIAL
                    or 0 in encoded
                ):
                    break
                if queue.delayed:
                    due = delivery_time(properties, timestamp, self._delay_levels)
                    code = code if due is None else due
                parts += (
                    pack_head(
                        size, magic, crc32(body) & CRC_MASK, queue_id, flag, queue_offset, physical,
                        sys_flag & _NO_HOSTS | common_flag, born, born_host, timestamp,
                        store_host, reconsume_times, prepared_offset, body_length,
                    ),
                    body,
                    topic_bytes,
                    pack_length(properties_length),
                    encoded,
                )  # fmt: skip
                queue.next_offset = queue_offset + 1
                known = entries.get(queue)
                if known is None:
                    entries[queue] = queue_offset, [physical, size, code]
                else:
                    known[1].extend((physical, size, code))
                results.append((physical, size, queue_offset))
                physical = end
        except BaseException:
            # Nothing was written, so the queues go back to where they were.
            for queue, (first_offset, _) in entries.items():
                queue.next_offset = first_offset
            raise
        if results:
            commit_log.append(parts, physical - begin, timestamp)
            for queue, (first_offset, flat) in entries.items():
                self._pending.add(physical, queue, first_offset, pack_entries(flat), timestamp)
            self._put_done()
            self._counters.messages_put += len(results)
            self._counters.bytes_put += physical - begin
        return results

    def put_run(self, encode: EncodeRun, size: int) -> EncodedRun | None:
        """Store what `encode` writes; `size` is about the bytes that it needs.

        For messages that `put_many` would store as well, and as it would.
        """
        if self.refusal or self._append_crc:
            return None
        commit_log = self._log
        try:
            commit_log.widen(size)
        except OSError:
            return None
        buffer, at = commit_log.place
        timestamp = self._clock()
        run = encode(
            self._by_topic, buffer, at, commit_log.room, commit_log.end, timestamp,
            self._config.max_message_size,
        )  # fmt: skip
        if run is None:
            return None
        commit_log.seal(run.size, timestamp)
        for queue, _, first_offset, entries, _ in run.queues:
            queue.next_offset = first_offset + len(entries) // UNIT
            self._pending.add(commit_log.end, queue, first_offset, entries, timestamp)
        self._put_done()
        self._counters.messages_put += run.messages
        self._counters.bytes_put += run.size
        return run

    # --- at the end of a put ------------------------------------------------------------------

    def _put_done(self) -> None:
        """Have the put settled soon."""
        if self._loop is None:
            self._pending.settle()
        elif self._sync:
            self._order_flush()
        elif not self._due:
            self._due = True
            self._loop.call_soon(self._settle_due)

    def _settle_due(self) -> None:
        self._due = False
        self.try_settle()  # senders are answered after another one, which tells them the error

    # --- refusing -----------------------------------------------------------------------------

    def _retry_later(self) -> None:
        """Try again on the loop what no put may ever try."""
        lacks = self._prepare is not None or self._unwritten is not None
        if lacks and self._loop is not None and self._retry is None:
            self._retry = self._loop.call_later(self._disk_retry, self._retry_disk)

    def _retry_disk(self) -> None:
        self._retry = None
        # A slave waits for the disk as well, but has nothing to write.
        if not self._failed and (self._prepare is not None or not self._stance):
            self._recover()

    def _try_again(self) -> bool:
        """Return whether no reason to refuse remains."""
        if self._stance or self._failed or not self._trouble:
            return False
        return time.monotonic() >= self._retry_at and self._recover()

    def _recover(self) -> bool:
        if self._prepare is not None:
            try:
                self._prepare()
            except OSError as error:
                self._not_prepared(error)
                return False
            self._prepare = None
        if self._unwritten is not None:
            try:
                self._pending.settle()
            except OSError:  # `writing_failed` was called
                return False
            log.info("commit log can be written again; messages are accepted")
            if self._sync:
                self._order_flush()
        self._mended()
        return not self.refusal

    def _refusal_of(self, properties: str) -> PutResult | None:
        """Return how a put with these properties is refused; None if it is not."""
        if self.refusal != TOO_FEW:
            return self._refused(PutStatus.SERVICE_NOT_AVAILABLE, self.told_refusal)
        if find(properties, WAIT) == "false":
            return None
        return self._refused(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, TOO_FEW)

    def _not_prepared(self, error: OSError) -> None:
        self._no_disk(str(error), f"the store cannot be marked as open: {kind_of(error)}")

    def _no_disk(self, reason: str, told: str) -> None:
        if not self._failed:
            self._trouble, self._told_trouble = reason, told
            self._retry_at = time.monotonic() + self._disk_retry
            self._judge()
            self._retry_later()

    def _refused(self, status: PutStatus, remark: str) -> PutResult:
        self._counters.puts_refused += 1
        return PutResult(status, remark=remark)

    def _no_room(self, error: DiskFull | OSError, what: str) -> PutResult:
        """`what` is the kind of file that lacks room."""
        if error is not self._unwritten:
            self._lines.error("messages are refused; check the disk: %s", error)
            self._no_disk(
                str(error),
                f"the disk has no room for a file of {what}"
                if isinstance(error, DiskFull)
                else f"{what} cannot be written: {kind_of(error)}",
            )
        return self._refused(PutStatus.SERVICE_NOT_AVAILABLE, self.told_refusal)

    def _no_queue_file(self, queue: ConsumeQueue, error: DiskFull | OSError) -> PutResult:
        """Only a full disk concerns other queues as well."""
        if isinstance(error, DiskFull):
            return self._no_room(error, _QUEUE)
        reason = f"queue {queue.topic}/{queue.queue_id} cannot get a file: {kind_of(error)}"
        self._lines.error("a message is refused: %s", reason)
        return self._refused(PutStatus.SERVICE_NOT_AVAILABLE, reason)

    def _unusable_queue(self, topic: str, queue_id: int, error: StoreError | OSError) -> PutResult:
        """A queue on the disk cannot be opened; others can be."""
        if isinstance(error, DiskFull):
            return self._no_room(error, _QUEUE)
        what = f"queue {topic}/{queue_id} cannot be opened"
        self._lines.error("a message is refused: %s: %s", what, error)
        return self._refused(PutStatus.SERVICE_NOT_AVAILABLE, f"{what}: {unexpected(error)}")

    def _no_topic(self, name: str) -> PutResult:
        reason = f"{name} is a light queue: it gets messages of topics that name it"
        return self._refused(PutStatus.MESSAGE_ILLEGAL, reason)

    def _illegal(self, body: int, properties: int, size: int, sys_flag: int) -> PutResult:
        if sys_flag & INNER_BATCH:
            reason = "inner batches are not supported"
        else:
            reason = (
                f"a body of {body} bytes ({self._config.max_message_size} are allowed), properties "
                f"of {properties} ({MAX_PROPERTIES}), {size} bytes in all "
                f"({self._log.max_record_size}), sysFlag {sys_flag:#x}"
            )
        return self._refused(PutStatus.MESSAGE_ILLEGAL, reason)
