"""Hooks before and after the handling of messages: to count, to trace, to inspect.

    class Timer:
        def before_consume(self, context): ...
        def after_consume(self, context): print(context.messages, context.elapsed, context.error)

    consumer.hooks.append(Timer())

A hook is called once for each call of a handler, and once for each `async with message` of an
iteration, in the loop's thread. Its methods may be plain functions or coroutine functions, which
are awaited; one of them may be missing. Messages that a PullConsumer delivers count as handled at
once. Without hooks, there is no cost per message.
Reference: ConsumeMessageHook, ConsumeMessageContext.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from pocketmq.client.log_fields import fields
from pocketmq.client.observation.trace_record import ConsumeReturn
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import MessageExt

log = logging.getLogger(__name__)


class ConsumeContext:
    """The handling of one message, or of one batch.

    Attributes:
        messages: the messages, all of one queue.
        error: the exception that ended the handler; None before the end and without one.
        returned: the result, with the reference's name; RETURN_NULL before the end. It does not
            show which messages of a batch were acknowledged or returned individually.
        began: Unix seconds; `elapsed`: seconds, after the end.
        attributes: values that a hook keeps from before to after, by a unique name.
    """

    __slots__ = (
        "_start", "attributes", "began", "client_id", "elapsed", "error", "group", "messages",
        "returned",
    )  # fmt: skip

    def __init__(self, group: str, client_id: str, messages: Sequence[MessageExt]) -> None:
        self.group = group
        self.client_id = client_id
        self.messages = tuple(messages)
        self.error: BaseException | None = None
        self.returned = ConsumeReturn.RETURN_NULL
        self.began = time.time()
        self.elapsed = 0.0
        self.attributes: dict[str, Any] = {}
        self._start = time.perf_counter()

    def ended(self, error: BaseException | None, *, timed_out: bool = False) -> None:
        """Record the outcome."""
        self.elapsed = time.perf_counter() - self._start
        self.error = error
        if timed_out:
            self.returned = ConsumeReturn.TIME_OUT
        elif error is None:
            self.returned = ConsumeReturn.SUCCESS
        elif isinstance(error, ReconsumeLater):
            self.returned = ConsumeReturn.FAILED
        else:
            self.returned = ConsumeReturn.EXCEPTION


class ConsumeHook(Protocol):
    """Called before and after the handling. An exception of a hook is logged and has no effect."""

    def before_consume(self, context: ConsumeContext, /) -> Awaitable[None] | None:
        """Called before the handling begins."""

    def after_consume(self, context: ConsumeContext, /) -> Awaitable[None] | None:
        """Called after the handling, before the outcome is sent to the broker."""


class ConsumeHookList(list[ConsumeHook]):
    """The hooks of one consumer, in the order of the calls; may be changed at any time."""

    async def before(self, context: ConsumeContext) -> None:
        """Call every `before_consume`."""
        await self._call_each("before_consume", context)

    async def after(self, context: ConsumeContext) -> None:
        """Call every `after_consume`."""
        await self._call_each("after_consume", context)

    async def _call_each(self, name: str, context: ConsumeContext) -> None:
        for hook in tuple(self):
            method = getattr(hook, name, None)
            if method is None:
                continue
            try:
                result = method(context)
                if result is not None and inspect.isawaitable(result):
                    await result
            except Exception:
                told = fields(group=context.group)
                log.exception("%s of hook %r failed", name, hook, extra=told)
