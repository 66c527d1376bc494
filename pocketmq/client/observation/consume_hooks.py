"""Hooks around the work on messages: to count, to trace, to look at.

    class Timer:
        def before_consume(self, context): ...
        def after_consume(self, context): print(context.messages, context.elapsed, context.error)

    consumer.hooks.append(Timer())

A hook is called once for each call of a handler, and once for each `async with message` of an
iteration, in the loop's thread. Its methods may be plain functions or coroutines, which are
awaited; a hook may leave one of them out. The messages that a PullConsumer hands out count as done
at once. Without hooks a message pays nothing for them.
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
    """The work on one message, or on the messages of one batch.

    Attributes:
        messages: the messages, all of one queue.
        error: the exception that ended the work; None before and without one.
        returned: how it ended, in the reference's words; RETURN_NULL before that. It does not show
            which messages of a batch were acknowledged or given back one by one.
        began: Unix seconds; `elapsed`: seconds, once it has ended.
        attributes: where a hook keeps values from before to after, by a name of its own.
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
        """Note the outcome."""
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
    """Called around the work. An exception of a hook is logged and changes nothing."""

    def before_consume(self, context: ConsumeContext, /) -> Awaitable[None] | None:
        """The work is about to begin."""

    def after_consume(self, context: ConsumeContext, /) -> Awaitable[None] | None:
        """The work has ended; nothing was sent to the broker yet."""


class ConsumeHookList(list[ConsumeHook]):
    """The hooks of one consumer, in the order they are called; may be changed at any time."""

    async def before(self, context: ConsumeContext) -> None:
        """Call `before_consume` of each."""
        await self._call_each("before_consume", context)

    async def after(self, context: ConsumeContext) -> None:
        """Call `after_consume` of each."""
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
