"""Ops: the half messages whose transactions are ended.

An ended transaction is noted here and written a little later, many in one op message. Its body is
their offsets in the half queue, each followed by a comma, and its tag is `d`. The notes and the
content of the op queue stay in memory for as long as the checks need them, so the op queue is read
only when the broker starts.

A transaction ends once. An op is forgotten when the checks have passed its half message, so what
tells an ended half message from an open one then is whether a copy of it still waits for a check.
Only one that was given up can be checked again; whether it was ended since, the op queue tells.
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
MAX_WAITING: Final = 20_000  # ends that wait for a store that cannot be written
READ_AT_ONCE: Final = 32


class Op(NamedTuple):
    """One op message: its place in the op queue and in the log, and the half queue offsets."""

    queue_offset: int
    physical_offset: int
    halves: tuple[int, ...]


class Ops:
    """The ops of one broker; `store_host` is its packed address, `clock` gives milliseconds.

    A body ends as soon as it has `max_size` characters.

    Attributes:
        ended: offsets in the half queue whose transactions are ended.
        passed: the checks have looked at all half messages before this offset.
        checked: origins of open half messages before `passed`: a copy of each waits for its next
            check, or a producer was asked without a copy.
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
        self.checked: set[int] = set()
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
        """No more ends can be noted until some are written."""
        return len(self._waiting) >= MAX_WAITING

    def load(self, queue_offset: int, passed: int) -> None:
        """Forget what is known, and read the op queue from `queue_offset` on, the checks having
        passed the half messages before `passed`. Unknown ops are skipped."""
        self.ended.clear()
        self.checked.clear()
        self.passed = passed
        self._waiting.clear()
        self._waiting_size = 0
        self._written.clear()
        for op in self._read(queue_offset):
            self._written.append(op)
            self.ended.update(op.halves)

    def read_open(self) -> dict[str, int]:
        """Find, after `load`, the open half messages that the checks have not passed; return how
        many there are by topic."""
        store = self._store
        origins: set[int] = set()
        topics: Counter[str] = Counter()
        offset, end = self.passed, store.max_offset(HALF_TOPIC, QUEUE_ID)
        while True:
            # Most are ended, and nothing else is done for these: 0.03 µs each.
            offset = next((each for each in range(offset, end) if each not in self.ended), end)
            if offset == end:
                break
            last = min(offset + READ_AT_ONCE, end)
            behind = next((each for each in range(offset, last) if each in self.ended), last)
            found = store.get(HALF_TOPIC, QUEUE_ID, offset, behind - offset)
            for buffer in found.buffers:
                for half in iter_records(buffer):
                    origin = origin_of(half)
                    if self.covers(half) or origin in origins:
                        continue
                    origins.add(origin)
                    topics[find(half.properties_text, names.REAL_TOPIC) or ""] += 1
            offset = max(found.next_begin_offset, offset + 1)
        # Copies name the origin, which the checks have passed.
        self.checked = {origin for origin in origins if origin < self.passed}
        return topics

    def end(self, half: Record) -> None:
        """Note that the transaction of a half message, and of all of its copies, is ended."""
        origin = origin_of(half)
        offsets = {half.queue_offset, origin}
        self.ended |= offsets
        self.checked.discard(origin)
        for offset in offsets:
            self._waiting.append(offset)
            self._waiting_size += len(str(offset)) + 1
        if self._waiting_size >= self._max_size:
            self.write()

    def covers(self, half: Record) -> bool:
        """Tell whether the transaction of a half message is ended."""
        return half.queue_offset in self.ended or origin_of(half) in self.ended

    def is_open(self, half: Record) -> bool:
        """Tell whether the transaction of a half message can still be ended: it is neither ended
        nor given up."""
        origin = origin_of(half)
        return not self.covers(half) and (origin >= self.passed or origin in self.checked)

    def resumed(self, properties: dict[str, str]) -> None:
        """Open the transaction of a half message again that was given up, and is put again."""
        origin = number(properties.get(names.TRAN_PREPARED_QUEUE_OFFSET))
        if origin is not None:
            self.checked.add(origin)

    async def was_ended(self, origin: int, physical_offset: int) -> bool:
        """Tell whether the half message that was sent with the half queue offset `origin` was ended
        by an op stored after `physical_offset`, even if that op is forgotten. Reads the op queue,
        one op in each turn of the event loop."""
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
        """Write what is noted; what the store does not take stays for the next time."""
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
                    "%d ended transactions wait for the store: %s",
                    len(self._waiting),
                    result.remark,
                )
                return
            self._written.append(Op(result.queue_offset, result.physical_offset, tuple(halves)))
            for _ in halves:
                self._waiting.popleft()
            self._waiting_size -= len(body)

    def forget_before(self, physical_offset: int | None) -> int | None:
        """Forget the ops written before a physical offset (None: all): every half message that
        was stored by then has been looked at.

        Returns where the op queue is to be read from on after a restart; None: where it was.
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
        if _PLAIN.fullmatch(body):  # a tenth of the time of what is done for any other
            return tuple(map(int, body[:-1].split(b",")))
        components = str(body, "utf-8", "replace").split(SEPARATOR)
        return tuple(
            offset for part in components if (offset := number(part)) is not None and offset >= 0
        )
