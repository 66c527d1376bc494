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
    """What the producer was asked to do."""

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
        messages: what is sent, one unless `kind` is BATCH. `before_send` may put changed copies in
            the place of messages, never more or fewer; the caller's own are not to be changed.
        results: afterwards, aligned with `messages`; None for what was not stored or is oneway.
        error: afterwards, what the call raises.
        began: Unix seconds; `elapsed`: seconds, afterwards.
        attributes: for what a hook keeps from before to after, by a name of its own.
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
        """Note the outcome."""
        self.elapsed = perf_counter() - self._start
        self.error = error
        if isinstance(outcome, SendResult):
            self.results = [outcome]
        else:
            self.results = list(outcome or [None] * len(self.messages))


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

    def call(
        self, when: str, context: SendContext, hooks: Iterator[AnySendHook] | None = None
    ) -> Coroutine[Any, Any, None] | None:
        """Call `when`, BEFORE or AFTER, of every hook, or of those that are left of `hooks`; await
        what is returned, the calls from the first coroutine on."""
        # No coroutine for hooks that are plain functions: two for each send are a tenth of its
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
        """Call every `after_send` from a callback; coroutines go on in a task."""
        waiting = self.call(AFTER, context)
        if waiting is not None:
            task = asyncio.get_running_loop().create_task(waiting)
            self._late.add(task)
            task.add_done_callback(self._late.discard)

    async def finished(self) -> None:
        """Wait for the coroutines that `after_answer` began."""
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
