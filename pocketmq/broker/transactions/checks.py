"""Checks: finds half messages whose transactions have not ended, and asks their producers.

A round begins every transactionCheckInterval. For a check, the broker puts a copy of the half
message, with the number of checks, at the end of the half queue, so that no half message blocks
those after it. Two searches go through the queue, and skip ended transactions: one for half
messages that were never checked, up to the first that is too young for a check, and one for copies,
up to the end that the queue had when the round began. Both go on where they stopped, in the next
round or, if there is so much to check that the round takes long, every LOOK_MS: then copies as old
as the interval are checked as well. What they find is examined in turn, topic by topic, and the
copies of a topic are a turn of their own. So a half message does not wait for the checks of other
topics, however many there are, unless they are more than MOST_DUE.

A half message that was checked too often, or that is older than the store's retention time, goes to
TRANS_CHECK_MAX_TIME_TOPIC. If the properties that a copy adds do not fit, the half message is
checked once, without a copy. The positions in both queues are consumer offsets of the group
CID_RMQ_SYS_TRANS: all half messages before the position were examined. After a crash, a half
message behind it that has a copy already is not examined again; its copy is.

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
from itertools import chain
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
from pocketmq.message.properties import find
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
STEP: Final = 64  # half messages that are looked at in one step of a search (0.5 ms), or
STEP_BYTES: Final = 256 * 1024  # bytes of them, or
MOST_SKIPPED: Final = 4096  # ended ones
LOOK_MS: Final = 200  # between two searches while half messages are examined
MOST_DUE: Final = 1 << 20  # half messages that were found and wait for their turn
_HOUR_MS: Final = 3_600_000


class _Search:
    """A search through the half queue, for copies or for what is none."""

    def __init__(self, offset: int, *, copies: bool) -> None:
        self.offset = offset  # of the next half message
        self.copies = copies


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
        self._offset = 0  # all half messages before it are examined
        self._end = 0  # of the half queue, when the round began
        self._searches: list[_Search] = []
        self._due: Rotation[int] = Rotation()  # offsets of half messages to examine
        self._due_count = 0

    def load(self) -> None:
        """Load the positions in both queues from the group's offsets, and read the later ops."""
        self._offset = self._position(HALF_TOPIC)
        self._searches = [_Search(self._offset, copies=copies) for copies in (False, True)]
        self._due, self._due_count = Rotation(), 0
        self._ops.load(self._position(OP_HALF_TOPIC), self._offset)
        self._counts.begin_with(self._ops.read_open())

    async def check(self) -> None:
        """Run one round of checks."""
        # So that after a crash during the round, ended transactions are not checked.
        self._ops.write()
        self._end = self._store.max_offset(HALF_TOPIC, QUEUE_ID)
        await in_turns(self._round())

    def _position(self, topic: str) -> int:
        low = self._store.min_offset(topic, QUEUE_ID)
        offset = self._offsets.query(GROUP, topic, QUEUE_ID)
        # The offset may be after the end: a power cut lost the last messages of the queue.
        return max(low, min(offset, self._store.max_offset(topic, QUEUE_ID)))

    def _round(self) -> Steps[None]:
        """Examine all half messages that are due, until a search finds no more."""
        while True:
            found_all = yield from self._search()
            # A search finds a topic's half messages in order, so the first is the lowest offset.
            not_examined = chain(self._due.firsts(), (each.offset for each in self._searches))
            self._commit(min(not_examined))
            if found_all and not self._due:
                return
            began = self._clock()
            while self._due and not self._is_over(began):
                # One in each step: a copy takes up to 10 ms, if its message is of the greatest
                # size.
                if not self._examine(self._due.take()):
                    return  # the next round goes on here
                yield

    def _is_over(self, began: int) -> bool:
        """Whether LOOK_MS have passed since `began`, or the clock was set back."""
        return not 0 <= self._clock() - began < LOOK_MS

    def _search(self) -> Steps[bool]:
        """Search for half messages that are due, for LOOK_MS. Return whether all were found."""
        began, searches = self._clock(), self._searches
        while searches and self._due_count < MOST_DUE and not self._is_over(began):
            searches = [search for search in searches if self._find_some(search)]
            yield
        return not searches

    def _find_some(self, search: _Search) -> bool:
        """Search on for a millisecond or less. Return whether there may be more."""
        offset, ended = search.offset, self._ops.ended
        end = self._store.max_offset(HALF_TOPIC, QUEUE_ID)
        last = min(offset + MOST_SKIPPED, end)
        looked = size = 0
        waits = False
        while offset < last and looked < STEP and size < STEP_BYTES:
            if offset in ended:
                offset += 1
                continue
            half, following = self._half_at(offset)
            if half is not None:
                if waits := self._has_to_wait(half, search):
                    break
                if _is_copy(half) == search.copies:
                    self._due.add(_turn_of(half), offset)
                    self._due_count += 1
                size += half.size
            looked += 1
            offset = following
        search.offset = offset
        return offset < end and not waits

    def _has_to_wait(self, half: Record, search: _Search) -> bool:
        """Tell whether a half message, and all that come after it, are not yet due."""
        if not search.copies:
            return not _is_copy(half) and self._is_too_young(half)
        age = self._clock() - half.store_timestamp
        return half.queue_offset >= self._end and age < self._config.transaction_check_interval

    def _examine(self, offset: int) -> bool:
        """Check the half message at an offset if it has to be; return False if the store refuses
        that, and the half message keeps its place."""
        half, _ = self._half_at(offset)
        done = half is None
        try:
            done = half is None or self._look_at(half)
        finally:
            if half is not None and not done:
                self._due.add(_turn_of(half), offset, first=True)
            else:
                self._due_count -= 1
        return done

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
        now = self._clock()
        return (
            0 <= now - half.born_timestamp < timeout
            # Their producers say when they were born, but not how long those behind them wait.
            and now - half.store_timestamp < timeout
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
        origin = origin_of(half)
        # After a crash that reset the position, there may be several copies: the newest counts.
        if not self._ops.is_open(half) or half.queue_offset < self._ops.checked.get(origin, 0):
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
            self._ops.checked[origin] = half.queue_offset
            self._ask(half, inner_message_of(half), half.queue_offset, half.physical_offset)
            return True
        if put.ok:
            self._ops.checked[origin] = put.queue_offset
        if put.ok and is_asked:
            self._ask(half, copy, put.queue_offset, put.physical_offset)
        return put.ok

    def _put(self, half: Record, inner: InnerMessage) -> PutResult:
        """Put a message; if the store refuses it, the next round continues here."""
        result = self._put_hooks.put(inner, direct=True)
        if not result.ok:
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
            copied = self._put(half, copy_of(half))
            if copied.ok:
                self._ops.checked[origin_of(half)] = copied.queue_offset
            return copied.ok
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


def _is_copy(half: Record) -> bool:
    return origin_of(half) != half.queue_offset


def _turn_of(half: Record) -> tuple[bool, str]:
    """Return whose turn it is when a half message is examined."""
    return _is_copy(half), find(half.properties_text, names.REAL_TOPIC) or ""
