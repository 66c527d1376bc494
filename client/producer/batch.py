"""Splitting a list of messages into batches that a broker takes (spec 4.3).

One batch has one topic and one WAIT, and a body of at most `max_bytes`. A message too large to
share a batch goes alone, as an ordinary send (which may also compress it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from client.producer.outgoing import Outgoing, message_properties, wait_property
from client.validation import check_batchable, check_message, check_properties_length
from message.batch_body import encode_batch, item_size
from message.message import Message
from remoting.codes import RequestCode

__all__ = ["BatchPart", "split"]

#: Messages in one batch at most: the answer names an id of 32 or 56 characters for each.
MAX_BATCH_MESSAGES = 10_000

Item = tuple[int, bytes | bytearray | memoryview, bytes]


class BatchPart(msgspec.Struct):
    """Messages that travel together. `indexes` are their places in the list that was split."""

    topic: str
    wait_stored: bool
    size: int = 0
    indexes: list[int] = msgspec.field(default_factory=list)
    items: list[Item] = msgspec.field(default_factory=list)
    msg_ids: list[str] = msgspec.field(default_factory=list)

    def outgoing(self) -> Outgoing:
        # The header's properties are appended to those of each message: WAIT needs no place of
        # its own in every one. The unique ids stay with the messages, where the reference's one
        # id for the whole batch would make them indistinguishable.
        return Outgoing(
            RequestCode.SEND_BATCH_MESSAGE,
            self.topic,
            encode_batch(self.items),
            wait_property(self.wait_stored),
            self.msg_ids,
            batch=True,
            gathered=True,
        )


def split(
    messages: Sequence[Message],
    new_id: Callable[[], str],
    *,
    max_bytes: int,
    max_message_size: int,
) -> list[BatchPart]:
    """The batches for these messages, each in the order given; nothing is sent if one is wrong.

    Raises InvalidMessage or InvalidName for the first message that breaks a rule.
    """
    return list(_parts(messages, new_id, max_bytes, max_message_size))


def _parts(
    messages: Sequence[Message], new_id: Callable[[], str], max_bytes: int, max_message_size: int
) -> Iterator[BatchPart]:
    growing: dict[tuple[str, bool], BatchPart] = {}
    for index, message in enumerate(messages):
        check_message(message, max_message_size)
        check_batchable(message)
        wait = message.wait_stored
        msg_id = new_id()
        text = message_properties(message, msg_id)
        check_properties_length(text + wait_property(wait))
        properties = text.encode()
        size = item_size(len(message.body), len(properties))
        key = (message.topic, wait)
        part = growing.get(key)
        if part is None or part.size + size > max_bytes or len(part.items) >= MAX_BATCH_MESSAGES:
            if part is not None:
                yield part
            part = growing[key] = BatchPart(message.topic, wait)
        part.size += size
        part.indexes.append(index)
        part.items.append((message.flag, message.body, properties))
        part.msg_ids.append(msg_id)
    yield from growing.values()
