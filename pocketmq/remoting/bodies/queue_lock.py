"""Locking queues for ordered consumption (LOCK_BATCH_MQ, UNLOCK_BATCH_MQ)."""

from __future__ import annotations

from typing import Any

from msgspec import field

from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.base import QueueBody, queues


class LockBatchRequestBody(QueueBody):
    """The queues that a client wants to hold, or still to hold.

    With `release_on_close`, which only pocketmq knows, its locks end soon after the connection of
    this request if the client's end closes that.
    """

    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[MessageQueue] = field(default_factory=list)
    only_this_broker: bool = False
    release_on_close: bool | None = None

    @classmethod
    def _adapt(cls, fields: dict[str, Any]) -> None:
        fields["mqSet"] = queues(fields.get("mqSet"))


class UnlockBatchRequestBody(LockBatchRequestBody):
    """The queues that a client gives up."""


class LockBatchResponseBody(QueueBody):
    """Those of the wanted queues that the client holds now."""

    lock_ok_mq_set: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)

    @classmethod
    def _adapt(cls, fields: dict[str, Any]) -> None:
        fields["lockOKMQSet"] = queues(fields.get("lockOKMQSet"))
