"""The handle for recalling a delayed message.

The broker creates it (`message.recall_handle`); the producer reads from it the broker's name and
when the message is due.
"""

from __future__ import annotations

import time
from datetime import datetime

from pocketmq.client.errors import IllegalOperation, InvalidMessage, RemotingError, error_for
from pocketmq.message.recall_handle import RecallHandle, RecallHandleError, decode_recall_handle
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.frames.frame import Command

#: How far ahead a broker's clock may be, milliseconds: it may have delivered a message that is not
#: due by this machine's clock.
CLOCK_DIFFERENCE = 60_000


def checked_handle(recall_handle: str | None) -> str:
    """Return the text if it is a recall handle.

    Raises:
        InvalidMessage: it is not.
    """
    decoded(recall_handle)
    assert recall_handle is not None
    return recall_handle


def decoded(recall_handle: str | None) -> RecallHandle:
    """Decode a handle; raises as `checked_handle`."""
    if recall_handle is None:
        raise InvalidMessage(
            "recall_handle is None: brokers only give one for a message with deliver_at or delay"
        )
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
    return handle


def refusal(answer: Command, handle: RecallHandle) -> RemotingError:
    """Return the error of a broker's answer to RECALL_MESSAGE."""
    if answer.code == ResponseCode.ILLEGAL_OPERATION and "timestamp invalid" in (
        answer.remark or ""
    ):
        due = int(handle.time)
        if due < time.time() * 1000 + CLOCK_DIFFERENCE:
            at = datetime.fromtimestamp(due / 1000).astimezone().isoformat(timespec="seconds")
            return IllegalOperation(
                f"it is too late to recall message {handle.message_id} of topic {handle.topic}: it "
                f"was due at {at}, so it was delivered already, or is about to be",
                handle.broker_name,
            )
    error = error_for(answer.code, answer.remark, handle.broker_name)
    # NO_PERMISSION is retriable for sends, on another broker. This message is only on one.
    error.retriable = error.retriable and error.code != ResponseCode.NO_PERMISSION
    return error
