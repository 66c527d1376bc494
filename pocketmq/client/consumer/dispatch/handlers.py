"""The types of handlers: the application's functions for single messages or batches."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.parameters import Seconds, seconds_or_none, whole
from pocketmq.client.parameters import function as checked_function
from pocketmq.message.payload import Decoder, decoder_of

P = TypeVar("P")

Handler: TypeAlias = Callable[[ConsumedMessage], Awaitable[object] | object]
"""Handles a message; a plain function is called in the event loop, which it blocks."""

TypedHandler: TypeAlias = Callable[[Any, P], Awaitable[object] | object]
"""Handles a message and its decoded body."""

BatchHandler: TypeAlias = Callable[[list[ConsumedMessage]], Awaitable[object] | object]
"""Handles messages of one queue, in order: at least one, at most the batch size.

When it returns, all messages are consumed, except those it returned with `reconsume`. When it
raises, all are redelivered, except those it acknowledged with `ack`.
"""

#: The largest batch, in messages (consumeMessageBatchMaxSize).
MAX_BATCH = 1024


class Batched(NamedTuple):
    """A function for batches of up to `size` messages; fewer only after the first has waited for
    `wait` seconds."""

    function: BatchHandler
    size: int
    wait: float = 0.0

    async def work(self, messages: list[ConsumedMessage]) -> object:
        """Call the function and wait for it; raises its errors."""
        result = self.function(messages)
        if inspect.isawaitable(result):
            result = await result
        return result


class Typed(msgspec.Struct, frozen=True):
    """A Handler that calls a function with the message and its decoded body."""

    function: TypedHandler[Any]
    decode: Decoder

    def __call__(self, message: ConsumedMessage) -> Awaitable[object] | object:
        return self.function(message, self.decode(message.body))


AnyHandler: TypeAlias = Handler | Batched


def handler_of(
    function: Any,
    max_batch: int | None,
    payload: Any = None,
    max_wait: Seconds | None = None,
) -> AnyHandler | None:
    """Return the handler of a topic. `max_batch`: messages per call; None for single messages.
    `payload`: the type to decode bodies as. `max_wait`: how long messages wait to fill a batch,
    seconds or a timedelta.

    Raises:
        TypeError: the function does not accept these arguments.
        ValueError: `max_batch` or `max_wait` is out of range, without a function, or together with
            `payload`; or `max_wait` is without `max_batch`.
    """
    if max_batch is not None:
        whole("max_batch", max_batch, 1, MAX_BATCH)
    wait = seconds_or_none("max_wait", max_wait)
    if wait is not None and max_batch is None:
        raise ValueError(
            f"max_wait={max_wait!r} needs max_batch: how many messages a handler gets at most"
        )
    if function is None:
        for name, value in (("max_batch", max_batch), ("payload", payload)):
            if value is not None:
                raise ValueError(f"{name}={value!r} needs a handler")
        return None
    checked_function("the handler", function)
    if payload is None:
        _check_arity(function, 1, "the list of messages" if max_batch else "the message")
        return function if max_batch is None else Batched(function, max_batch, wait or 0.0)
    if max_batch is not None:
        raise ValueError(
            "payload and max_batch cannot be used together: a batch handler decodes each message "
            "itself, by message.payload(...)"
        )
    decode = decoder_of(payload)
    _check_arity(function, 2, "the message and its payload")
    return Typed(function, decode)


def _check_arity(function: Callable[..., Any], count: int, what: str) -> None:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return  # some built-in functions have none
    try:
        signature.bind(*range(count))
    except TypeError:
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"a handler is called with {what}, which {name}{signature} does not accept"
        ) from None


def is_failure(error: BaseException) -> bool:
    """Return whether a handler that raised this failed, and was not cancelled from outside.

    If nobody cancelled the current task, a CancelledError comes from what the handler awaited, such
    as its own task that was cancelled. KeyboardInterrupt and SystemExit end the program.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or not task.cancelling()
    return not isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
