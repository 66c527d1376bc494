"""Worker coroutines: as many messages in work at a time as allowed, without a task for each.

A worker takes messages for as long as there are any, up to a burst, so that a handler that never
waits costs one call. Workers are woken one per turn of the event loop: while the first of them does
not wait, the turn's messages are its own, and the loop comes to read what was pulled; when it
waits, the next turn wakes another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from typing import Any

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.dispatch.consume_service import Consume, ConsumeService

log = logging.getLogger(__name__)

#: Messages that a worker works on before others have their turn.
BURST = 32


class _Worker:
    """One worker; `message` is what it works on, `expired` whether that took too long."""

    __slots__ = ("expired", "idle", "message", "task")

    def __init__(self) -> None:
        self.message: ConsumedMessage | None = None
        self.expired = False
        self.idle: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None]


class Workers:
    """Up to `limit` workers that `consume` the messages of a service.

    `overdue` is called with a message whose work was ended by `expire`, `lost` with one whose
    worker ended.
    """

    def __init__(
        self,
        limit: int,
        service: ConsumeService,
        consume: Consume,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        overdue: Callable[[ConsumedMessage], Awaitable[None]],
        lost: Callable[[ConsumedMessage, BaseException], None],
        cancel_timeout: float,
    ) -> None:
        """`cancel_timeout`: how long a handler that was cancelled may take to end, seconds."""
        if limit < 1:
            raise ValueError(f"concurrency must be at least 1, not {limit}")
        self._limit = limit
        self._service = service
        self._consume = consume
        self._spawn = spawn
        self._overdue = overdue
        self._lost = lost
        self._cancel_timeout = cancel_timeout
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._due = False
        self._closing = False
        self._hurried = False
        self._calm = asyncio.Event()
        #: Tasks that wait for the end of the consumer.
        self.closers: set[asyncio.Task[Any] | None] = set()

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks of all workers."""
        return [worker.task for worker in self._workers]

    def wake(self) -> None:
        """There is something to take."""
        if not self._due and not self._closing:
            self._due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._due = False
        if self._closing or not self._service.has_ready:
            return
        if self._idle:
            worker = self._idle.pop()
            if worker.idle is not None and not worker.idle.done():
                worker.idle.set_result(None)
        elif len(self._workers) < self._limit:
            worker = _Worker()
            self._workers.add(worker)
            worker.task = self._spawn(self._work(worker), "consume")
        else:
            return  # the next worker to end its work wakes again
        self.wake()

    async def _work(self, worker: _Worker) -> None:
        run, consume = self._service.run, self._consume
        try:
            while not self._closing:
                left = BURST
                while (begun := run(consume, left)) is not None:
                    worker.message, rest, left = begun
                    try:
                        await rest
                    except asyncio.CancelledError:
                        if not self._forgiven(worker):
                            raise
                        worker.message = None  # what follows is not to be ended as well
                        await self._overdue(begun.message)
                    if worker.expired:
                        self._forgiven(worker)  # the work ended all the same
                    worker.message = None
                if self._closing:
                    return
                worker.idle = asyncio.get_running_loop().create_future()
                self._idle.append(worker)
                if self._service.has_ready:
                    self.wake()
                await worker.idle
        except BaseException as error:
            self._ended(worker, error)
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
                raise
        finally:
            worker.message = None
            self._workers.discard(worker)
            if worker in self._idle:
                self._idle.remove(worker)
            self._calm.set()

    def _ended(self, worker: _Worker, error: BaseException) -> None:
        """Have the message of a worker that ended unexpectedly redelivered, and its place taken."""
        if self._closing or self._service.stopped:
            return
        if asyncio._get_running_loop() is None:
            return  # the program has ended without a shutdown
        log.error("consumer worker ended with %r; starting another one", error, exc_info=error)
        if worker.message is not None:
            self._lost(worker.message, error)
        self.wake()

    @staticmethod
    def _forgiven(worker: _Worker) -> bool:
        """Whether the worker was only cancelled by `expire`, which is over then."""
        if not worker.expired:
            return False
        worker.expired = False
        return worker.task.uncancel() == 0

    def expire(self, age: float) -> None:
        """End the work that lasts for `age` seconds already."""
        limit = monotonic() - age
        for worker in self._workers:
            message = worker.message
            if message is not None and message.began <= limit and not worker.expired:
                worker.expired = True
                worker.task.cancel()

    def closed_by(self, task: asyncio.Task[Any] | None) -> None:
        """The task waits until all has ended: `drain` leaves its own work alone."""
        self.closers.add(task)
        self._calm.set()

    async def drain(self, timeout: float) -> None:
        """Let the work under way end, for `timeout` seconds; then cancel it. Nothing new begins."""
        self._closing = True
        for worker in list(self._idle):
            worker.task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._hurried and self._late():
                    self._calm.clear()
                    await self._calm.wait()
        late = self._late()
        for worker in late:
            worker.task.cancel()
        if late:
            log.warning(
                "handlers that have not ended are cancelled, and their messages will be "
                "redelivered: %d",
                len(late),
            )
            await asyncio.wait([worker.task for worker in late], timeout=self._cancel_timeout)

    def _late(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.task not in self.closers]

    def hurry(self) -> None:
        """Have `drain`, now or later, cancel the work under way at once."""
        self._hurried = True
        self._calm.set()
