"""A decoded frame of either direction, as both header serializations give it."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec

from pocketmq.remoting.headers.base import I32


class SerializeType(IntEnum):
    """How a frame's header is written: the high byte of its second word."""

    JSON = 0
    ROCKETMQ = 1


class Command(msgspec.Struct):
    """One frame.

    Attributes:
        language: name of the peer's language; empty for an unknown number in a binary header.
        version: the peer's release (see `pocketmq.remoting.codes.VERSION`).
        ext_fields: the custom header fields; may be empty.
        body: bytes, or a view of them; may be empty.
    """

    code: I32
    opaque: I32 = 0
    flag: I32 = 0
    language: str = "JAVA"
    version: I32 = 0
    remark: str | None = None
    ext_fields: dict[str, str] = msgspec.field(name="extFields", default_factory=dict)
    body: Any = b""
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """An answer to an own request, not a request."""
        return self.flag & 1 != 0

    @property
    def is_oneway(self) -> bool:
        """A request without an answer."""
        return self.flag & 2 != 0
