"""A message about to be stored, and the put hooks that may store it in another topic first.

The hot path of sends stores ordinary messages itself. `PutHooks` stores all others: messages that
consumers must not read at once (delayed, timed and half messages), and messages that the broker
itself writes (sent back, due or committed ones). Reference: MessageExtBrokerInner, PutMessageHook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from pocketmq.broker.destinations import Destinations
from pocketmq.message import properties as names
from pocketmq.message.multi_dispatch import is_dispatched
from pocketmq.message.record import Record
from pocketmq.message.tags import tag_hash
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import PutResult, PutStatus
from pocketmq.store.writer import Put, Stored

_DISPATCH: Final = "INNER_MULTI_"  # begins the names of both properties

Buffer: TypeAlias = bytes | bytearray | memoryview


class InnerMessage(msgspec.Struct):
    """A message that is not stored yet; `born_host` is packed, times are in Unix ms.

    Attributes:
        tags_code: the tags code in the consume queue; None takes the hash of the TAGS property.
        accepted: the message was stored and acknowledged before, so it passes no checks.
    """

    topic: str
    queue_id: int
    body: Buffer
    properties: dict[str, str]
    born_timestamp: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    tags_code: int | None = None
    accepted: bool = False


PutHook: TypeAlias = Callable[[InnerMessage], object]
"""Moves a message to another topic if it must wait there; raises RemotingError to refuse it."""


class PutHooks:
    """Stores messages after their put hooks.

    Attributes:
        hooks: called in this order until one moves the message. When the message comes back from
            there, the hooks are called again.
        destinations: where late messages go; callers ask it before they put one.
    """

    def __init__(
        self,
        store: MessageStore,
        takes_messages: Callable[[str], bool] = lambda topic: True,
        destinations: Destinations | None = None,
    ) -> None:
        """`takes_messages(topic)` is false for topics whose messages only an official broker
        stores."""
        self.hooks: list[PutHook] = []
        self.destinations = destinations or Destinations()
        self._store = store
        self._takes_messages = takes_messages

    def put(self, inner: InnerMessage, *, direct: bool = False) -> PutResult:
        """Store a message, without calling the hooks if `direct`; do not wait for the disk.

        Raises:
            RemotingError: a hook refuses the message, it has the property INNER_NUM, or it has a
                property that cannot be encoded.
        """
        if not inner.accepted:
            refuse_inner(inner.properties)
        if not direct:
            self._run_hooks(inner)
        if not self._takes_messages(inner.topic):
            # Not MESSAGE_ILLEGAL: a delayed or half message waits for an official broker.
            return PutResult(
                PutStatus.SERVICE_NOT_AVAILABLE,
                remark=f"topic {inner.topic} is not served by this broker",
            )
        return self._store.put(
            inner.topic,
            inner.queue_id,
            inner.body,
            _text(inner),
            flag=inner.flag,
            sys_flag=inner.sys_flag,
            born_timestamp=inner.born_timestamp,
            born_host=inner.born_host,
            reconsume_times=inner.reconsume_times,
            prepared_transaction_offset=inner.prepared_transaction_offset,
            tags_code=_tags_code(inner),
            accepted=inner.accepted,
        )

    def prepare(self, inner: InnerMessage) -> Put | None:
        """Call the hooks for a message, and return an argument for `MessageStore.put_many`; None if
        the caller must pass an unchanged copy of the message to `put`, as it is for light queues.

        Raises:
            RemotingError: see `put`.
        """
        refuse_inner(inner.properties)
        self._run_hooks(inner)
        if names.INNER_MULTI_DISPATCH in inner.properties and is_dispatched(inner.topic):
            return None
        if not self._takes_messages(inner.topic):
            return None
        return (
            inner.topic,
            inner.queue_id,
            inner.body,
            _text(inner),
            inner.flag,
            inner.sys_flag,
            inner.born_timestamp,
            inner.born_host,
            inner.reconsume_times,
            inner.prepared_transaction_offset,
            _tags_code(inner),
        )

    def put_accepted(self, puts: Sequence[Put]) -> list[Stored]:
        """Store the first of these messages, as many as fit into one write, without calling hooks.

        They were stored and acknowledged before. Pass the first message that did not fit to `put`,
        as it is for light queues.
        """
        count = next((n for n, put in enumerate(puts) if _DISPATCH in put[3]), len(puts))
        puts = puts[:count]
        if puts and all(self._takes_messages(topic) for topic in {put[0] for put in puts}):
            return self._store.put_many(puts, accepted=True)
        return []

    def _run_hooks(self, inner: InnerMessage) -> None:
        topic = inner.topic
        for hook in self.hooks:
            hook(inner)
            if inner.topic != topic:
                break


def _text(inner: InnerMessage) -> str:
    # What was right for its former record.
    for name in (names.CRC32, names.INNER_MULTI_QUEUE_OFFSET):
        inner.properties.pop(name, None)
    try:
        return names.encode(inner.properties)
    except names.PropertiesError as error:
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None


def _tags_code(inner: InnerMessage) -> int:
    code = inner.tags_code
    return tag_hash(inner.properties.get(names.TAGS, "")) if code is None else code


def refuse_inner(properties: Mapping[str, str]) -> None:
    """Refuse a message with the property INNER_NUM.

    Official brokers parse this property as a number wherever they read it in a commit log, and
    stop reading when it is not a number.

    Raises:
        RemotingError: MESSAGE_ILLEGAL.
    """
    if names.INNER_NUM in properties:
        raise RemotingError(
            ResponseCode.MESSAGE_ILLEGAL, f"property {names.INNER_NUM} is for inner batches only"
        )


def inner_message_of(record: Record) -> InnerMessage:
    """Return a stored message as one to store again; its body is copied out of the commit log."""
    return InnerMessage(
        record.topic,
        record.queue_id,
        bytes(record.body),
        dict(record.properties),
        record.born_timestamp,
        record.born_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        accepted=True,
    )
