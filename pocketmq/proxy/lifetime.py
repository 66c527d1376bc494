"""Start and stop of the parts of a proxy."""

from __future__ import annotations

from typing import Self

from pocketmq.remoting.serving.stop_steps import StopSteps


class Lifetime:
    """Something that is started and stopped, and can be an `async with` block.

    A subclass has `start`, which registers in `_stack` what `stop` has to undo.
    """

    _stack: StopSteps | None = None

    async def start(self) -> None:
        """Start it."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Stop it. Idempotent."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()
