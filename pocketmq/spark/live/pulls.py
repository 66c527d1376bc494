"""Pulls ranges of queues in one task, one pull ahead of decoding.

No thread is used: the event loop runs while the task waits for answers, and stops while Spark
processes the rows. An answer has 512 KiB. Each run of the loop collects a block of several answers,
because starting and stopping the loop costs as much as many rows. Meanwhile the answer to the next
pull arrives in kernel buffers. Its timeout therefore counts only the time spent waiting for it: a
timer of the loop would also count the time that Spark takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final, NamedTuple

from pocketmq.client.backoff import backoff, jittered
from pocketmq.client.consumer.fetch.puller import PullStatus
from pocketmq.client.errors import BodyError, NoPermission, RemotingError, RemotingTimeout
from pocketmq.client.instance import ClientInstance
from pocketmq.client.record_pulls import PulledRecords, RecordPuller
from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.message import MessageQueue
from pocketmq.spark.live.errors import QueueNotRead
from pocketmq.spark.live.partition import LiveRange
from pocketmq.spark.options.live_options import LiveOptions
from pocketmq.store.scan.errors import RecordsLost

log = logging.getLogger(__name__)

MOST: Final = 1024
"""Records requested in a pull. Brokers have lower limits of their own, also of bytes."""
BLOCK_BYTES: Final = 4 * 1024 * 1024
"""Answers are combined up to this size, because each batch of rows has a cost in Spark."""
_ANSWER_SECONDS: Final = 15.0
"""How long to wait for an answer before pulling again."""
_DAY: Final = 86_400.0
_PAUSES: Final = 0.05, 2.0
_RESET: Final = "OFFSET_RESET"
_REMOVING: Final = "MESSAGE_WAS_REMOVING"


class Pulled(NamedTuple):
    """The records of several pulls of a range, by answer. Some may be after the end of the
    range."""

    range: LiveRange
    answers: list[ReadableBuffer]


class TaskPulls:
    """The pulls of one task. Create it, iterate once, and close it.

    Args:
        lose: called with a number of offsets and an error for records that are gone; may raise.

    Raises (while iterating):
        QueueNotRead: a broker did not answer within the timeout, or refused.
        OSError: a file of TLS cannot be read.
    """

    def __init__(
        self,
        ranges: Sequence[LiveRange],
        options: LiveOptions,
        lose: Callable[[int, RecordsLost], None],
    ) -> None:
        self._ranges = [part for part in ranges if part.start < part.stop]
        self._options = options
        self._lose = lose

    def __iter__(self) -> Iterator[Pulled]:
        if not self._ranges:
            return
        with asyncio.Runner() as runner:
            # Not by `runner.run`: to restore the handler of SIGINT, it makes a string of the task
            # with its result, which is a whole answer. That took three quarters of a read.
            run = runner.get_loop().run_until_complete
            ahead = run(self._open())
            size = 0  # the first answer alone: it is often enough for a LIMIT
            try:
                while (pulled := run(ahead.next(size))) is not None:
                    yield pulled
                    size = BLOCK_BYTES
            finally:
                run(ahead.close())

    async def _open(self) -> _Ahead:
        connection = self._options.connection
        instance = ClientInstance(
            connection.namesrv, owner="Spark source", **connection.client_options()
        )
        await instance.start()
        return _Ahead(instance, self._ranges, self._options, self._lose)


class _Ahead:
    """The pull in flight, or its answer, while the previous one is decoded."""

    def __init__(
        self,
        instance: ClientInstance,
        ranges: Sequence[LiveRange],
        options: LiveOptions,
        lose: Callable[[int, RecordsLost], None],
    ) -> None:
        self._instance = instance
        self._puller = RecordPuller(instance, options.group)
        self._timeout = options.timeout
        self._expression = options.expression
        self._lose = lose
        self._left = list(reversed(ranges))
        self._range = self._left.pop()
        self._offset = self._range.start
        self._pull: asyncio.Task[PulledRecords] | None = None

    async def next(self, size: int) -> Pulled | None:
        """Return the answers of the next pulls of one range, at least `size` bytes in all unless
        the range ends first; None after the last range."""
        answers: list[ReadableBuffer] = []
        while self._offset < self._range.stop or self._left:
            if self._offset >= self._range.stop:
                self._range = self._left.pop()
                self._offset = self._range.start
            answer = await self._answered()
            self._offset = self._following(answer)
            if answer.status is PullStatus.FOUND:
                answers.append(answer.records)
                size -= len(answer.records)
            if answers and (size <= 0 or self._offset >= self._range.stop):
                part = self._range
                await self._begin()
                return Pulled(part, answers)
        return None

    async def close(self) -> None:
        """Close all connections."""
        if self._pull is not None:
            self._pull.cancel()
            await asyncio.wait([self._pull])
        await self._instance.shutdown()

    async def _begin(self) -> None:
        """Send the next pull, if there is one."""
        part, offset = self._range, self._offset
        if offset >= part.stop:
            if not self._left:
                return
            part = self._left[-1]
            offset = part.start
        self._pull = asyncio.ensure_future(self._asked(part, offset, _DAY))
        # Long enough to send it; the answer is awaited later.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _answered(self) -> PulledRecords:
        """Return the answer to the pull at the current offset; retry with growing pauses while its
        broker is unreachable."""
        part, offset = self._range, self._offset
        deadline = time.monotonic() + self._timeout
        failures = 0
        while True:
            try:
                return await self._one_answer(deadline)
            except RemotingError as error:
                failures += 1
                pause = jittered(backoff(*_PAUSES, failures))
                # A forbidden send may be tried at another broker, a pull may not.
                is_refused = isinstance(error, NoPermission) or not error.retriable
                if is_refused or time.monotonic() + pause > deadline:
                    raise QueueNotRead(*part[:3], offset, error) from error
                log.info("retrying the pull of %s at %d: %s", part, offset, error)
                await asyncio.sleep(pause)
                # The broker may have a new address.
                with contextlib.suppress(RemotingError):
                    await self._instance.routes.refresh(part.topic)

    async def _one_answer(self, deadline: float) -> PulledRecords:
        left = min(_ANSWER_SECONDS, max(deadline - time.monotonic(), 0.0))
        ahead, self._pull = self._pull, None
        if ahead is None:
            return await self._asked(self._range, self._offset, left)
        try:
            async with asyncio.timeout(left):
                return await ahead
        except TimeoutError:
            raise RemotingTimeout("the broker does not answer a pull", self._range.broker) from None

    def _asked(
        self, part: LiveRange, offset: int, timeout: float
    ) -> Coroutine[Any, Any, PulledRecords]:
        queue = MessageQueue(part.topic, part.broker, part.queue_id)
        return self._puller.pull(queue, offset, self._expression, most=MOST, timeout=timeout)

    def _following(self, answer: PulledRecords) -> int:
        """Return the offset where the range continues; missing messages in between are lost."""
        part, offset, following = self._range, self._offset, answer.next_offset
        if answer.status is PullStatus.OFFSET_ILLEGAL and answer.reason == _RESET:
            # An administrator has reset the group's offset. That does not affect this read; the
            # next pull gets a normal answer.
            return offset
        if following <= offset:
            if answer.status in (PullStatus.FOUND, PullStatus.NO_MATCHED_MSG):
                why = BodyError(f"the broker answers to go on at {following}", part.broker)
                raise QueueNotRead(*part[:3], offset, why)
            self._gone(offset, part.stop, f"the queue ends at {answer.max_offset}")
            return part.stop
        if answer.status is PullStatus.FOUND or (
            answer.status is PullStatus.NO_MATCHED_MSG and answer.reason != _REMOVING
        ):
            return following
        end = min(following, part.stop)
        self._gone(offset, end, f"the broker has removed them; the next it has is {following}")
        return following

    def _gone(self, start: int, stop: int, reason: str) -> None:
        part = self._range
        reason = f"broker {part.broker}: {reason}"
        self._lose(stop - start, RecordsLost(part.topic, part.queue_id, start, stop - 1, reason))
