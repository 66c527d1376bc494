"""Hooks around sends: to count, to trace, to add properties.

    class Timer:
        def before_send(self, context): ...
        def after_send(self, context): print(context.kind, context.elapsed, context.error)

    producer.hooks.append(Timer())

A hook is called once for each call of the producer, not for each attempt, in the loop's thread.
Without hooks a send pays nothing for them. Reference: SendMessageHook, SendMessageContext.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

from pocketmq.client.hook_calls import call_each
from pocketmq.client.log_fields import fields
from pocketmq.client.producer.result import SendResult
from pocketmq.message.message import Message

__all__ = ["HookList", "SendContext", "SendHook", "SendKind"]

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


class SendHook(Protocol):
    """What is called around sends. An exception of a hook is logged and changes nothing."""

    def before_send(self, context: SendContext, /) -> None:
        """The messages were not checked yet."""

    def after_send(self, context: SendContext, /) -> None:
        """The outcome is known."""


class HookList(list[SendHook]):
    """The hooks of one producer, in the order they are called; may be changed at any time."""

    def before(self, context: SendContext) -> None:
        messages = list(context.messages)
        for hook in tuple(self):
            try:
                hook.before_send(context)
                if len(context.messages) != len(messages):
                    raise ValueError(f"{len(messages)} messages became {len(context.messages)}")
            except Exception:
                log.exception(
                    "hook %r failed before a send", hook, extra=fields(group=context.group)
                )
                context.messages = list(messages)
            else:
                messages = list(context.messages)

    def after(self, context: SendContext) -> None:
        call_each(self, lambda hook: hook.after_send(context), "after a send", context.group)
