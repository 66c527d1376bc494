"""A message about to be stored, and the detours that keep it from where it was sent for a while.

The hot path of sends stores ordinary messages itself. What may not be readable at once (delayed,
timed and half messages), and what the broker writes on its own account (messages sent back, due
or committed ones), passes through `PutHooks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from pocketmq.message import properties as names
from pocketmq.message.record import Record
from pocketmq.message.tags import tag_hash
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import PutResult

Buffer: TypeAlias = bytes | bytearray | memoryview


class InnerMessage(msgspec.Struct):
    """A message that is not stored yet; `born_host` packed, times in Unix ms.

    `tags_code` is what the consume queue will hold: None for the hash of the TAGS property.
    `accepted`: it is of a message that was stored once, and acknowledged.
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
"""Looks at a draft and moves it to another topic if it is for that; raises RemotingError to
refuse it."""


class PutHooks:
    """Stores drafts. `detours` are tried in their order until one moves the draft: when it comes
    back from there, the others have their turn."""

    def __init__(self, store: MessageStore) -> None:
        self.detours: list[PutHook] = []
        self._store = store

    def put(self, draft: InnerMessage, *, direct: bool = False) -> PutResult:
        """Store it, after the detours unless `direct`; waiting for the disk is the caller's.

        Raises RemotingError when a detour refuses it, or it is said to be an inner batch.
        """
        if not draft.accepted:
            refuse_inner(draft.properties)
        if not direct:
            topic = draft.topic
            for detour in self.detours:
                detour(draft)
                if draft.topic != topic:
                    break
        tags_code = draft.tags_code
        if tags_code is None:
            tags_code = tag_hash(draft.properties.get(names.TAGS, ""))
        return self._store.put(
            draft.topic,
            draft.queue_id,
            draft.body,
            names.encode(draft.properties),
            flag=draft.flag,
            sys_flag=draft.sys_flag,
            born_timestamp=draft.born_timestamp,
            born_host=draft.born_host,
            reconsume_times=draft.reconsume_times,
            prepared_transaction_offset=draft.prepared_transaction_offset,
            tags_code=tags_code,
            accepted=draft.accepted,
        )


def refuse_inner(properties: Mapping[str, str]) -> None:
    """Raises MESSAGE_ILLEGAL for what says how many messages it is. Official brokers take that for
    a number wherever they read it in a log, and do not read on when it is none."""
    if names.INNER_NUM in properties:
        raise RemotingError(
            ResponseCode.MESSAGE_ILLEGAL, f"property {names.INNER_NUM} is for inner batches only"
        )


def inner_message_of(record: Record) -> InnerMessage:
    """A stored message, to be stored once more; its body is copied out of the commit log."""
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
