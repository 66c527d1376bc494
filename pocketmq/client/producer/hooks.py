"""Hooks around sends: to count, to trace, to add properties.

    class Timer:
        def before_send(self, context): ...
        def after_send(self, context): print(context.kind, context.elapsed, context.error)

    producer.hooks.append(Timer())

A hook has `before_send`, `after_send` or both; each may be a coroutine function, which is awaited.
It is called once for each call of the producer, not for each attempt, in the loop's thread.
Without hooks a send pays nothing for them. Reference: SendMessageHook, SendMessageContext.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Protocol

from pocketmq.client.log_fields import fields
from pocketmq.client.parameters import shown
from pocketmq.client.producer.result import SendResult
from pocketmq.message.message import Message

__all__ = [
    "AfterSendHook",
    "AnySendHook",
    "BeforeSendHook",
    "HookList",
    "SendContext",
    "SendHook",
    "SendKind",
]

log = logging.getLogger(__name__)


class SendKind(Enum):
    """What the producer was asked to do."""

    SINGLE = "single"
    ONEWAY = "oneway"
    BATCH = "batch"
    LINGERED = "lingered"
    REQUEST = "request"
    REPLY = "reply"
    HALF = "half"


class SendContext:
    """One call of the producer.

    Attributes:
        messages: what is sent, one unless `kind` is BATCH. `before_send` may put changed copies in
            the place of messages, never more or fewer; the caller's own are not to be changed.
        results: afterwards, aligned with `messages`; None for what was not stored or is oneway.
        error: afterwards, what the call raises.
        began: Unix seconds; `elapsed`: seconds, afterwards.
        attributes: for what a hook keeps from before to after, by a name of its own.
    """

    __slots__ = (
        "_start", "attributes", "began", "client_id", "elapsed", "error", "group", "kind",
        "messages", "results",
    )  # fmt: skip

    def __init__(
        self, kind: SendKind, group: str, client_id: str, messages: Sequence[Message]
    ) -> None:
        self.kind = kind
        self.group = group
        self.client_id = client_id
        self.messages = list(messages)
        self.results: list[SendResult | None] = [None] * len(messages)
        self.error: BaseException | None = None
        self.began = time.time()
        self.elapsed = 0.0
        self.attributes: dict[str, Any] = {}
        self._start = time.perf_counter()

    def ended(
        self, results: Sequence[SendResult | None] | None, error: BaseException | None
    ) -> None:
        """Note the outcome."""
        self.elapsed = time.perf_counter() - self._start
        self.error = error
        if results is not None:
            self.results = list(results)


class BeforeSendHook(Protocol):
    """A hook that is called before sends, and may change what is sent."""

    def before_send(self, context: SendContext, /) -> object:
        """Look at the messages, which are not checked yet; a coroutine is awaited."""


class AfterSendHook(Protocol):
    """A hook that is called after sends."""

    def after_send(self, context: SendContext, /) -> object:
        """Look at the outcome; a coroutine is awaited."""


class SendHook(BeforeSendHook, AfterSendHook, Protocol):
    """A hook that is called before and after sends. An exception of a hook is logged and changes
    nothing."""


AnySendHook = BeforeSendHook | AfterSendHook


class HookList(list[AnySendHook]):
    """The hooks of one producer, in the order they are called; may be changed at any time."""

    def __init__(self, hooks: Iterable[AnySendHook] = ()) -> None:
        super().__init__(_checked(hooks))
        self._late: set[asyncio.Task[None]] = set()

    async def before(self, context: SendContext) -> None:
        """Call every `before_send`."""
        messages = list(context.messages)
        for hook in tuple(self):
            call = getattr(hook, "before_send", None)
            if call is None:
                continue
            try:
                result = call(context)
                if inspect.isawaitable(result):
                    await result
                if len(context.messages) != len(messages):
                    raise ValueError(f"{len(messages)} messages became {len(context.messages)}")
            except Exception:
                log.exception(
                    "hook %r failed before a send", hook, extra=fields(group=context.group)
                )
                context.messages = list(messages)
            else:
                messages = list(context.messages)

    async def after(self, context: SendContext) -> None:
        """Call every `after_send`."""
        for hook, result in self._after(context):
            await _guarded(hook, result, context)

    def after_answer(self, context: SendContext) -> None:
        """Call every `after_send` from a callback; coroutines go on in a task."""
        waiting = list(self._after(context))
        if waiting:
            task = asyncio.get_running_loop().create_task(_all_guarded(waiting, context))
            self._late.add(task)
            task.add_done_callback(self._late.discard)

    async def finished(self) -> None:
        """Wait for the coroutines that `after_answer` began."""
        while self._late:
            await asyncio.wait(tuple(self._late))

    def _after(self, context: SendContext) -> Iterator[tuple[AnySendHook, Awaitable[object]]]:
        for hook in tuple(self):
            call = getattr(hook, "after_send", None)
            if call is None:
                continue
            try:
                result = call(context)
            except Exception:
                log.exception(FAILED_AFTER, hook, extra=fields(group=context.group))
            else:
                if inspect.isawaitable(result):
                    yield hook, result


def _checked(hooks: Iterable[AnySendHook]) -> Iterable[AnySendHook]:
    if isinstance(hooks, str | bytes) or not isinstance(hooks, Iterable):
        raise TypeError(f"hooks must be a list of hooks, not {shown(hooks)}")
    for hook in hooks:
        if not any(callable(getattr(hook, name, None)) for name in _METHODS):
            allowed = " or ".join(_METHODS)
            raise TypeError(f"each of hooks must have a method {allowed}, not {shown(hook)}")
        yield hook


_METHODS = ("before_send", "after_send")
FAILED_AFTER = "hook %r failed after a send"


async def _guarded(hook: AnySendHook, result: Awaitable[object], context: SendContext) -> None:
    try:
        await result
    except Exception:
        log.exception(FAILED_AFTER, hook, extra=fields(group=context.group))


async def _all_guarded(
    waiting: Iterable[tuple[AnySendHook, Awaitable[object]]], context: SendContext
) -> None:
    for hook, result in waiting:
        await _guarded(hook, result, context)
