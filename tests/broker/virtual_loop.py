"""An event loop whose time passes only while it has nothing to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable
from typing import Any, Final, TypeVar
from unittest import mock

from pocketmq.broker.waiting import turn_queue

T = TypeVar("T")

_MOMENT: Final = 1e-6


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for a timer, it lets the time pass."""

    now = 1_000.0

    def select(self, timeout: float | None = None) -> Any:
        # Without a timer to wait for, only a thread can have something to say.
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Sleeps and timers end at once, in their order, by a clock of their own."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


class VirtualRunner:
    """Runs one coroutine after another on a `VirtualLoop`; what they leave behind goes on with the
    next one."""

    def __init__(self) -> None:
        # Steps take real time, longer on a busy machine; a rest behind them would be virtual time.
        self._no_rests = mock.patch.object(turn_queue, "LONGEST_REST", 0.0)
        self._no_rests.start()
        self._runner = asyncio.Runner(loop_factory=VirtualLoop)

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self._runner.run(awaited())

    def settle(self) -> None:
        """Let everything happen that needs no time."""
        # The loop lets time pass when it has nothing else to do.
        self.run(asyncio.sleep(_MOMENT))

    def close(self) -> None:
        """Cancel what runs, and close the loop."""
        self._runner.close()
        self._no_rests.stop()

    @property
    def now(self) -> float:
        """Seconds."""
        return self._runner.get_loop().time()
