"""Bounds the parsed form of requests, not only their bytes. No I/O.

A field of two bytes becomes an object of a hundred. So the fields of a request are counted before
it is parsed, until they exceed the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pocketmq.proxy.rpc import GrpcError, GrpcStatus, MessageType

#: The most fields of a request at all depths, unless its kind allows more.
FEW: Final = 2_000

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

#: By field number: the fields of a nested message.
_Fields = Mapping[int, Any]


class Bounded:
    """The class of a protobuf message, with at most `most` fields at all depths."""

    __slots__ = ("_fields", "_most", "_parse")

    def __init__(self, message: MessageType, most: int = FEW) -> None:
        self._parse = message.FromString
        self._most = most
        self._fields = _fields_of(message.DESCRIPTOR, {})  # type: ignore[attr-defined]

    def FromString(self, data: bytes, /) -> Any:
        """Parse a request. Raises GrpcError."""
        # A field has at least two bytes.
        if len(data) > 2 * self._most and _exceed(data, self._fields, self._most):
            raise GrpcError(
                GrpcStatus.RESOURCE_EXHAUSTED, f"the request has more than {self._most} fields"
            )
        return self._parse(data)


def _fields_of(descriptor: Any, known: dict[str, dict[int, Any]]) -> _Fields:
    fields = known.get(descriptor.full_name)
    if fields is None:
        fields = known[descriptor.full_name] = {}
        for field in descriptor.fields:
            if field.message_type is not None:
                fields[field.number] = _fields_of(field.message_type, known)
    return fields


def _exceed(data: bytes, fields: _Fields, most: int) -> bool:
    """Return whether a message has more than `most` fields. The count of invalid bytes stops at the
    first error, as the parser does."""
    count = 0
    inner = [(0, len(data), fields)]
    while inner:
        at, end, fields = inner.pop()
        while at < end:
            count += 1
            if count > most:
                return True
            # Almost all numbers have one byte: a large request takes a third of the time so.
            tag = data[at]
            at += 1
            if tag > 127:
                tag, at = _varint(data, at - 1, end)
            kind = tag & 7
            if kind == _BYTES:
                length = data[at] if at < end else 0
                at += 1
                if length > 127:
                    length, at = _varint(data, at - 1, end)
                within = fields.get(tag >> 3)
                if within is not None:
                    inner.append((at, min(at + length, end), within))
                at += length
            elif kind == _VARINT:
                _, at = _varint(data, at, end)
            elif kind == _FIXED64:
                at += 8
            elif kind == _FIXED32:
                at += 4
            elif kind > 5:
                break
    return False


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            break
    return value, at
