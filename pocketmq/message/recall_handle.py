"""The text that names a timed message to RECALL_MESSAGE; it comes with the answer to its send.

URL-safe base64 of five words with blanks between: `v1 topic broker time id`. Reference:
RecallMessageHandle.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

_VERSION: Final = "v1"
_WORDS: Final = 5


class RecallHandleError(ValueError):
    """The text is not a recall handle."""


class RecallHandle(NamedTuple):
    """The message to take back: `time` (Unix ms) lies in the slot of its delivery, `message_id`
    is its unique key."""

    topic: str
    broker_name: str
    time: str
    message_id: str

    def encode(self) -> str:
        """Return the handle's text."""
        return base64.urlsafe_b64encode(" ".join((_VERSION, *self)).encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Parse a handle. Raises RecallHandleError."""
    try:
        # The reference does not insist on the padding.
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        words = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
    except (UnicodeError, binascii.Error):
        words = []
    if len(words) < _WORDS or words[0] != _VERSION:
        raise RecallHandleError("recall handle is invalid")
    return RecallHandle(*words[1:_WORDS])
