"""Hooks: your code before and after each send, and around the handling of each message.

Pass objects with these methods as `hooks=` to a producer (`SendHook`, or only one half of it:
`BeforeSendHook`, `AfterSendHook`) or to a consumer (`ConsumeHook`).
"""

from __future__ import annotations

from pocketmq.client.observation.consume_hooks import ConsumeContext, ConsumeHook
from pocketmq.client.observation.send_hooks import (
    AfterSendHook,
    BeforeSendHook,
    SendContext,
    SendHook,
    SendKind,
)

__all__ = [
    "AfterSendHook",
    "BeforeSendHook",
    "ConsumeContext",
    "ConsumeHook",
    "SendContext",
    "SendHook",
    "SendKind",
]
