"""The headers of a producer's sends. Fields that are the same for a queue are encoded once."""

from __future__ import annotations

import time

from pocketmq.client.producer.prepared_message import PreparedMessage
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.headers.base import Header, encode_json
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2

#: The most queues whose share is cached. When there are more, the cache is emptied.
MAX_QUEUES = 4096


class QueueShare:
    """The fields that the headers of all sends to one queue have in common.

    `fields`: the header of an empty message. `template`: the encoded header with placeholders for
    the other fields.
    """

    __slots__ = ("fields", "template")

    def __init__(self, fields: SendMessageRequestHeaderV2) -> None:
        self.fields = fields
        texts = (fields.producer_group, fields.topic, fields.default_topic, fields.bname)
        group, topic, template, bname = (encode_json(text).replace(b"%", b"%%") for text in texts)
        self.template = _TEMPLATE % (
            group,
            topic,
            template,
            fields.default_topic_queue_nums,
            fields.queue_id,
            bname,
        )


_TEMPLATE = (
    b'{"a":%b,"b":%b,"c":%b,"d":"%d","e":"%d","f":"%%d","g":"%%d","h":"%%d","i":%%b,"j":"0",'
    b'"k":"false","m":"%%b","n":%b}'
)


class SendHeader(Header):
    """A SendMessageRequestHeaderV2 that is encoded in half the time."""

    share: QueueShare
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    batch: bool

    def to_ext(self) -> dict[str, str]:
        fields = self.share.fields.to_ext()
        return fields | {
            "f": str(self.sys_flag),
            "g": str(self.born_timestamp),
            "h": str(self.flag),
            "i": self.properties,
            "m": "true" if self.batch else "false",
        }

    def ext_json(self) -> bytes:
        return self.share.template % (
            self.sys_flag,
            self.born_timestamp,
            self.flag,
            encode_json(self.properties),
            b"true" if self.batch else b"false",
        )


class SendHeaders:
    """Creates the headers of one producer group. From `template` and `template_queues`, a broker
    creates a topic that does not exist."""

    def __init__(self, group: str, template: str, template_queues: int) -> None:
        self._group = group
        self._template = template
        self._template_queues = template_queues
        self._shares: dict[MessageQueue, QueueShare] = {}

    def header(self, outgoing: PreparedMessage, queue: MessageQueue) -> SendHeader:
        """Return the header of an attempt that begins now."""
        return SendHeader(
            self._shares.get(queue) or self._share(queue),
            outgoing.sys_flag,
            time.time_ns() // 1_000_000,
            outgoing.flag,
            outgoing.properties,
            outgoing.batch,
        )

    def _share(self, queue: MessageQueue) -> QueueShare:
        if len(self._shares) >= MAX_QUEUES:
            self._shares.clear()
        fields = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=queue.topic,
            default_topic=self._template,
            default_topic_queue_nums=self._template_queues,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
            bname=queue.broker_name,
        )
        share = self._shares[queue] = QueueShare(fields)
        return share
