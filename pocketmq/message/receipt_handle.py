"""The text that names one delivery of a popped message; acknowledgements carry it (`extraInfo`).

Words with blanks between: `startOffset popTime invisibleTime reviveQueueId topicKind brokerName
queueId queueOffset`, which clients build from the answer to a pop, and for messages of retry topics
find in the property POP_CK. Proxies append the physical offset. Reference: ExtraInfoUtil,
ReceiptHandle.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pocketmq.message.retry_topic import TopicKind, stored_topic

ORDER_REVIVE_QUEUE: Final = 999
"""Replaces the revive queue for messages popped in order: these need no revive log."""

_KINDS: Final = {str(int(kind)): kind for kind in TopicKind}
_LEAST_WORDS: Final = 8


class ReceiptHandleError(ValueError):
    """The text is not a receipt handle."""


class ReceiptHandle(NamedTuple):
    """One delivery of a message.

    Attributes:
        start_offset: queue offset at which the pop began; the same for all messages that it took
            from the queue, which share a checkpoint.
        pop_time, invisible_time: when the message was taken (Unix ms), and for how long (ms).
        revive_queue_id: where its checkpoint is written, or ORDER_REVIVE_QUEUE.
        queue_offset: of the message; -1 if the handle was built without it.
        physical_offset: as proxies add it; -1 without.
    """

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    kind: TopicKind
    broker_name: str
    queue_id: int
    queue_offset: int = -1
    physical_offset: int = -1

    @property
    def in_order(self) -> bool:
        """The message was popped in order."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    @property
    def next_visible_time(self) -> int:
        """When the message becomes visible again unless it is acknowledged before (Unix ms)."""
        return self.pop_time + self.invisible_time

    def stored_topic(self, topic: str, group: str) -> str:
        """Return the topic that the message is in; requests about it have to name that."""
        return stored_topic(topic, group, self.kind)

    def encode(self) -> str:
        """Return the handle's text, without an unknown physical offset."""
        text = (
            f"{self.start_offset} {self.pop_time} {self.invisible_time} {self.revive_queue_id} "
            f"{self.kind:d} {self.broker_name} {self.queue_id} {self.queue_offset}"
        )
        return text if self.physical_offset < 0 else f"{text} {self.physical_offset}"


def decode_receipt_handle(text: str) -> ReceiptHandle:
    """Parse a handle.

    Raises:
        ReceiptHandleError: it has fewer than eight words, or one that must be a number is not.
    """
    words = text.split(" ")
    if len(words) < _LEAST_WORDS:
        raise ReceiptHandleError(
            f"receipt handle {text[:200]!r} has {len(words)} words, {_LEAST_WORDS} are needed"
        )
    try:
        return ReceiptHandle(
            int(words[0]),
            int(words[1]),
            int(words[2]),
            int(words[3]),
            _KINDS[words[4]],
            words[5],
            int(words[6]),
            int(words[7]),
            int(words[8]) if len(words) > _LEAST_WORDS else -1,
        )
    except (KeyError, ValueError):
        raise ReceiptHandleError(f"receipt handle {text[:200]!r} cannot be read") from None
