"""Hooks before and after sends: to count, to trace, to add properties.

    class Timer:
        def before_send(self, context): ...
        def after_send(self, context): print(context.kind, context.elapsed, context.error)

    producer.hooks.append(Timer())

A hook has `before_send`, `after_send` or both; each may be a coroutine function, which is awaited.
It is called once for each call of the producer, not for each attempt, in the loop's thread. Without
hooks, there is no cost per send. Reference: SendMessageHook, SendMessageContext.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Sequence
from enum import Enum
from time import perf_counter, time
from typing import Any, Protocol

import msgspec

from pocketmq.client.log_fields import fields
from pocketmq.client.parameters import shown
from pocketmq.client.send_result import SendResult
from pocketmq.message.message import Message

log = logging.getLogger(__name__)

#: The methods of hooks.
BEFORE, AFTER = "before_send", "after_send"


class SendKind(Enum):
    """The kind of a call of the producer."""

    SINGLE = "single"
    ONEWAY = "oneway"
    BATCH = "batch"
    LINGERED = "lingered"
    REQUEST = "request"
    REPLY = "reply"
    HALF = "half"


class SendContext(msgspec.Struct, eq=False):
    """One call of the producer.

    Attributes:
        messages: the messages to send, one unless `kind` is BATCH. `before_send` may replace
            messages with changed copies, never with more or fewer, and must not change the
            caller's.
        results: after the send, one for each message; None for one that was not stored or is
            oneway.
        error: after the send, the error that the call raises.
        began: Unix seconds; `elapsed`: seconds, after the send.
        attributes: values that a hook keeps from before to after, by a unique name.
    """

    kind: SendKind
    group: str
    client_id: str
    messages: list[Message]
    results: list[SendResult | None] = msgspec.field(default_factory=list)
    error: BaseException | None = None
    began: float = msgspec.field(default_factory=time)
    elapsed: float = 0.0
    attributes: dict[str, Any] = msgspec.field(default_factory=dict)
    _start: float = msgspec.field(default_factory=perf_counter)

    def ended(
        self,
        outcome: SendResult | Sequence[SendResult | None] | None,
        error: BaseException | None,
    ) -> None:
        """Record the outcome."""
        self.elapsed = perf_counter() - self._start
        self.error = error
        if isinstance(outcome, SendResult):
            self.results = [outcome]
        else:
            self.results = list(outcome or [None] * len(self.messages))


class BeforeSendHook(Protocol):
    """A hook that is called before sends, and may change the messages."""

    def before_send(self, context: SendContext, /) -> object:
        """Called with the messages, which are not checked yet; a coroutine is awaited."""


class AfterSendHook(Protocol):
    """A hook that is called after sends."""

    def after_send(self, context: SendContext, /) -> object:
        """Called with the outcome; a coroutine is awaited."""


class SendHook(BeforeSendHook, AfterSendHook, Protocol):
    """A hook that is called before and after sends. An exception of a hook is logged and has no
    effect."""


AnySendHook = BeforeSendHook | AfterSendHook


class HookList(list[AnySendHook]):
    """The hooks of one producer, in the order of the calls; may be changed at any time."""

    def __init__(self, hooks: Iterable[AnySendHook] = ()) -> None:
        super().__init__(_checked(hooks))
        self._late: set[asyncio.Task[None]] = set()

    def call(
        self, when: str, context: SendContext, hooks: Iterator[AnySendHook] | None = None
    ) -> Coroutine[Any, Any, None] | None:
        """Call `when`, BEFORE or AFTER, of every hook, or of the rest of `hooks`. Return a
        coroutine for the calls from the first coroutine function on, to be awaited; None if there
        is none."""
        # No coroutine for hooks that are plain functions: two coroutines are a tenth of a send's
        # cost.
        if hooks is None:
            hooks = iter(self.copy())
        for hook in hooks:
            method = getattr(hook, when, None)
            if method is None:
                continue
            messages = [*context.messages]
            try:
                result = method(context)
                if result is not None and inspect.isawaitable(result):
                    return self._await(result, hook, messages, hooks, when, context)
                if len(context.messages) != len(messages):
                    raise _wrong_count(messages, context)
            except Exception:
                _failed(hook, messages, when, context)
        return None

    async def _await(
        self,
        result: Awaitable[object],
        hook: AnySendHook,
        messages: list[Message],
        hooks: Iterator[AnySendHook],
        when: str,
        context: SendContext,
    ) -> None:
        try:
            await result
            if len(context.messages) != len(messages):
                raise _wrong_count(messages, context)
        except Exception:
            _failed(hook, messages, when, context)
        if (following := self.call(when, context, hooks)) is not None:
            await following

    def after_answer(self, context: SendContext) -> None:
        """Call every `after_send` from a callback; coroutines continue in a task."""
        waiting = self.call(AFTER, context)
        if waiting is not None:
            task = asyncio.get_running_loop().create_task(waiting)
            self._late.add(task)
            task.add_done_callback(self._late.discard)

    async def finished(self) -> None:
        """Wait for the coroutines that `after_answer` started."""
        while self._late:
            await asyncio.wait(tuple(self._late))


def _checked(hooks: Iterable[AnySendHook]) -> Iterable[AnySendHook]:
    if isinstance(hooks, str | bytes) or not isinstance(hooks, Iterable):
        raise TypeError(f"hooks must be a list of hooks, not {shown(hooks)}")
    for hook in hooks:
        if not any(callable(getattr(hook, name, None)) for name in (BEFORE, AFTER)):
            allowed = f"{BEFORE} or {AFTER}"
            raise TypeError(f"each of hooks must have a method {allowed}, not {shown(hook)}")
        yield hook


def _wrong_count(messages: Sequence[Message], context: SendContext) -> ValueError:
    return ValueError(f"{len(messages)} messages became {len(context.messages)}")


def _failed(hook: AnySendHook, messages: list[Message], when: str, context: SendContext) -> None:
    log.exception(
        "hook %r failed %s a send",
        hook,
        when.removesuffix("_send"),
        extra=fields(group=context.group),
    )
    context.messages = messages
