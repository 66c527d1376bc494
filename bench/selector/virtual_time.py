"""An event loop whose time is a number: sleeping costs nothing, and every run is the same."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["run"]

T = TypeVar("T")


class _Jump(selectors.SelectSelector):
    """Instead of waiting, moves the loop's time to its next timer."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits and no timer is left: a deadlock")
        self.now += max(timeout, 0.0)
        return []


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


def run(work: Awaitable[T]) -> T:
    """The result of `work`, begun at time 0 of a loop of its own."""

    async def main() -> T:
        return await work

    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(main())
