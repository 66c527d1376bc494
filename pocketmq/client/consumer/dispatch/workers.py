"""Worker coroutines: limit the concurrent handlers without a task for each message.

A worker takes messages as long as there are any, up to a burst, so a handler that never waits costs
only a call. One worker is woken per turn of the event loop: if it does not wait, it consumes all
messages of the turn, and the loop can read the next pull; if it waits, the next turn wakes another
one.
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

#: Messages that a worker consumes before it yields to others.
BURST = 32


class _Worker:
    """One worker; `message`: its current message; `expired`: whether that took too long."""

    __slots__ = ("expired", "idle", "message", "task")

    def __init__(self) -> None:
        self.message: ConsumedMessage | None = None
        self.expired = False
        self.idle: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None]


class Workers:
    """Up to `limit` workers that `consume` the messages of a service.

    `overdue` is called with a message whose handler `expire` has cancelled, `lost` with the message
    of a worker that ended unexpectedly.
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
        """`cancel_timeout`: seconds that a cancelled handler may take to end."""
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
        """Wake a worker: messages are ready."""
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
            return  # the next worker that becomes free continues
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
                        worker.message = None  # `expire` must not cancel what follows
                        await self._overdue(begun.message)
                    if worker.expired:
                        self._forgiven(worker)  # the handler ended nevertheless
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
        """Redeliver the message of a worker that ended unexpectedly, and start another worker."""
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
        """Return whether only `expire` cancelled the worker; if so, undo the cancellation."""
        if not worker.expired:
            return False
        worker.expired = False
        return worker.task.uncancel() == 0

    def expire(self, age: float) -> None:
        """Cancel handlers that have run for `age` seconds."""
        limit = monotonic() - age
        for worker in self._workers:
            message = worker.message
            if message is not None and message.began <= limit and not worker.expired:
                worker.expired = True
                worker.task.cancel()

    def closed_by(self, task: asyncio.Task[Any] | None) -> None:
        """Record that a task waits for the shutdown: `drain` does not wait for its handler."""
        self.closers.add(task)
        self._calm.set()

    async def drain(self, timeout: float) -> None:
        """Start no more handlers, wait up to `timeout` seconds for the running ones, then cancel
        them."""
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
        """Make a current or later `drain` cancel the running handlers at once."""
        self._hurried = True
        self._calm.set()
