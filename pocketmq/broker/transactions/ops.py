"""Ops: the half messages whose transactions have ended.

An ended transaction is recorded here and written a little later, many in one op message. The body
of an op message has their offsets in the half queue, each followed by a comma; its tag is `d`. The
content of the op queue stays in memory as long as the checks need it, so the op queue is read only
when the broker starts.

A transaction can end only once. An op is dropped from memory when the checks have passed its half
message. From then on, a half message is open only if a copy of it still waits for a check. A half
message that was given up can be resumed; then the op queue shows whether it has ended since.
Reference: TransactionalMessageServiceImpl.deletePrepareMessage, batchSendOpMessage,
fillOpRemoveMap.
"""

from __future__ import annotations

import asyncio
import logging
import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pocketmq.broker.inner_message import InnerMessage, PutHooks
from pocketmq.broker.transactions.half_message import QUEUE_ID, number, origin_of
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.limits import HALF_TOPIC, OP_HALF_TOPIC
from pocketmq.message.properties import find
from pocketmq.message.record import Record, iter_records
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

REMOVE_TAG: Final = "d"
SEPARATOR: Final = ","
_PLAIN: Final = re.compile(rb"(?:[0-9]{1,18},)+")
MAX_WAITING: Final = 20_000  # ended transactions that wait while the store refuses writes
READ_AT_ONCE: Final = 32


class Op(NamedTuple):
    """One op message: its queue offset, its physical offset, and its half queue offsets."""

    queue_offset: int
    physical_offset: int
    halves: tuple[int, ...]


class Ops:
    """The ops of one broker; `store_host` is its packed address, `clock` gives milliseconds.

    A body is complete as soon as it has `max_size` characters.

    Attributes:
        ended: half queue offsets whose transactions have ended.
        passed: the checks have examined all half messages before this offset.
        checked: origins of open half messages that wait for their next check as a copy, or were
            checked without one, and the half queue offset of the newest copy. Those of all before
            `passed` are here.
        given_up: origins of half messages after it that were given up.
    """

    def __init__(
        self,
        store: MessageStore,
        put_hooks: PutHooks,
        store_host: bytes,
        clock: Callable[[], int],
        max_size: int,
    ) -> None:
        self.ended: set[int] = set()
        self.passed = 0
        self.checked: dict[int, int] = {}
        self.given_up: set[int] = set()
        self._store = store
        self._put_hooks = put_hooks
        self._store_host = store_host
        self._clock = clock
        self._max_size = max_size
        self._log = LimitedLog(log)
        self._waiting: deque[int] = deque()
        self._waiting_size = 0
        self._written: deque[Op] = deque()

    @property
    def full(self) -> bool:
        """Whether no more ended transactions can be recorded until some are written."""
        return len(self._waiting) >= MAX_WAITING

    def load(self, queue_offset: int, passed: int) -> None:
        """Clear the state, and read the op queue from `queue_offset` on. The checks have passed the
        half messages before `passed`. Unknown ops are skipped."""
        self.ended.clear()
        self.checked.clear()
        self.given_up.clear()
        self.passed = passed
        self._waiting.clear()
        self._waiting_size = 0
        self._written.clear()
        for op in self._read(queue_offset):
            self._written.append(op)
            self.ended.update(op.halves)

    def read_open(self) -> dict[str, int]:
        """Find, after `load`, the open half messages that the checks have not passed; return their
        number by topic."""
        store = self._store
        newest: dict[int, int] = {}  # by origin
        topics: Counter[str] = Counter()
        offset, end = self.passed, store.max_offset(HALF_TOPIC, QUEUE_ID)
        while True:
            # Most have ended; skipping one takes 0.03 µs.
            offset = next((each for each in range(offset, end) if each not in self.ended), end)
            if offset == end:
                break
            last = min(offset + READ_AT_ONCE, end)
            behind = next((each for each in range(offset, last) if each in self.ended), last)
            found = store.get(HALF_TOPIC, QUEUE_ID, offset, behind - offset)
            for buffer in found.buffers:
                for half in iter_records(buffer):
                    origin = origin_of(half)
                    if self.covers(half):
                        continue
                    if origin not in newest:
                        topics[find(half.properties_text, names.REAL_TOPIC) or ""] += 1
                    newest[origin] = half.queue_offset
            offset = max(found.next_begin_offset, offset + 1)
        self.checked = {origin: at for origin, at in newest.items() if at != origin}
        return topics

    def end(self, half: Record) -> None:
        """Record that the transaction of a half message and its copies has ended."""
        origin = origin_of(half)
        offsets = {half.queue_offset, origin}
        self.ended |= offsets
        self.checked.pop(origin, None)
        for offset in offsets:
            self._waiting.append(offset)
            self._waiting_size += len(str(offset)) + 1
        if self._waiting_size >= self._max_size:
            self.write()

    def covers(self, half: Record) -> bool:
        """Tell whether the transaction of a half message has ended."""
        return half.queue_offset in self.ended or origin_of(half) in self.ended

    def is_open(self, half: Record) -> bool:
        """Tell whether the transaction of a half message is open: it has neither ended nor been
        given up."""
        origin = origin_of(half)
        if origin >= self.passed and origin not in self.given_up:
            return not self.covers(half)
        return origin in self.checked and not self.covers(half)

    def give_up(self, origin: int) -> None:
        """A half message is given up: nothing ends it but what comes after `resumed`."""
        self.checked.pop(origin, None)
        self.given_up.add(origin)

    def pass_before(self, offset: int) -> None:
        """The checks have examined all half messages before `offset`."""
        self.passed = offset
        self.given_up = {origin for origin in self.given_up if origin >= offset}

    def resumed(self, properties: dict[str, str]) -> None:
        """Reopen the transaction of a half message that was given up and is put again."""
        origin = number(properties.get(names.TRAN_PREPARED_QUEUE_OFFSET))
        if origin is not None:
            self.checked[origin] = origin
            self.given_up.discard(origin)

    async def was_ended(self, origin: int, physical_offset: int) -> bool:
        """Tell whether an op after `physical_offset` has ended the half message with the half queue
        offset `origin`, even if the op is no longer in memory. Reads the op queue, one op in each
        turn of the event loop."""
        queue = self._store.queues.get(OP_HALF_TOPIC, {}).get(QUEUE_ID)
        if origin in self.ended or queue is None:
            return origin in self.ended
        first = bisect_left(
            range(self._store.max_offset(OP_HALF_TOPIC, QUEUE_ID)),
            physical_offset,
            lo=self._store.min_offset(OP_HALF_TOPIC, QUEUE_ID),
            key=lambda offset: (queue.entry(offset) or (physical_offset,))[0],
        )
        for op in self._read(first):
            if origin in op.halves:
                return True
            await asyncio.sleep(0)
        return origin in self.ended

    def write(self) -> None:
        """Write the recorded transactions; if the store refuses an op, keep the rest for the next
        call."""
        while self._waiting:
            halves: list[int] = []
            body = ""
            for half in self._waiting:
                halves.append(half)
                body += f"{half}{SEPARATOR}"
                if len(body) >= self._max_size:
                    break
            inner = InnerMessage(
                OP_HALF_TOPIC,
                QUEUE_ID,
                body.encode(),
                {names.TAGS: REMOVE_TAG, names.WAIT: "true"},
                self._clock(),
                self._store_host,
            )
            result = self._put_hooks.put(inner, direct=True)
            if not result.ok:
                self._log.warning(
                    "%d ended transactions cannot be written yet: %s",
                    len(self._waiting),
                    result.remark,
                )
                return
            self._written.append(Op(result.queue_offset, result.physical_offset, tuple(halves)))
            for _ in halves:
                self._waiting.popleft()
            self._waiting_size -= len(body)

    def forget_before(self, physical_offset: int | None) -> int | None:
        """Drop from memory the ops written before a physical offset (None: all): the checks have
        examined every half message stored before it.

        Return the op queue offset to start from after a restart; None if it is unchanged.
        """
        behind = None
        while self._written and (
            physical_offset is None or self._written[0].physical_offset < physical_offset
        ):
            op = self._written.popleft()
            self.ended.difference_update(op.halves)
            behind = op.queue_offset + 1
        return behind

    def _read(self, queue_offset: int) -> Iterator[Op]:
        store = self._store
        while queue_offset < store.max_offset(OP_HALF_TOPIC, QUEUE_ID):
            found = store.get(OP_HALF_TOPIC, QUEUE_ID, queue_offset, READ_AT_ONCE)
            for buffer in found.buffers:
                for record in iter_records(buffer):
                    yield Op(record.queue_offset, record.physical_offset, self._halves_of(record))
            queue_offset = max(found.next_begin_offset, queue_offset + 1)

    def _halves_of(self, op: Record) -> tuple[int, ...]:
        """Return the half queue offsets that an op message lists."""
        if op.properties.get(names.TAGS) != REMOVE_TAG:
            self._log.warning(
                "transaction op at %d has another tag: %s", op.queue_offset, op.properties_text
            )
            return ()
        body = bytes(op.body)
        if _PLAIN.fullmatch(body):  # this path takes a tenth of the time of the other
            return tuple(map(int, body[:-1].split(b",")))
        components = str(body, "utf-8", "replace").split(SEPARATOR)
        return tuple(
            offset for part in components if (offset := number(part)) is not None and offset >= 0
        )
