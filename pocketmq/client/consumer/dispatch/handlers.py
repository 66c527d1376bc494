"""The application's functions that work on messages, one by one or several together."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from pocketmq.client.consumer.consumed_message import ConsumedMessage

__all__ = [
    "MAX_BATCH",
    "AnyHandler",
    "BatchHandler",
    "Batched",
    "Handler",
    "handler_of",
    "is_failure",
]

Handler: TypeAlias = Callable[[ConsumedMessage], Awaitable[object] | object]
"""Works on a message; a plain function is called in the event loop, which waits for it."""

BatchHandler: TypeAlias = Callable[[list[ConsumedMessage]], Awaitable[object] | object]
"""The same for messages of one queue, in its order: at least one, no more than was asked for.

What it returns without an exception for is done, all but what it gave back by `reconsume`. After an
exception all comes again but what it acknowledged by `ack`.
"""

#: Messages for one call, at most (consumeMessageBatchMaxSize).
MAX_BATCH = 1024


class Batched(NamedTuple):
    """A function that gets up to `size` messages."""

    function: BatchHandler
    size: int

    async def work(self, messages: list[ConsumedMessage]) -> object:
        """Call it and wait for it; raises what it raises."""
        result = self.function(messages)
        if inspect.isawaitable(result):
            result = await result
        return result


AnyHandler: TypeAlias = Handler | Batched


def handler_of(function: Handler | BatchHandler | None, batch: int | None) -> AnyHandler | None:
    """What works on a topic's messages; `batch` is how many a call gets, None for one by itself.

    Raises ValueError for a number that is out of range, or that has no function.
    """
    if batch is None:
        return function  # type: ignore[return-value]  # who calls it says which it is
    if not 1 <= batch <= MAX_BATCH:
        raise ValueError(f"batch must be 1 to {MAX_BATCH}, not {batch}")
    if function is None:
        raise ValueError("batch needs a handler")
    return Batched(function, batch)  # type: ignore[arg-type]


def is_failure(error: BaseException) -> bool:
    """Whether work that raised this has failed, rather than been cancelled from outside.

    A cancellation that nobody asked of the present task is what the work waited for: a task of the
    handler's own that was cancelled. Who ends the program is not held up.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or not task.cancelling()
    return not isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
