"""Prefetches one queue: a long-polling loop that fills its process queue.

The loop never ends by itself. After a failure (connection, broker, route, name server), it informs
its reader, retries after a pause of at most a second, and informs the reader when it works again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from pocketmq.client.backoff import backoff
from pocketmq.client.consumer.expression import Expression
from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.consumer.fetch.pull_limiter import PullLimiter
from pocketmq.client.consumer.fetch.puller import (
    BrokenRecord,
    Puller,
    PullResult,
    PullStatus,
    Unread,
)
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.errors import RemotingError
from pocketmq.client.log_fields import fields
from pocketmq.kept_task import KeptTask
from pocketmq.limited_log import LimitedLog
from pocketmq.message.message import MessageExt, MessageQueue

log = logging.getLogger(__name__)

M = TypeVar("M", bound=MessageExt)


class Reader(Protocol[M]):
    """The consumer, as its fetchers see it."""

    async def first_offset(self, queue: MessageQueue) -> int:
        """Return the offset at which the group continues in a queue; raises RemotingError."""

    def arrived(self, pq: ProcessQueue[M]) -> None:
        """Called when the queue's buffer is no longer empty."""

    def failed(self, queue: MessageQueue, error: RemotingError, times: int) -> None:
        """Called when a round has failed `times` times in a row; the loop continues."""

    def answered(self, queue: MessageQueue, failures: int) -> None:
        """Called when the first round succeeds, and when one does after `failures` failures."""


class QueueFetcher(Generic[M]):
    """Prefetches one queue, within the limits of the pull limiter."""

    def __init__(
        self,
        pq: ProcessQueue[M],
        expression: Expression,
        puller: Puller[M],
        reader: Reader[M],
        limiter: PullLimiter,
        batch: int,
        pauses: Pauses,
    ) -> None:
        self.pq = pq
        self._expression = expression
        self._puller = puller
        self._reader = reader
        self._log = LimitedLog(log)
        self._limiter = limiter
        self._batch = batch
        self._pauses = pauses
        self._task: KeptTask | None = None

    def start(
        self, keep: Callable[[Callable[[], Coroutine[Any, Any, None]], str], KeptTask]
    ) -> None:
        """Start, or continue after `stop`; a paused queue is not read."""
        queue = self.pq.queue
        if self._task is None and not self.pq.paused:
            self._task = keep(self._run, f"pull {queue.topic}:{queue.queue_id}")

    def stop(self) -> None:
        """End the loop. The buffer is kept; nothing is added to it from now on."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._limiter.keep(self.pq, 0)

    def seek(self, offset: int) -> None:
        """Continue at another offset, and drop the messages read so far. Stop the loop first."""
        self._limiter.forget(self.pq)
        self.pq.seek(offset)

    def drop(self) -> None:
        """End for good: deliver nothing more, and drop prefetched messages."""
        self.stop()
        self.pq.dropped = True
        self._limiter.forget(self.pq)
        self.pq.drop_buffer()

    async def _run(self) -> None:
        pq = self.pq
        pauses = self._pauses
        limiter, room = self._limiter, partial(self._limiter.room, pq)
        failures, answered = 0, False
        unread: Unread | None = None
        limiter.keep(pq, 0)
        while True:
            try:
                if pq.next_offset is None:
                    pq.next_offset = await self._reader.first_offset(pq.queue)
                await limiter.wait(pq)
                pq.pulled_at = time.monotonic()
                if unread is None:
                    result, unread = await self._puller.poll(
                        pq.queue, pq.next_offset, self._expression, self._batch, room
                    )
                    pq.failing, pq.answered_at = False, time.monotonic()
                    pq.end = max(result.max_offset, result.next_begin_offset)
                else:
                    result, unread = self._puller.read_on(
                        pq.queue, self._expression, unread, room()
                    )
            except BrokenRecord as error:
                self._log.error(
                    "%s; skipping one offset",
                    error.remark,
                    extra=fields(error, queue=pq.queue, group=self._puller.group),
                )
                assert pq.next_offset is not None
                unread = None
                limiter.keep(pq, 0)
                pq.accept([], pq.next_offset + 1)
                continue
            except RemotingError as error:
                failures += 1
                pq.failing = True
                self._reader.failed(pq.queue, error, failures)
                await asyncio.sleep(backoff(pauses.first_failure, pauses.longest_failure, failures))
                continue
            if failures or not answered:
                self._reader.answered(pq.queue, failures)
                failures, answered = 0, True
            nothing = result.status is PullStatus.NO_NEW_MSG or result.leads_nowhere(pq.next_offset)
            self._accept(result)
            del result  # do not keep its messages in memory until the next answer
            if not limiter.keep(pq, 0 if unread is None else len(unread)):
                unread = None
            if nothing and time.monotonic() - pq.pulled_at < pauses.shortest_poll:
                await asyncio.sleep(pauses.shortest_poll)

    def _accept(self, result: PullResult[M]) -> None:
        pq = self.pq
        following = result.next_begin_offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            self._moved(following, result)
        pq.accept(result.messages, following)
        if result.messages:
            self._limiter.add(pq, result.messages)
            self._reader.arrived(pq)

    def _moved(self, following: int, result: PullResult[M]) -> None:
        """Continue at another offset, to which the broker has sent the group."""
        pq, asked = self.pq, self.pq.next_offset
        assert asked is not None
        told = fields(queue=pq.queue, group=self._puller.group)
        if result.min_offset <= asked <= result.max_offset:
            # The requested offset exists: an operator has reset the group's offset. Drop the
            # messages that were prefetched or are in progress, so that no commit undoes the reset.
            self._log.info("%s: offset reset to %d", pq.queue, following, extra=told)
            self.seek(following)
            pq.committed = None  # a pending commit may have overwritten the reset
            return
        self._log.warning(
            "%s has no offset %d (it has %d to %d): continuing at %d",
            pq.queue,
            asked,
            result.min_offset,
            result.max_offset,
            following,
            extra=told,
        )
        if following <= asked:
            self._cut(following)
        # If messages have only expired, those that were read before stay valid.
        elif following != result.min_offset:
            self.seek(following)

    def _cut(self, end: int) -> None:
        """Drop the messages at and after `end`: the broker has lost the end of the queue. They
        would come before newer messages with lower offsets. Those before `end` are still valid."""
        pq = self.pq
        # It depends on the kind of consumer whether delivered messages count.
        both = pq.count > len(pq.buffer)
        pq.cut(end)
        self._limiter.recount(pq, [*(pq.unfinished.values() if both else ()), *pq.buffer])
