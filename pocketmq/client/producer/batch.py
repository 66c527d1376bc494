"""Splits a list of messages into batches that brokers accept.

A batch has one topic, one value of WAIT, and a body of at most `max_bytes`. A message that is too
large to share a batch is sent as a single message, which may be compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from pocketmq.client.producer.prepared_message import (
    SHORT,
    PreparedMessage,
    message_properties,
    wait_property,
)
from pocketmq.client.validation import check_batchable, check_message, check_properties_length
from pocketmq.message.batch_body import BatchBody
from pocketmq.message.message import Message
from pocketmq.remoting.codes import RequestCode

#: The most messages in one batch: the answer has an id of 32 or 56 characters for each.
MAX_BATCH_MESSAGES = 10_000


class BatchPart(msgspec.Struct):
    """The messages of one batch. `indexes`: their indexes in the list that was split."""

    topic: str
    wait_stored: bool
    body: BatchBody = msgspec.field(default_factory=BatchBody)
    indexes: list[int] = msgspec.field(default_factory=list)
    msg_ids: list[str] = msgspec.field(default_factory=list)

    def add(self, message: Message, properties: bytes, msg_id: str, max_bytes: int) -> int:
        """Add a message; return its bytes in the body, 0 if it does not fit because of `max_bytes`
        or MAX_BATCH_MESSAGES."""
        msg_ids = self.msg_ids
        if len(msg_ids) >= MAX_BATCH_MESSAGES:
            return 0
        content = message.body
        if type(content) is not bytes:
            content = bytes(content)  # a copy: the caller may change it before the batch is sent
        size = self.body.add(message.flag, content, properties, max_bytes)
        if size:
            msg_ids.append(msg_id)
        return size

    def single(self, extra: str = "") -> PreparedMessage:
        """Return its only message, as a single send; raises InvalidMessage for its properties."""
        flag, body, properties = self.body.first()
        text = properties.decode() + extra + wait_property(self.wait_stored)
        check_properties_length(text)
        return PreparedMessage(
            RequestCode.SEND_MESSAGE_V2,
            self.topic,
            body,
            text,
            self.msg_ids,
            flag,
            shared=True,
        )

    def outgoing(self, extra: str = "") -> PreparedMessage:
        """Return all messages, as a batch."""
        # Brokers append the header's properties to those of each message, so WAIT need not be in
        # each. But each message has its own unique id: with the reference's one id for the whole
        # batch, they would be indistinguishable.
        return PreparedMessage(
            RequestCode.SEND_BATCH_MESSAGE,
            self.topic,
            self.body.encode(),
            extra + wait_property(self.wait_stored),
            self.msg_ids,
            batch=True,
            shared=True,
        )


def split(
    messages: Sequence[Message],
    new_id: Callable[[], str],
    *,
    max_bytes: int,
    max_message_size: int,
    extra: str = "",
) -> list[BatchPart]:
    """Return the batches for these messages, which keep their order.

    Raises InvalidMessage or InvalidName for the first message that breaks a rule.
    """
    return list(_parts(messages, new_id, max_bytes, max_message_size, extra))


def _parts(
    messages: Sequence[Message],
    new_id: Callable[[], str],
    max_bytes: int,
    max_message_size: int,
    extra: str,
) -> Iterator[BatchPart]:
    growing: dict[tuple[str, bool], BatchPart] = {}
    for index, message in enumerate(messages):
        check_message(message, max_message_size)
        check_batchable(message)
        wait = message.wait_stored
        msg_id = new_id()
        properties = batch_properties(message, msg_id, extra)
        key = (message.topic, wait)
        part = growing.get(key)
        if part is None or not part.add(message, properties, msg_id, max_bytes):
            if part is not None:
                yield part
            part = growing[key] = BatchPart(message.topic, wait)
            part.add(message, properties, msg_id, max_bytes)
        part.indexes.append(index)
    yield from growing.values()


def batch_properties(message: Message, msg_id: str, extra: str = "") -> bytes:
    """Encode the properties of one message of a batch, and `extra`; raises InvalidMessage."""
    text = message_properties(message, msg_id) + extra
    # Short ASCII, the usual case, always fits and can be encoded.
    if len(text) > SHORT or not text.isascii():
        check_properties_length(text + wait_property(message.wait_stored))
    return text.encode()
