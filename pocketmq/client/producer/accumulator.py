"""The accumulator: collects messages for a moment and sends them as one batch.

A message joins the open batch of its topic, or of its queue if one is chosen. The batch is sent
when it is full or its first message has waited for `linger` seconds. Batches of a topic are sent as
soon as they are ready, to a queue that the selector chooses. Posted batches of a chosen queue are
sent one after another: while one is in flight, the next keeps growing, so that the order is kept
and a slow broker gets fewer, larger batches.

Without lingering, a batch has the messages that are added in one turn of the event loop.

A batch needs only one future and one timer. The bytes of unanswered messages are limited: senders
wait when the limit is reached. Reference: ProduceAccumulator.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import msgspec

from pocketmq.client.errors import (
    SHUT_DOWN,
    NotRunning,
    RemotingClosed,
    RemotingError,
    SendError,
    once_more,
)
from pocketmq.client.producer.batch import BatchPart, batch_properties
from pocketmq.client.producer.outage_log import LostPosts
from pocketmq.client.send_result import SendResult
from pocketmq.client.validation import goes_alone
from pocketmq.message.identity import new_unique_id
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.codes import ResponseCode

#: The largest batch body, bytes. Buffers below 128 KiB come from the allocator's heap, larger ones
#: from fresh pages, which cost a fifth of the CPU time of a message of 1 KiB (bench.sends).
MAX_BATCH_BYTES = 120_000
#: The lowest limit that `Accumulator.limit` sets, bytes.
MIN_BATCH_BYTES = 8192
#: Memory that a message with a small body takes in addition to it, bytes.
OVERHEAD = 300

#: For bodies of at least this size in bytes, the cost of a separate request is relatively small.
SMALL_BODY = 4096

#: Answers to a batch larger than maxMessageSize: of pocketmq's broker, and of the official one.
_TOO_LARGE = (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_ERROR)

SendBatch = Callable[[BatchPart, MessageQueue | None], Awaitable[list[SendResult]]]
SendAlone = Callable[[Message, str, MessageQueue | None, float, str], Awaitable[SendResult]]
#: Topic, queue, and whether its batches are sent one after another.
Key = tuple[str, MessageQueue | None, bool]


class Batch:
    """A batch from its first message to its answer."""

    __slots__ = ("done", "due", "error", "key", "part", "results", "timer", "waiters")

    def __init__(self, key: Key, wait_stored: bool, done: asyncio.Future[None]) -> None:
        self.key = key
        self.part = BatchPart(key[0], wait_stored)
        self.done = done
        self.waiters: list[asyncio.Future[None]] = []
        self.due = False
        self.timer: asyncio.Handle | None = None
        self.results: list[SendResult] = []
        self.error: RemotingError | None = None

    @property
    def weight(self) -> int:
        """Approximate memory of its messages, bytes."""
        return self.part.body.size + OVERHEAD * len(self.part.msg_ids)


class Posted(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A posted message: awaiting it returns its SendResult or raises its error, at any time and any
    number of times. The message is sent whether or not it is awaited."""

    # A struct is created in a third of the time. It is in no reference cycle (with an error that is
    # raised it would be), so the garbage collector can skip the thousands that an application may
    # keep.
    _batch: Batch
    _index: int
    msg_id: str

    def done(self) -> bool:
        """Whether awaiting it would return at once."""
        return self._batch.done.done()

    @property
    def result(self) -> SendResult | None:
        """The result; None before the answer, and after a failure."""
        results = self._batch.results
        return results[self._index] if results else None

    @property
    def error(self) -> RemotingError | None:
        """The error; None before a failure."""
        return self._batch.error

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the batch is answered or has failed."""
        self._batch.done.add_done_callback(lambda _: callback())

    def __await__(self) -> Generator[Any, None, SendResult]:
        batch = self._batch
        if not batch.done.done():
            # One future per caller: cancelling one caller must not cancel the others.
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            batch.waiters.append(waiter)
            yield from waiter
        if batch.error is not None:
            raise once_more(batch.error)
        return batch.results[self._index]


class PostedAlone(msgspec.Struct, eq=False):
    """A posted message that is sent alone; awaited like Posted. `waiters`: current callers."""

    task: asyncio.Task[SendResult]
    waiters: int = 0

    def done(self) -> bool:
        """Whether awaiting it would return at once."""
        return self.task.done()

    def __await__(self) -> Generator[Any, None, SendResult]:
        return self._answer().__await__()

    async def _answer(self) -> SendResult:
        task = self.task
        if not task.done():
            self.waiters += 1
            try:
                await asyncio.wait((task,))
            finally:
                self.waiters -= 1
        if task.cancelled():
            raise RemotingClosed("the producer was shut down")
        if (error := task.exception()) is not None:
            raise error.with_traceback(None)
        return task.result()


class Accumulator:
    """The open batches of one producer.

    `send(part, queue)` sends one batch; `spawn` starts a task that the client's shutdown cancels.
    `lost` logs failures that no caller awaits. `linger`: seconds, 0 for the rest of this turn of
    the event loop. `max_bytes`: of a batch body, at most MAX_BATCH_BYTES. `max_buffered`: limit of
    the unanswered bytes.

    Attributes:
        buffered: unanswered bytes.
        waiting: callers of `room`, in order.
    """

    def __init__(
        self,
        send: SendBatch,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        lost: LostPosts,
        *,
        linger: float,
        max_bytes: int,
        max_buffered: int,
    ) -> None:
        self.buffered = 0
        self._send = send
        self._spawn = spawn
        self._lost = lost
        self._linger = linger
        self._max_bytes = min(max_bytes, MAX_BATCH_BYTES)
        self.max_buffered = max_buffered
        self._growing: dict[Key, Batch] = {}
        #: Queues with a batch in flight, and the batches to be sent after it.
        self._following: dict[Key, deque[Batch]] = {}
        self._unanswered: set[asyncio.Future[Any]] = set()
        self.waiting: deque[asyncio.Future[None]] = deque()

    @property
    def full(self) -> bool:
        """Whether a message has to wait for `room` before it may be added."""
        return self.buffered >= self.max_buffered or bool(self.waiting)

    @property
    def pending(self) -> int:
        """Number of messages that are not sent yet."""
        batches = [*self._growing.values(), *(b for q in self._following.values() for b in q)]
        return sum(len(batch.part.msg_ids) for batch in batches)

    def add(
        self,
        message: Message,
        queue: MessageQueue | None,
        extra: str = "",
        in_order: bool = True,
    ) -> Posted:
        """Add a checked message. `extra`: encoded system properties. `in_order`: send the batches
        of `queue` one after another. Raises InvalidMessage for the message's properties."""
        msg_id = new_unique_id()
        properties = batch_properties(message, msg_id, extra)
        key = (message.topic, queue, in_order)
        batch = self._growing.get(key)
        size = 0
        if batch is not None:
            part = batch.part
            if part.wait_stored is message.wait_stored:
                size = part.add(message, properties, msg_id, self._max_bytes)
            if not size:
                self._close(batch)
                batch = None
        if batch is None:
            batch = self._open(key, message.wait_stored)
            part = batch.part
            size = part.add(message, properties, msg_id, self._max_bytes)
        self.buffered += size + OVERHEAD
        if part.body.size >= self._max_bytes:
            self._close(batch)
        return Posted(batch, len(part.msg_ids) - 1, msg_id)

    def limit(self, max_bytes: int) -> None:
        """Limit the bodies of later batches to `max_bytes`, but not below MIN_BATCH_BYTES."""
        self._max_bytes = min(self._max_bytes, max(max_bytes, MIN_BATCH_BYTES))

    async def room(self) -> None:
        """Wait until a message may be added; callers are served in order."""
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(room)
        try:
            await room
        finally:
            # Each caller wakes the next, after its message is counted.
            asyncio.get_running_loop().call_soon(self._wake)

    def count(self, task: asyncio.Task[SendResult], topic: str) -> PostedAlone:
        """Make `flush` wait also for a message that is sent alone."""
        posted = PostedAlone(task)
        self._unanswered.add(task)
        task.add_done_callback(lambda _: self._answered_alone(posted, topic))
        return posted

    async def flush(self) -> None:
        """Send all batches now, and wait until all are answered."""
        for batch in list(self._growing.values()):
            self._close(batch)
        if self._unanswered:
            await asyncio.wait(tuple(self._unanswered))

    def abandon(self) -> None:
        """Fail the messages that are not sent yet, at the end of the producer."""
        for room in self.waiting:
            if not room.done():
                room.set_exception(NotRunning("producer", SHUT_DOWN))
        self.waiting.clear()
        for batch in list(self._growing.values()):
            del self._growing[batch.key]
            if batch.timer is not None:
                batch.timer.cancel()
            self._answered(batch, RemotingClosed("the producer was shut down"))
        self._lost.end()

    def _open(self, key: Key, wait_stored: bool) -> Batch:
        loop = asyncio.get_running_loop()
        batch = self._growing[key] = Batch(key, wait_stored, loop.create_future())
        self._unanswered.add(batch.done)
        if self._linger:
            batch.timer = loop.call_later(self._linger, self._expire, batch)
        else:
            batch.timer = loop.call_soon(self._expire, batch)
        return batch

    def _expire(self, batch: Batch) -> None:
        batch.due = True
        if batch.key not in self._following:
            self._close(batch)

    def _close(self, batch: Batch) -> None:
        """Close a batch; it is sent at once, or after the batches of its queue before it."""
        key = batch.key
        del self._growing[key]
        if batch.timer is not None:
            batch.timer.cancel()
        if key[1] is None or not key[2]:
            self._spawn(self._carry(batch), f"batch to {key[0]}")
        elif (following := self._following.get(key)) is not None:
            following.append(batch)
        else:
            self._following[key] = deque((batch,))
            self._spawn(self._carry_in_order(key), f"batches to {key[0]}")

    async def _carry_in_order(self, key: Key) -> None:
        following = self._following[key]
        try:
            while following:
                await self._carry(following.popleft())
                growing = self._growing.get(key)
                if not following and growing is not None and growing.due:
                    self._close(growing)
        finally:
            del self._following[key]
            for batch in following:
                self._answered(batch, RemotingClosed("the producer was shut down"))

    async def _carry(self, batch: Batch) -> None:
        error: RemotingError = RemotingClosed("the producer was shut down")
        try:
            batch.results = await self._send(batch.part, batch.key[1])
        except RemotingError as failure:
            error = failure
        finally:
            self._answered(batch, None if batch.results else error)

    def _answered(self, batch: Batch, error: RemotingError | None) -> None:
        topic, queue, _ = batch.key
        if error is not None:
            # Only messages that nobody awaits are logged: waiters get the error.
            unseen = len(batch.part.msg_ids) - len(batch.waiters)
            if unseen > 0:
                self._lost.failed(topic, unseen, error, queue)
        elif self._lost.known:
            self._lost.stored(topic)
        batch.error = error
        batch.part.body.clear()
        self.buffered -= batch.weight
        self._unanswered.discard(batch.done)
        if not batch.done.done():
            batch.done.set_result(None)
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_result(None)
        batch.waiters.clear()
        self._wake()

    def _answered_alone(self, posted: PostedAlone, topic: str) -> None:
        task = posted.task
        self._unanswered.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not posted.waiters:
            self._lost.failed(topic, 1, error)
        elif error is None and self._lost.known and not task.cancelled():
            self._lost.stored(topic)

    def _wake(self) -> None:
        while self.waiting and self.buffered < self.max_buffered:
            room = self.waiting.popleft()
            if not room.done():
                room.set_result(None)
                return


class ConcurrentSends:
    """Puts sends of one producer that begin in the same turn of the event loop into a batch.

    A send without other concurrent ones is sent as a single message. Others are accumulated for the
    rest of the turn, in one batch per chosen queue and one for the rest; no send waits longer.
    Tasks that each send one message after another are answered together and continue together, so
    they soon share their requests, which are larger the more tasks there are.

    `alone(message, unique id, queue, deadline, extra)` makes a single send.

    `below`: limit of the bodies in bytes. Larger ones may have to be compressed, and batches are
    not.
    """

    def __init__(self, accumulator: Accumulator, alone: SendAlone, below: int) -> None:
        self._accumulator = accumulator
        self._alone = alone
        self._below = min(below, SMALL_BODY)

    def takes(self, message: Message) -> bool:
        """Return whether a checked message may share a request."""
        return (
            len(message.body) < self._below
            and not self._accumulator.full
            and not goes_alone(message)
        )

    async def send(
        self, message: Message, queue: MessageQueue | None, deadline: float, extra: str = ""
    ) -> SendResult:
        """Send a message for which `takes` is true, to `queue` or to any. `extra`: encoded system
        properties. If a broker refuses the batch as too large, the message is sent again alone, and
        later batches are smaller.

        `deadline`: of that second send, seconds of time.monotonic. Raises SendError, NoRouteInfo,
        and InvalidMessage for the message's properties.
        """
        posted = self._accumulator.add(message, queue, extra, False)
        batch = posted._batch
        # What awaiting `posted` does, without its frame.
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        batch.waiters.append(waiter)
        await waiter
        error = batch.error
        if error is None:
            return batch.results[posted._index]
        part = batch.part
        alone = len(part.msg_ids) == 1
        if alone or not isinstance(error, SendError) or error.code not in _TOO_LARGE:
            raise once_more(error)
        self._accumulator.limit(part.body.size // 2)
        return await self._alone(message, posted.msg_id, queue, deadline, extra)
