"""The handle by which a delayed message can be taken back.

The broker makes it (message.recall_handle); the producer only has to know which broker that was.
"""

from __future__ import annotations

from pocketmq.client.errors import InvalidMessage
from pocketmq.message.recall_handle import RecallHandleError, decode_recall_handle

__all__ = ["broker_of"]


def broker_of(recall_handle: str) -> str:
    """Name the broker that made the handle.

    Raises:
        InvalidMessage: the text is not a recall handle.
    """
    if not isinstance(recall_handle, str):
        raise InvalidMessage(
            f"recall_handle must be the recall_handle of a SendResult (str), not {recall_handle!r}"
        )
    try:
        if len(recall_handle) % 4:
            raise RecallHandleError("it was cut off: brokers give whole groups of four")
        handle = decode_recall_handle(recall_handle)
        if not handle.message_id:
            raise RecallHandleError("it names no message")
        int(handle.time)
    except ValueError as error:
        raise InvalidMessage(
            f"recall_handle {recall_handle[:80]!r} is not a recall handle: {error}"
        ) from None
    return handle.broker_name
