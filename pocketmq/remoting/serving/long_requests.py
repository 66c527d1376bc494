"""Requests that take long: their work is divided into steps, and other requests are handled between
the steps.

A registration with fifty thousand topics takes two tenths of a second, and any client may send one.
One request works at a time: that of the owner (a user at an address), and of its connections, whose
last one was served the longest ago.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from time import perf_counter
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.budget import Budget
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.request import Request

log = logging.getLogger("pocketmq.remoting")

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that ends a step with each `yield`, after a millisecond or so, and returns its result."""

TURN: Final = 0.002
"""Seconds of steps in one turn of the event loop; the last step may take longer."""

MAX_BYTES: Final = 192 << 20
"""Memory of all requests that wait; `Budget` gives a connection more than the longest frame."""

LEAST_BYTES: Final = 192 << 10
"""What a request counts as at least, so that a thousand wait at most."""


class Done(NamedTuple, Generic[T]):
    """What steps return."""

    result: T


def _step(steps: Steps[T]) -> Done[T] | None:
    """Execute a step; return the result if it was the last one."""
    try:
        next(steps)
    except StopIteration as end:
        return Done(end.value)
    return None


def at_once(steps: Steps[T]) -> T:
    """Execute all steps, and return the result."""
    while (done := _step(steps)) is None:
        pass
    return done.result


async def in_turns(steps: Steps[T]) -> T:
    """Execute a step in each turn of the event loop, and return the result."""
    while (done := _step(steps)) is None:  # noqa: ASYNC110 (there is no event)
        await asyncio.sleep(0)
    return done.result


def begin(steps: Steps[None]) -> None:
    """Execute the first step, and one of the others in each turn of the event loop."""
    if _step(steps) is None:
        asyncio.get_running_loop().call_soon(begin, steps)


def in_pieces(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield the items, at most `most` at a time."""
    for at in range(0, len(items), most):
        yield items[at : at + most]


class LongRequests:
    """Does the work of these requests. Gives way to `light`, whose times are those of `clock`."""

    def __init__(
        self,
        light: LightClients | None = None,
        *,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._light = light or LightClients()
        self._clock = clock
        self._budget = Budget(max_bytes, "requests that take long", "bytes", LimitedLog(log))
        self._working = False
        self._waiting: list[tuple[Request[Any], asyncio.Future[None]]] = []
        # When an owner or a connection that waits was last served, as the number of the request.
        self._served: dict[Any, int] = {}
        self._number = 0
        # The requests of a connection that were begun and are not done.
        self._begun: dict[Any, int] = {}

    async def run(self, request: Request[Any], steps: Steps[T]) -> T:
        """Execute the steps when it is the request's turn, and return their result. They end early
        if the connection is closed.

        Raises:
            RemotingError: too much waits, or the connection was closed. And what a step raises.
        """
        size = self._take(request)
        return await self._in_line(request, steps, size, to_the_end=False)

    def begin(self, request: Request[Any], steps: Steps[T]) -> Done[T] | Awaitable[T]:
        """Execute as many steps as fit into a turn at once, unless an earlier request of the
        connection was begun and is not done. Return their result, or what executes the others when
        it is the request's turn, even if the connection is closed; that must be awaited.

        Raises:
            RemotingError: too much waits; nothing was executed. And what a step raises.
        """
        size = self._take(request)
        done: Done[T] | None = None
        if request.connection not in self._begun:
            try:
                done = self._execute(steps)[0]
            except BaseException:
                self._budget.give_back(request, size)
                raise
        if done is None:
            self._begun[request.connection] = self._begun.get(request.connection, 0) + 1
            return self._finish(request, steps, size)
        self._budget.give_back(request, size)
        return done

    async def _finish(self, request: Request[Any], steps: Steps[T], size: int) -> T:
        begun, connection = self._begun, request.connection
        try:
            return await self._in_line(request, steps, size, to_the_end=True)
        finally:
            begun[connection] -= 1
            if not begun[connection]:
                del begun[connection]

    def _take(self, request: Request[Any]) -> int:
        # Not views of all that was read with it.
        request.head, request.body = bytes(request.head), bytes(request.body)
        size = max(len(request.head) + len(request.body), LEAST_BYTES)
        if not self._budget.take(request, size):
            raise RemotingError(ResponseCode.SYSTEM_BUSY, "too many requests that take long wait")
        return size

    async def _in_line(
        self, request: Request[Any], steps: Steps[T], size: int, *, to_the_end: bool
    ) -> T:
        try:
            await self._turn_of(request)
            try:
                while to_the_end or not request.connection.closed:
                    done, rest = self._execute(steps)
                    if done is not None:
                        return done.result
                    await asyncio.sleep(rest)
            finally:
                self._next()
        finally:
            self._budget.give_back(request, size)
        raise RemotingError(ResponseCode.SYSTEM_ERROR, "the connection was closed")

    def _execute(self, steps: Steps[T]) -> tuple[Done[T] | None, float]:
        """Take a turn. Return the result once there is one, and the seconds until the next turn:
        while others are active, they get as much time."""
        began = now = self._clock()
        while now - began < TURN:
            done = _step(steps)
            if done is not None:
                return done, 0
            now = self._clock()
        return None, now - began if self._light.active(now) else 0

    async def _turn_of(self, request: Request[Any]) -> None:
        if not self._working:
            self._working = True
            self._serve(request)
            return
        waits = request, asyncio.get_running_loop().create_future()
        self._waiting.append(waits)
        try:
            await waits[1]
        except BaseException:
            if waits in self._waiting:
                self._waiting.remove(waits)
            else:
                self._next()
            raise

    def _next(self) -> None:
        self._working = bool(self._waiting)
        if not self._waiting:
            self._served.clear()
            return
        served = self._served
        first = min(
            self._waiting,
            key=lambda each: [served.get(key, 0) for key in _keys(each[0])],
        )
        self._waiting.remove(first)
        self._served = {
            key: served[key] for each, _ in self._waiting for key in _keys(each) if key in served
        }
        self._serve(first[0])
        first[1].set_result(None)

    def _serve(self, request: Request[Any]) -> None:
        self._number += 1
        self._served |= dict.fromkeys(_keys(request), self._number)


def _keys(request: Request[Any]) -> tuple[Any, Any]:
    return request.owner, request.connection
