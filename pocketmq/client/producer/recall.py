"""The handle by which a delayed message can be taken back.

The broker makes it (message.recall_handle); the producer only has to know which broker that was.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from pocketmq.client.errors import InvalidMessage
from pocketmq.message.recall_handle import RecallHandleError, decode_recall_handle

__all__ = ["RecallHandle"]


class RecallHandle(NamedTuple):
    """A handle taken apart; `deliver_at` in Unix ms."""

    topic: str
    broker_name: str
    deliver_at: int
    msg_id: str

    @classmethod
    def decode(cls, text: str) -> Self:
        """Raises InvalidMessage for what is no handle."""
        try:
            if len(text) % 4:
                raise RecallHandleError("it was cut off: brokers give whole groups of four")
            handle = decode_recall_handle(text)
            if not handle.message_id:
                raise RecallHandleError("it names no message")
            return cls(handle.topic, handle.broker_name, int(handle.time), handle.message_id)
        except ValueError as error:
            raise InvalidMessage(f"{text[:80]!r} is no recall handle: {error}") from None
