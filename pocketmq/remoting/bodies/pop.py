"""POP consumption: acknowledgements of many messages, and how consumers get their messages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Final

from msgspec import field

from pocketmq.message import loose_json
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies import lenient
from pocketmq.remoting.bodies.base import Body, QueueBody, enum, objects, queue
from pocketmq.remoting.bodies.heartbeat import MessageModel
from pocketmq.remoting.errors import BodyError

MessageRequestMode = Annotated[str, enum("PULL", "POP")]
PULL: Final = "PULL"
POP: Final = "POP"

MAX_BIT_SET: Final = 64 << 10
"""Characters of an entry's bit set."""


class BatchAck(Body):
    """Acknowledged messages that share a checkpoint: those that one pop took from one queue.

    Attributes:
        bit_set: base64 of a little-endian bit set; bit n is the message at start_offset + n.
        retry: the topic kind of the receipt handles: "0" none, "1" v1, "2" v2.
    """

    bit_set: str = field(name="b", default="")
    consumer_group: str = field(name="c", default="")
    invisible_time: int = field(name="it", default=0)
    pop_time: int = field(name="pt", default=0)
    queue_id: int = field(name="q", default=0)
    retry: str = field(name="r", default="")
    revive_queue_id: int = field(name="rq", default=0)
    start_offset: int = field(name="so", default=0)
    topic: str = field(name="t", default="")

    def offsets(self, most: int) -> list[int]:
        """Return the queue offsets of the messages, at most `most`.

        Raises:
            BodyError: the bit set is not base64, is too long, or has more bits.
        """
        text = self.bit_set
        try:
            if len(text) > MAX_BIT_SET:
                raise BodyError(
                    f"b of a BatchAck has {len(text)} characters, at most {MAX_BIT_SET}"
                )
            bits = int.from_bytes(base64.b64decode(text, validate=True), "little")
        except (binascii.Error, ValueError):
            raise BodyError(f"b = {text[:100]!r} of a BatchAck is not base64") from None
        if bits.bit_count() > most:
            raise BodyError(f"a BatchAck has {bits.bit_count()} messages, at most {most}")
        offsets = []
        while bits:
            lowest = bits & -bits
            offsets.append(self.start_offset + lowest.bit_length() - 1)
            bits ^= lowest
        return offsets


def bit_set_of(start_offset: int, offsets: Iterable[int]) -> str:
    """Return the text of a bit set for these queue offsets, none of them below `start_offset`."""
    bits = 0
    for offset in offsets:
        bits |= 1 << (offset - start_offset)
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()


#: The long names of the fields, as some clients write them.
_LONG_NAMES: Final = {
    lenient.folded(name): short
    for name, short in zip(
        BatchAck.__struct_fields__, BatchAck.__struct_encode_fields__, strict=True
    )
}


class BatchAckMessageRequestBody(Body):
    """BATCH_ACK_MESSAGE."""

    _most_respelt: ClassVar[int] = 64 << 10

    acks: list[BatchAck] = field(default_factory=list)
    broker_name: str | None = None

    @classmethod
    def _leniently(cls, data: bytes | bytearray | memoryview) -> BatchAckMessageRequestBody:
        fields = loose_json.decode(data)
        if isinstance(fields, dict):
            for ack in objects(fields.get("acks")):
                for name in tuple(ack):
                    short = _LONG_NAMES.get(lenient.folded(name))
                    if short is not None:
                        ack.setdefault(short, ack.pop(name))
        lenient.check_known(fields, cls)
        return cls._from_fields(lenient.respelt(fields, cls))


class QueryAssignmentRequestBody(Body):
    """QUERY_ASSIGNMENT: which queues of a topic this client of a group is to read, and how."""

    client_id: str = ""
    consumer_group: str = ""
    message_model: MessageModel = "CLUSTERING"
    strategy_name: str = ""
    topic: str = ""


class MessageQueueAssignment(QueueBody):
    """One queue, and how to read it; queue id -1 is any queue of that broker."""

    attachments: dict[str, str] | None = None
    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = PULL

    @classmethod
    def _adapt(cls, fields: dict[str, Any]) -> None:
        if fields.get("messageQueue") is not None:
            fields["messageQueue"] = queue(fields["messageQueue"])


class QueryAssignmentResponseBody(QueueBody):
    """The answer; without a list the client keeps the queues that it has."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None

    @classmethod
    def _adapt(cls, fields: dict[str, Any]) -> None:
        for assignment in objects(fields.get("messageQueueAssignments")):
            MessageQueueAssignment._adapt(assignment)


class SetMessageRequestModeRequestBody(Body):
    """SET_MESSAGE_REQUEST_MODE, and an entry of messageRequestMode.json.

    pop_share_queue_num: how many further clients a client shares its queues with; all with 0.
    """

    consumer_group: str = ""
    mode: MessageRequestMode = PULL
    pop_share_queue_num: int = 0
    topic: str = ""


class MessageRequestModeSerializeWrapper(Body):
    """GET_ALL_MESSAGE_REQUEST_MODE: by topic and group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(
        default_factory=dict
    )
