"""Headers of looking up stored messages."""

from __future__ import annotations

from msgspec import field

from pocketmq.remoting.headers.base import I32, I64, Header


class ViewMessageRequestHeader(Header):
    """VIEW_MESSAGE_BY_ID (33). offset is physical."""

    offset: I64
    topic: str | None = None


class QueryMessageRequestHeader(Header, kw_only=True):
    """QUERY_MESSAGE (12): by key or, with unique_key_query, by unique id; times in ms.

    Attributes:
        index_type: from 5.4 on, T is by tags; K (key), U (unique id) and all else is by key or id.
        last_key: from 5.4 on, the place after which an index in RocksDB goes on.
    """

    topic: str = ""
    key: str = ""
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    unique_key_query: bool = field(name="_UNIQUE_KEY_QUERY", default=False)
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageResponseHeader(Header):
    """The end of the index: the last indexed message's store time (ms) and physical offset."""

    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64
