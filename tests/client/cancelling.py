"""Cancelling a call at each of its awaits, and what must hold after that, whatever was called."""

from __future__ import annotations

import ast
import asyncio
import inspect
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pocketmq
from tests.client.waiting import until

T = TypeVar("T")

ASYNC_NAMES = ("__aenter__", "__aexit__", "__anext__")


def public_coroutines() -> dict[str, Any]:
    """Every coroutine function and asynchronous generator that a program can call on a public
    class, as Class.method of the class that is public first."""
    found: dict[Any, str] = {}
    for cls in public_classes():
        for name in dir(cls):
            function = inspect.getattr_static(cls, name)
            function = getattr(function, "__func__", function)
            if name.startswith("_") and name not in ASYNC_NAMES:
                continue
            if is_awaited(function):
                found.setdefault(function, f"{cls.__name__}.{name}")
    return {name: function for function, name in found.items()}


def is_awaited(function: Any) -> bool:
    """Whether a function is awaited, or what it returns is iterated over by `async for`."""
    returns = str(getattr(function, "__annotations__", {}).get("return", ""))
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
        or returns.startswith("AsyncIterator")
    )


def public_classes() -> Iterator[type]:
    """The classes of pocketmq and of its public modules; base classes before derived ones."""
    found: dict[type, None] = {}
    stub = Path(pocketmq.__file__).with_suffix(".pyi")
    for imported in ast.parse(stub.read_text()).body:
        assert isinstance(imported, ast.ImportFrom)
        for alias in imported.names:
            value = getattr(pocketmq, alias.name)
            values = [value]
            if isinstance(value, ModuleType) and value.__name__ != "pocketmq.sync":
                names = getattr(value, "__all__", None) or dir(value)
                values = [getattr(value, each) for each in names if not each.startswith("_")]
            found.update(dict.fromkeys(v for v in values if inspect.isclass(v)))
    return iter(sorted(found, key=lambda cls: (len(cls.__mro__), cls.__name__)))


class At:
    """Where a call is cancelled: at its `step`-th suspension (0: nowhere), before what it waits
    for has happened, or `late`: when it has happened and the call has not gone on yet."""

    def __init__(self, step: int = 0, *, late: bool = False) -> None:
        self.step = step
        self.late = late
        #: How often the call was suspended.
        self.suspensions = 0
        self.cancelled = False

    def __repr__(self) -> str:
        return f"{'after' if self.late else 'at'} suspension {self.step}"

    async def run(self, call: Awaitable[T]) -> T | None:
        """Return the call's result; None if it was cancelled. A call that goes on after it was
        cancelled, or that raises something else, is an error."""
        task = asyncio.create_task(self._stepped(call), name="cancelled call")
        await asyncio.wait([task])
        self.cancelled = task.cancelled()
        if self.cancelled:
            return None
        result = task.result()
        assert not task.cancelling(), f"the call took no notice of its cancellation {self!r}"
        return result

    async def _stepped(self, call: Awaitable[T]) -> T:
        result: T = await _Steps(self, call)
        return result


class _Steps:
    def __init__(self, at: At, call: Awaitable[Any]) -> None:
        self._at = at
        self._call = call

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._call.__await__()
        task = asyncio.current_task()
        assert task is not None
        go_on: Callable[[], Any] = lambda: next(steps)  # noqa: E731
        while True:
            try:
                waits_for = go_on()
            except StopIteration as end:
                return end.value
            self._at.suspensions += 1
            if self._at.suspensions == self._at.step:
                if not self._at.late:
                    task.cancel()
                elif waits_for is None:
                    asyncio.get_running_loop().call_soon(task.cancel)
                else:
                    # Before the task's own callback is added.
                    waits_for.add_done_callback(lambda _: task.cancel())
            try:
                yield waits_for
            except BaseException as error:
                thrown = error
                go_on = lambda: steps.throw(thrown)  # noqa: E731, B023 (called at once)
            else:
                go_on = lambda: next(steps)  # noqa: E731


async def cancel_everywhere(
    scenario: Callable[[At], Coroutine[Any, Any, None]], *, every: bool, seed: str
) -> int:
    """Run a scenario uncancelled, and once for each point at which its call can be cancelled: for
    `every` one, else for the first, the last and one between. Return how many were cancelled."""
    whole = At()
    await _run(scenario, whole)
    assert not whole.cancelled
    steps = {*range(1, whole.suspensions + 1)}
    if not every and len(steps) > 3:
        between = random.Random(seed).randrange(2, whole.suspensions)
        steps = {1, between, whole.suspensions}
    cancelled = 0
    for step in sorted(steps):
        for late in (False, True):
            at = At(step, late=late)
            await _run(scenario, at)
            cancelled += at.cancelled
    return cancelled


async def _run(
    scenario: Callable[[At], Coroutine[Any, Any, None]], at: At, *, again: bool = False
) -> None:
    tasks, threads, sockets = asyncio.all_tasks(), _client_threads(), _sockets()
    try:
        async with asyncio.timeout(30):
            await scenario(at)

        # What a cancelled call has to end may end a moment later, and so may a server's sockets.
        def left() -> set[asyncio.Task[Any]]:
            return asyncio.all_tasks() - tasks

        with suppress(TimeoutError):
            await until(lambda: not left() and _sockets() <= sockets)
            await until(lambda: _client_threads() <= threads)
        assert not left()
        assert _client_threads() <= threads
        if _sockets() > sockets:
            # The servers of this process may have connected to each other again meanwhile. What a
            # cancelled call leaves open, it leaves open each time.
            assert not again
            await _run(scenario, At(at.step, late=at.late), again=True)
    except BaseException as error:
        error.add_note(f"the call was cancelled {at!r}")
        raise


def _client_threads() -> int:
    return sum(thread.name == "pocketmq.sync" for thread in threading.enumerate())


def _sockets() -> int:
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            count += str(link.readlink()).startswith("socket:")
    return count
