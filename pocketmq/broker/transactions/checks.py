"""Checks: finds half messages whose transactions have not ended, and asks their producers.

A round reads the half queue from where the last round stopped, and skips ended transactions. The
first half message that is too young for a check ends the round. Topics alternate: the checks of one
do not wait for a hundred thousand of another. For a check, the broker puts a copy of the half
message, with the number of checks, at the end of the queue, so that no half message blocks those
after it. A half message that was checked too often, or that is older than the store's retention
time, goes to TRANS_CHECK_MAX_TIME_TOPIC. If the properties that a copy adds do not fit, the half
message is checked once, without a copy. The positions in both queues are consumer offsets of the
group CID_RMQ_SYS_TRANS.

Three things differ from the reference on purpose. A half message that is put again without a check,
because its producer requested more time, does not count as checked. Every copy has the offset of
the original (TRAN_PREPARED_QUEUE_OFFSET; in the reference only copies without a check have it), so
one commit or rollback ends all copies, even after a crash that reset the position. The round of the
last check does not give up the half message: the answer to that check still counts.

Reference: TransactionalMessageServiceImpl.check, AbstractTransactionalMessageCheckListener,
DefaultTransactionalMessageCheckListener.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.inner_message import InnerMessage, PutHooks, inner_message_of
from pocketmq.broker.statistics.transaction_counts import TransactionCounts
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.broker.tables.producer_groups import ProducerGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.broker.transactions.half_message import (
    QUEUE_ID,
    copy_of,
    encode_for_check,
    immunity_ms,
    is_gone,
    number,
    origin_of,
)
from pocketmq.broker.transactions.ops import Ops
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.identity import encode_offset_msg_id
from pocketmq.message.limits import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from pocketmq.message.record import Record, decode
from pocketmq.message.record_layout import RecordError
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import CheckTransactionStateRequestHeader
from pocketmq.remoting.serving.long_requests import Steps, in_turns
from pocketmq.remoting.serving.rotation import Rotation
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import PutResult, PutStatus

log = logging.getLogger(__name__)

GROUP: Final = "CID_RMQ_SYS_TRANS"
MOST_SKIPPED: Final = 1000  # ended transactions in a run; they take 0.1 ms
STEP: Final = 16  # half messages, or runs of ended ones, that are looked at in one step, or
STEP_BYTES: Final = 256 * 1024  # bytes of half messages
MOST_DUE: Final = 100_000  # half messages whose topics alternate
_HOUR_MS: Final = 3_600_000


class TransactionChecks:
    """The checks of one broker; `clock` gives milliseconds. `asked` counts the sent checks."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        put_hooks: PutHooks,
        ops: Ops,
        topics: TopicConfigs,
        producers: ProducerGroups,
        offsets: ConsumerOffsets,
        store_host: bytes,
        clock: Callable[[], int],
        counts: TransactionCounts,
    ) -> None:
        self._counts = counts
        self._config = config
        self._store = store
        self._put_hooks = put_hooks
        self._log = LimitedLog(log)
        self._ops = ops
        self._topics = topics
        self._producers = producers
        self._offsets = offsets
        self._store_host = store_host
        self._clock = clock
        self.asked = 0
        self._offset = 0  # of the next half message to examine
        self._handled: set[int] = set()  # origins that were put again or given up in this round

    def load(self) -> None:
        """Load the positions in both queues from the group's offsets, and read the later ops."""
        self._offset = self._position(HALF_TOPIC)
        self._ops.load(self._position(OP_HALF_TOPIC), self._offset)
        self._counts.begin_with(self._ops.read_open())

    async def check(self) -> None:
        """Run one round of checks."""
        # So that after a crash during the round, ended transactions are not checked.
        self._ops.write()
        self._handled.clear()
        # Copies that this round puts belong to the next round.
        await in_turns(self._round(self._store.max_offset(HALF_TOPIC, QUEUE_ID)))

    def _position(self, topic: str) -> int:
        low = self._store.min_offset(topic, QUEUE_ID)
        offset = self._offsets.query(GROUP, topic, QUEUE_ID)
        # The offset may be after the end: a power cut lost the last messages of the queue.
        return max(low, min(offset, self._store.max_offset(topic, QUEUE_ID)))

    def _round(self, end: int) -> Steps[None]:
        """Examine the half messages before `end`, up to one that is too young for a check. One in
        each step: a copy takes up to 10 ms, if its message is of the greatest size."""
        more = True
        while more and self._offset < end:
            due: Rotation[int] = Rotation()
            following, more = yield from self._find_due(end, due)
            for offset in due:
                half, _ = self._half_at(offset)
                if half is not None and not self._look_at(half):
                    self._commit(min(offset, *due))
                    return  # the next round goes on here, and looks at some of them again
                yield
            self._commit(following)

    def _find_due(self, end: int, due: Rotation[int]) -> Steps[tuple[int, bool]]:
        """Find the half messages before `end` to examine, at most MOST_DUE, by topic. Return the
        offset behind them, and whether the round may go on there."""
        offset, ended = self._offset, self._ops.ended
        count = looked = size = 0
        while offset < end and count < MOST_DUE:
            looked += 1
            last = min(offset + MOST_SKIPPED, end)
            while offset < last and offset in ended:
                offset += 1
            if offset < last:
                half, following = self._half_at(offset)
                if half is not None:
                    if self._is_too_young(half):
                        return offset, False
                    due.add(half.properties.get(names.REAL_TOPIC, ""), offset)
                    count += 1
                    size += half.size
                offset = following
            if size >= STEP_BYTES or looked == STEP:
                looked = size = 0
                yield
        return offset, True

    def _commit(self, offset: int) -> None:
        """All half messages before `offset` are examined."""
        self._offset = offset
        offsets = self._offsets
        self._ops.pass_before(offset)
        if offsets.query(GROUP, HALF_TOPIC, QUEUE_ID) != offset:
            offsets.commit(GROUP, HALF_TOPIC, QUEUE_ID, offset)
        ops = self._ops.forget_before(self._stored_from())
        if ops is not None:
            offsets.commit(GROUP, OP_HALF_TOPIC, QUEUE_ID, ops)

    def _stored_from(self) -> int | None:
        """Return the physical offset of the next half message; None after the last one."""
        queue = self._store.queues.get(HALF_TOPIC, {}).get(QUEUE_ID)
        if queue is None or self._offset >= queue.next_offset:
            return None
        entry = queue.entry(self._offset)
        return 0 if entry is None else entry[0]  # None: put, but not flushed and readable yet

    def _half_at(self, offset: int) -> tuple[Record | None, int]:
        """Return the half message at an offset of the queue, None if it no longer exists, and the
        next offset that may have one."""
        found = self._store.get(HALF_TOPIC, QUEUE_ID, offset, 1)
        if found.buffers:
            try:
                return decode(found.buffers[0]), offset + 1
            except RecordError as error:
                self._log.error("half message at %d cannot be read: %s", offset, error)
        return None, max(found.next_begin_offset, offset + 1)

    def _is_too_young(self, half: Record) -> bool:
        """Whether the check of a half message has to wait."""
        timeout = self._config.transaction_time_out
        # If the producer's clock is ahead (negative age), check at once.
        return (
            0 <= self._clock() - half.born_timestamp < timeout
            and immunity_ms(half, timeout) is None
            and not self._ops.covers(half)
            and not is_gone(half, self._put_hooks.destinations)
            and self._times(half) < self._config.transaction_check_max
        )

    def _times(self, half: Record) -> int:
        return number(half.properties.get(names.TRANSACTION_CHECK_TIMES)) or 0

    def _look_at(self, half: Record) -> bool:
        """Check a half message or give it up; return False if the store refuses that."""
        config = self._config
        properties = half.properties
        age = self._clock() - half.born_timestamp
        # After a crash that reset the position, there may be two copies: process only one.
        origin = origin_of(half)
        if self._ops.covers(half):
            self._ops.checked.discard(origin)
            return True
        if origin in self._handled or origin in self._ops.given_up:
            return True
        if is_gone(half, self._put_hooks.destinations):
            self._ops.end(half)
            self._counts.end(properties[names.REAL_TOPIC])
            return True
        times = self._times(half)
        if times >= config.transaction_check_max or age > config.file_reserved_time * _HOUR_MS:
            return self._give_up(half)
        immunity = immunity_ms(half, config.transaction_time_out)
        is_asked = immunity is None or age >= immunity
        copy = copy_of(half)
        if is_asked:
            copy.properties[names.TRANSACTION_CHECK_TIMES] = str(times + 1)
        put = self._put(half, copy)
        if put.status is PutStatus.MESSAGE_ILLEGAL:
            self._log.error("half message at %d cannot be stored again", half.queue_offset)
            self._ops.checked.add(origin)
            self._ask(half, inner_message_of(half), half.queue_offset, half.physical_offset)
            return True
        if put.ok:
            self._ops.checked.add(origin)
        if put.ok and is_asked:
            self._ask(half, copy, put.queue_offset, put.physical_offset)
        return put.ok

    def _put(self, half: Record, inner: InnerMessage) -> PutResult:
        """Put a message; if the store refuses it, the next round continues here."""
        result = self._put_hooks.put(inner, direct=True)
        if result.ok:
            self._handled.add(origin_of(half))
        else:
            self._log.warning(
                "half message cannot be stored again; the next round tries again: %s", result.remark
            )
        return result

    def _give_up(self, half: Record) -> bool:
        self._topics.create_if_absent(TRANS_CHECK_MAX_TIME_TOPIC, 1)
        inner = copy_of(half)  # has the offset of its origin, which identifies it when resumed
        inner.topic = TRANS_CHECK_MAX_TIME_TOPIC
        inner.queue_id = 0
        result = self._put(half, inner)
        if result.status is PutStatus.SERVICE_NOT_AVAILABLE:
            # Perhaps only that queue has no file. Put a copy at the end of the half queue instead.
            is_copied = self._put(half, copy_of(half)).ok
            if is_copied:
                self._ops.checked.add(origin_of(half))
            return is_copied
        self._ops.give_up(origin_of(half))
        self._counts.end(half.properties.get(names.REAL_TOPIC, ""))
        self._log.error(
            "topic %s: transaction %s was never ended: see %s, queue offset %d",
            half.properties.get(names.REAL_TOPIC),
            half.properties.get(names.UNIQ_KEY),
            TRANS_CHECK_MAX_TIME_TOPIC,
            result.queue_offset,
        )
        return True

    def _ask(
        self, half: Record, copy: InnerMessage, queue_offset: int, physical_offset: int
    ) -> None:
        """Ask a producer of the group for the state of its transaction, with the copy that is
        stored at these offsets."""
        group = half.properties.get(names.PGROUP, "")
        topic = half.properties.get(names.REAL_TOPIC, "")
        producer = self._producers.available(group, topic)
        if producer is None:
            self._log.warning(
                "producer group %s: cannot check transactions: no online member may publish to "
                "topic %s",
                group,
                topic,
            )
            return
        unique_id = half.properties.get(names.UNIQ_KEY)
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=queue_offset,
            commit_log_offset=physical_offset,
            topic=HALF_TOPIC,
            msg_id=unique_id,
            transaction_id=unique_id,
            offset_msg_id=encode_offset_msg_id(self._store_host, physical_offset),
            bname=self._config.broker_name,
        )
        try:
            body = encode_for_check(copy, queue_offset, physical_offset, half)
            producer.connection.send_oneway(RequestCode.CHECK_TRANSACTION_STATE, header, body)
            self.asked += 1
        except RemotingError as error:
            self._log.warning(
                "producer group %s: cannot send a transaction check: %s", group, error
            )
