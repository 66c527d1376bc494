"""The handle by which a delayed message can be taken back.

The broker makes it, the producer only has to know which broker that was: url-safe base64 of
`v1 topic brokerName deliverMs uniqueId`. Reference: RecallMessageHandle.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple, Self

from client.errors import InvalidMessage

__all__ = ["RecallHandle"]

VERSION = "v1"


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
            raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode()
            version, topic, broker_name, deliver_at, msg_id, *_ = raw.split(" ")
            if version != VERSION or not msg_id:
                raise ValueError(f"version {version!r}, id {msg_id!r}")
            return cls(topic, broker_name, int(deliver_at), msg_id)
        except (binascii.Error, ValueError) as error:
            raise InvalidMessage(f"{text[:80]!r} is no recall handle: {error}") from None
