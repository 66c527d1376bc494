"""Checkpoints and acknowledgements, in the official broker's format of the revive log. No I/O.

Both are timed messages to a queue of the topic `rmq_sys_REVIVE_LOG_<cluster>`, with a JSON body and
their type as tag. A checkpoint is due a second before its acknowledgements, so that it is read
first. Reference: PopCheckPoint, AckMsg, BatchAckMsg, PopMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from msgspec import field

from pocketmq.message.limits import REVIVE_LOG_PREFIX, SYSTEM_GROUP_PREFIX
from pocketmq.remoting.bodies.base import Body

REVIVE_GROUP: Final = SYSTEM_GROUP_PREFIX + "REVIVE_GROUP"
"""The group whose offsets are the progress in the revive log."""
CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
ACK_INTERVAL_MS: Final = 1_000
"""A checkpoint is due this long before its messages become visible again."""
MOST_MESSAGES: Final = 32
"""The most messages of one checkpoint: its bit map is a Java int."""

_SEPARATOR: Final = "@"
_MASK: Final = (1 << 32) - 1


def revive_topic(cluster: str) -> str:
    """Return the topic of a cluster's revive log."""
    return REVIVE_LOG_PREFIX + cluster


class CheckPointId(NamedTuple):
    """Identifies one pop from one queue; acknowledgements refer to checkpoints by it."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int


class CheckPoint(Body):
    """The messages that one pop took from one queue. Times are ms.

    Attributes:
        bit_map: bit n is set when message n is acknowledged.
        num: the number of messages.
        differences: the queue offset of each message less start_offset; None in checkpoints of old
            releases, whose messages are consecutive.
        revive_offset: its queue offset in the revive log.
        put_again: how often an official broker wrote it again because a message could not be read.
        suspend: its messages come back without counting an attempt; None in checkpoints before 5.5.
        created: physical offset at which the topic was created (`pocketmq.message.incarnation`);
            None in checkpoints of official brokers, which do not have the field.
    """

    bit_map: int = field(name="bm", default=0)
    broker_name: str | None = field(name="bn", default=None)
    group: str = field(name="c", default="")
    created: int | None = field(name="cr", default=None)
    differences: list[int] | None = field(name="d", default=None)
    invisible_time: int = field(name="it", default=0)
    num: int = field(name="n", default=0)
    pop_time: int = field(name="pt", default=0)
    queue_id: int = field(name="q", default=0)
    revive_time_as_read: int | None = field(name="reviveTime", default=None)
    revive_offset: int = field(name="ro", default=0)
    put_again: str | None = field(name="rp", default=None)
    start_offset: int = field(name="so", default=0)
    suspend: bool | None = field(name="sp", default=None)
    topic: str = field(name="t", default="")

    @property
    def id(self) -> CheckPointId:
        """The id to which acknowledgements refer."""
        return CheckPointId(self.topic, self.group, self.queue_id, self.start_offset, self.pop_time)

    @property
    def revive_time(self) -> int:
        """When its messages become visible again."""
        return self.pop_time + self.invisible_time

    def index_of(self, offset: int) -> int | None:
        """Return the index of the message with this queue offset; None if there is none."""
        difference = offset - self.start_offset
        if not self.differences:
            return difference if 0 <= difference < min(self.num, MOST_MESSAGES) else None
        try:
            index = self.differences.index(difference)
        except ValueError:
            return None
        return index if index < MOST_MESSAGES else None

    def ack(self, offset: int) -> bool:
        """Mark a message as acknowledged; return False if it is not in this checkpoint."""
        index = self.index_of(offset)
        if index is None:
            return False
        self.bit_map |= 1 << index
        return True

    def unacknowledged(self) -> list[int]:
        """Return the queue offsets of the messages that are not acknowledged."""
        start, differences = self.start_offset, self.differences
        bits = self.bit_map & _MASK
        return [
            start + (differences[index] if differences else index)
            for index in range(min(self.num, MOST_MESSAGES))
            if not bits >> index & 1 and (not differences or index < len(differences))
        ]


class AckMessage(Body):
    """One acknowledged message of a checkpoint."""

    ack_offset: int = field(name="ao", default=0)
    broker_name: str | None = field(name="bn", default=None)
    group: str = field(name="c", default="")
    pop_time: int = field(name="pt", default=0)
    queue_id: int = field(name="q", default=0)
    start_offset: int = field(name="so", default=0)
    topic: str = field(name="t", default="")

    @property
    def offsets(self) -> Sequence[int]:
        """The queue offsets of the acknowledged messages."""
        return (self.ack_offset,)

    @property
    def id(self) -> CheckPointId:
        """The id of the checkpoint."""
        return CheckPointId(self.topic, self.group, self.queue_id, self.start_offset, self.pop_time)


class BatchAckMessage(AckMessage):
    """Several acknowledged messages of a checkpoint; `ack_offset` is -1."""

    ack_offset_list: list[int] = field(name="aol", default_factory=list)

    @property
    def offsets(self) -> Sequence[int]:
        """The queue offsets of the acknowledged messages."""
        return self.ack_offset_list


def single_ack(id: CheckPointId, offset: int, broker_name: str) -> AckMessage:
    """Return the acknowledgement of one message."""
    return AckMessage(
        ack_offset=offset,
        broker_name=broker_name,
        group=id.group,
        pop_time=id.pop_time,
        queue_id=id.queue_id,
        start_offset=id.start_offset,
        topic=id.topic,
    )


def batch_ack(id: CheckPointId, offsets: Sequence[int], broker_name: str) -> BatchAckMessage:
    """Return the acknowledgement of several messages of one checkpoint."""
    return BatchAckMessage(
        ack_offset=-1,
        ack_offset_list=list(offsets),
        broker_name=broker_name,
        group=id.group,
        pop_time=id.pop_time,
        queue_id=id.queue_id,
        start_offset=id.start_offset,
        topic=id.topic,
    )


ReviveRecord: TypeAlias = CheckPoint | AckMessage

_KINDS: Final[dict[str, type[ReviveRecord]]] = {
    CHECK_POINT_TAG: CheckPoint,
    ACK_TAG: AckMessage,
    BATCH_ACK_TAG: BatchAckMessage,
}


def decode_revive_record(tag: str, body: bytes | memoryview) -> ReviveRecord | None:
    """Decode a message of the revive log; return None for an unknown tag.

    Raises:
        BodyError: the body cannot be decoded.
    """
    kind = _KINDS.get(tag)
    return None if kind is None else kind.decode(body)


def unique_key(record: ReviveRecord, tag: str, own_name: str) -> str:
    """Return the UNIQ_KEY of a revive record.

    For a batch of acknowledgements, 5.3.3 writes the key of a single one with offset -1.
    """
    offset = record.start_offset if isinstance(record, CheckPoint) else record.ack_offset
    return _SEPARATOR.join(
        (
            record.topic,
            str(record.queue_id),
            str(offset),
            record.group,
            str(record.pop_time),
            record.broker_name or own_name,
            tag,
        )
    )
