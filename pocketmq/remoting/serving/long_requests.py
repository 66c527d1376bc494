"""Requests that take long: their work is divided into steps, and other requests are handled between
the steps.

A registration with fifty thousand topics takes two tenths of a second, and any client may send one.
Turns go to the owner (a user, or the address of those who sign nothing) who has had the least time,
and to the connection of theirs that has: a parent of twenty children does not wait for one of a
thousand. Of requests that must not meet (`run`), one works at a time: that of the owner, and of
their connections, whose last one was served the longest ago.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from time import perf_counter
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.budget import Budget
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.request import Request, owner_of

log = logging.getLogger("pocketmq.remoting")

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that ends a step with each `yield`, after a millisecond or so, and returns its result."""

TURN: Final = 0.002
"""Seconds of steps in one turn of the event loop; the last step may take longer."""

MAX_BYTES: Final = 192 << 20
"""Memory of all requests that wait; `Budget` gives a connection more than the longest frame."""

LEAST_BYTES: Final = 192 << 10
"""What a request that runs alone counts as at least, so that a thousand wait at most."""

LEAST_BEGUN: Final = 16 << 10
"""The same of one that was begun. There may be many small ones of a connection: a pause of the
machine during the first makes the others wait."""


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


class _Work:
    """A request that has turns; `result` or `error` is set when it has `ended`. The future does not
    have them: an error refers to the frames that refer to the future."""

    __slots__ = ("connection", "ended", "error", "owner", "result", "steps", "to_the_end")

    def __init__(self, request: Request[Any], steps: Steps[Any], *, to_the_end: bool) -> None:
        self.owner, self.connection = _keys(request)
        self.steps = steps
        self.to_the_end = to_the_end
        self.result: Any = None
        self.error: Exception | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Shares:
    """What waits for turns, by owner and connection, and the time that each has had; who begins to
    wait has had as much as the one with the least."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Any, deque[_Work]]] = {}
        # Seconds of the owners that wait, and of the connections of each.
        self._of_owners: dict[str, float] = {}
        self._of_connections: dict[str, dict[Any, float]] = {}

    def add(self, work: _Work) -> None:
        """Let a request wait behind those of its connection."""
        connection, owner = work.connection, work.owner
        if owner not in self._waiting:
            self._of_owners[owner] = min(self._of_owners.values(), default=0.0)
        connections = self._waiting.setdefault(owner, {})
        used = self._of_connections.setdefault(owner, {})
        if connection not in connections:
            used[connection] = min(used.values(), default=0.0)
        connections.setdefault(connection, deque()).append(work)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take(self) -> _Work:
        """Return whose turn it is, if anything waits."""
        owner = min(self._of_owners, key=self._of_owners.__getitem__)
        used = self._of_connections[owner]
        return self._waiting[owner][min(used, key=used.__getitem__)][0]

    def count(self, work: _Work, seconds: float) -> None:
        """Count the time of a turn."""
        self._of_owners[work.owner] += seconds
        self._of_connections[work.owner][work.connection] += seconds

    def remove(self, work: _Work) -> None:
        """Remove a request that has ended."""
        owner = work.owner
        connections, used = self._waiting[owner], self._of_connections[owner]
        connections[work.connection].remove(work)
        if not connections[work.connection]:
            del connections[work.connection], used[work.connection]
        if not connections:
            del self._waiting[owner], self._of_owners[owner], self._of_connections[owner]


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
        self._shares = _Shares()
        self._turning = False  # `_turn` is scheduled
        self._working = False
        self._waiting: list[tuple[Request[Any], asyncio.Future[None]]] = []
        # When an owner or a connection that waits was last served, as the number of the request.
        self._served: dict[Any, int] = {}
        self._number = 0
        # The requests of a connection that were begun and are not done.
        self._begun: dict[Any, int] = {}

    async def run(self, request: Request[Any], steps: Steps[T]) -> T:
        """Execute the steps in turns, once no other such request works, and return their result.
        They end early if the connection is closed.

        Raises:
            RemotingError: too much waits, or the connection was closed. And what a step raises.
        """
        size = self._take(request, LEAST_BYTES)
        try:
            await self._turn_of(request)
            try:
                return await self._in_turns(request, steps, to_the_end=False)
            finally:
                self._next()
        finally:
            self._budget.give_back(request, size)

    def begin(self, request: Request[Any], steps: Steps[T]) -> Done[T] | Awaitable[T]:
        """Execute as many steps as fit into a turn at once, unless an earlier request of the
        connection was begun and is not done. Return their result, or what executes the others in
        turns, even if the connection is closed; that must be awaited.

        Raises:
            RemotingError: too much waits; nothing was executed. And what a step raises.
        """
        size = self._take(request, LEAST_BEGUN)
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
            return await self._in_turns(request, steps, to_the_end=True)
        finally:
            self._budget.give_back(request, size)
            begun[connection] -= 1
            if not begun[connection]:
                del begun[connection]

    def _take(self, request: Request[Any], least: int) -> int:
        # Not views of all that was read with it.
        request.head, request.body = bytes(request.head), bytes(request.body)
        size = max(len(request.head) + len(request.body), least)
        if not self._budget.take(request, size):
            raise RemotingError(ResponseCode.SYSTEM_BUSY, "too many requests that take long wait")
        return size

    async def _in_turns(self, request: Request[Any], steps: Steps[T], *, to_the_end: bool) -> T:
        work = _Work(request, steps, to_the_end=to_the_end)
        self._shares.add(work)
        if not self._turning:
            self._turn()
        await work.ended
        error, work.error = work.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error
        result: T = work.result
        return result

    def _turn(self) -> None:
        """Take a turn of the request whose turn it is, and schedule the next one if any waits."""
        work = self._shares.take()
        began, rest, ends = self._clock(), 0.0, True
        try:
            if work.connection.closed and not work.to_the_end:
                raise RemotingError(ResponseCode.SYSTEM_ERROR, "the connection was closed")
            if not work.ended.done():  # else it was cancelled
                done, rest = self._execute(work.steps)
                ends = done is not None
                work.result = done.result if done is not None else None
        except Exception as error:
            work.error = error
        self._shares.count(work, self._clock() - began)
        if ends:
            self._shares.remove(work)
            if not work.ended.done():
                work.ended.set_result(None)
        self._turning = bool(self._shares)
        if self._turning:
            asyncio.get_running_loop().call_later(rest, self._turn)

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


def _keys(request: Request[Any]) -> tuple[str, Any]:
    connection = request.connection
    return owner_of(request.caller, connection.peer[0]), connection
