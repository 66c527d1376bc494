"""Headers of sending: SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and their answer;
CONSUMER_SEND_MSG_BACK; RECALL_MESSAGE."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from pocketmq.message.limits import DEFAULT_REGION
from pocketmq.remoting.headers.base import (
    I32,
    I64,
    Header,
    encode_entries,
    encode_json,
    pack_length,
)


class SendMessageRequestHeader(Header, kw_only=True):
    """SEND_MESSAGE (10), which the Go client sends.

    A binary header leaves empty texts out, so that producer_group and default_topic are optional.
    default_topic_queue_nums is needed only where the topic is to be created.

    A negative queue_id lets the broker choose. `properties` is a text as in `message.properties`.
    `batch`, not the request code, says that the body is a batch.
    """

    producer_group: str = ""
    topic: str
    default_topic: str = ""
    default_topic_queue_nums: I32 | None = None
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: str = ""
    reconsume_times: I32 = 0
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None
    batch: bool = False
    bname: str | None = None


class SendMessageRequestHeaderV2(Header, kw_only=True):
    """SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320): the same with one-letter names."""

    strict_numbers: ClassVar[bool] = True

    producer_group: str = field(name="a", default="")
    topic: str = field(name="b")
    default_topic: str = field(name="c", default="")
    default_topic_queue_nums: I32 | None = field(name="d", default=None)
    queue_id: I32 = field(name="e")
    sys_flag: I32 = field(name="f")
    born_timestamp: I64 = field(name="g")
    flag: I32 = field(name="h")
    properties: str = field(name="i", default="")
    reconsume_times: I32 = field(name="j", default=0)
    unit_mode: bool = field(name="k", default=False)
    max_reconsume_times: I32 | None = field(name="l", default=None)
    batch: bool = field(name="m", default=False)
    bname: str | None = field(name="n", default=None)

    def ext_json(self) -> bytes:
        # The proxy's header for every message, as one template.
        if self.max_reconsume_times is not None or self.default_topic_queue_nums is None:
            return Header.ext_json(self)
        return _REQUEST % (
            encode_json(self.producer_group),
            encode_json(self.topic),
            encode_json(self.default_topic),
            self.default_topic_queue_nums,
            self.queue_id,
            self.sys_flag,
            self.born_timestamp,
            self.flag,
            encode_json(self.properties),
            self.reconsume_times,
            b"true" if self.unit_mode else b"false",
            b"true" if self.batch else b"false",
            b"" if self.bname is None else b',"n":' + encode_json(self.bname),
        )


_REQUEST = (
    b'{"a":%b,"b":%b,"c":%b,"d":"%d","e":"%d","f":"%d","g":"%d","h":"%d","i":%b,"j":"%d",'
    b'"k":"%b","m":"%b"%b}'
)


class SendMessageResponseHeader(Header):
    """The answer to all three. A refused message has no id and offsets, but always the other
    fields: the Java client relies on the map.

    Attributes:
        msg_id: offset message id; for a batch the ids of all its messages, joined by commas.
        queue_offset: of the (first) message, in the queue that it physically went to.
        transaction_id: the UNIQ_KEY property, also for ordinary messages.
    """

    strict_numbers: ClassVar[bool] = True

    msg_id: str | None = None
    queue_id: I32 | None = None
    queue_offset: I64 | None = None
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region: str = field(name="MSG_REGION", default=DEFAULT_REGION)
    trace_on: bool = field(name="TRACE_ON", default=True)

    # Every message sent is answered by this header: one template for it as it nearly always is.

    def ext_json(self) -> bytes:
        msg_id = self.msg_id
        transaction_id = self.transaction_id
        if (
            msg_id is None
            or transaction_id is None
            or self.queue_id is None
            or self.queue_offset is None
            or self.batch_uniq_id is not None
            or self.recall_handle is not None
            or self.region != DEFAULT_REGION
        ):
            return Header.ext_json(self)
        # Ids go through the JSON encoder because clients choose transaction ids.
        return _STORED_JSON % (
            encode_json(msg_id),
            self.queue_id,
            self.queue_offset,
            encode_json(transaction_id),
            b"true" if self.trace_on else b"false",
        )

    def ext_binary(self) -> bytes:
        if (
            self.msg_id is None
            or self.transaction_id is None
            or self.queue_id is None
            or self.queue_offset is None
            or self.batch_uniq_id is not None
            or self.recall_handle is not None
            or self.region != DEFAULT_REGION
            or not self.trace_on
        ):
            return Header.ext_binary(self)
        msg_id = self.msg_id.encode()
        queue_id = b"%d" % self.queue_id
        queue_offset = b"%d" % self.queue_offset
        transaction_id = self.transaction_id.encode()
        return _STORED_BINARY % (
            pack_length(len(msg_id)),
            msg_id,
            pack_length(len(queue_id)),
            queue_id,
            pack_length(len(queue_offset)),
            queue_offset,
            pack_length(len(transaction_id)),
            transaction_id,
        )


_STORED_JSON = (
    b'{"msgId":%b,"queueId":"%d","queueOffset":"%d","transactionId":%b,'
    b'"MSG_REGION":"DefaultRegion","TRACE_ON":"%b"}'
)
_STORED_BINARY = (
    b"\0\5msgId%b%b\0\7queueId%b%b\0\x0bqueueOffset%b%b\0\x0dtransactionId%b%b"
    + encode_entries({"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"})
)


class ConsumerSendMsgBackRequestHeader(Header):
    """CONSUMER_SEND_MSG_BACK (36). `offset` is physical. delay_level: < 0 straight to the dead
    letters, 0 the broker decides, > 0 that level."""

    offset: I64
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None


class RecallMessageRequestHeader(Header):
    """RECALL_MESSAGE (370): takes a delayed message back."""

    topic: str = ""
    recall_handle: str = ""
    producer_group: str | None = None


class RecallMessageResponseHeader(Header):
    """The recalled message's unique id."""

    msg_id: str
