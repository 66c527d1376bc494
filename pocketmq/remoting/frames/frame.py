"""Frames to commands and back, for both header serializations. No I/O.

    length i32 | serialize type u8, header length u24 | header | body

`length` counts what follows it. The rest of this package passes frames without those 4 bytes, as
`FrameSplitter` yields them.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct as Layout

from pocketmq.remoting.codes import VERSION
from pocketmq.remoting.errors import EncodeError, FrameError, HeaderError
from pocketmq.remoting.frames.binary_header import decode_binary_header, encode_binary_header
from pocketmq.remoting.frames.command import Command, SerializeType
from pocketmq.remoting.frames.json_header import decode_json_header, encode_json_header
from pocketmq.remoting.frames.splitter import MAX_FRAME, FrameSplitter
from pocketmq.remoting.headers.base import Header, encode_entries, json_object, json_string

__all__ = [
    "MAX_FRAME",
    "Command",
    "EncodeError",
    "FrameError",
    "FrameSplitter",
    "HeaderError",
    "SerializeType",
    "cut_response",
    "decode_command",
    "encode_command",
    "encode_request",
    "encode_response_frame",
    "join_response",
]

# Before Python 3.12, looking up these two and comparing takes a fifth of the time of a decode.
_JSON, _BINARY = map(int, SerializeType)

_MAX_HEADER = 0xFFFFFF

MAX_REMARK = 4_096
"""Characters of a response's remark: it says what went wrong, without all of the request."""

_unpack_word = Layout(">I").unpack_from
_pack_words = Layout(">II").pack
_pack_opaque = Layout(">i").pack
_OPAQUE_AT = 13
"""Where the opaque is in a frame with a binary header: after lengths, code, language, version."""


def decode_command(frame: bytes | memoryview) -> Command:
    """Decode a frame (without its length bytes) of either direction.

    Raises:
        FrameError: header length beyond the frame, or an unknown serialize type.
        HeaderError: the header is broken; has the opaque if that can be read.
    """
    size = len(frame)
    if size < 4:
        raise FrameError(f"frame of {size} bytes has no room for its header length")
    word = _unpack_word(frame)[0]
    end = 4 + (word & _MAX_HEADER)
    if end > size:
        raise FrameError(f"header of {end - 4} bytes in a frame of {size}")
    kind = word >> 24
    if kind == _JSON:
        command = decode_json_header(frame[4:end])
    elif kind == _BINARY:
        command = decode_binary_header(frame[4:end])
    else:
        raise FrameError(f"unknown serialize type {kind}")
    command.body = frame[end:]
    return command


def encode_command(
    code: int,
    opaque: int,
    *,
    flag: int = 0,
    header: Header | None = None,
    ext_fields: Mapping[str, str] | None = None,
    body: bytes | bytearray | memoryview = b"",
    remark: str | None = None,
    serialize_type: int = SerializeType.JSON,
    language: str = "PYTHON",
    version: int = VERSION,
) -> bytes:
    """Return a whole frame, length bytes and body included. `ext_fields` go beside the header's
    fields.

    Raises:
        EncodeError: a code above 32 767 with a binary header; a header over 16 MiB.
    """
    if serialize_type == 0:
        head = encode_json_header(
            code, opaque, flag, _ext_json(header, ext_fields), remark, language, version
        )
    else:
        head = encode_binary_header(
            code, opaque, flag, _ext_entries(header, ext_fields), remark, language, version
        )
    return b"".join((_frame_words(serialize_type, len(head), len(body)), head, body))


def encode_request(
    code: int,
    opaque: int,
    header: Header | None,
    body: bytes | bytearray | memoryview,
    flag: int = 0,
    ext_fields: Mapping[str, str] | None = None,
) -> bytes:
    """Return the whole frame of an own request, whose header is JSON.

    Every message is sent through here: without `ext_fields` it is one text with holes.

    Raises:
        EncodeError: a header over 16 MiB.
    """
    if header is None or ext_fields:
        return encode_command(
            code, opaque, flag=flag, header=header, ext_fields=ext_fields, body=body
        )
    head = _REQUEST % (code, header.ext_json(), flag, opaque)
    size = len(head)
    if size > _MAX_HEADER:
        raise _too_long(size)
    return b"".join((_pack_words(4 + size + len(body), size), head, body))


_REQUEST = (
    b'{"code":%%d,"extFields":%%b,"flag":%%d,"language":"PYTHON","opaque":%%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION
)


def encode_response_frame(
    serialize_type: int,
    opaque: int,
    code: int = 0,
    remark: str | None = None,
    header: Header | None = None,
    body_length: int = 0,
    ext_fields: Mapping[str, str] | None = None,
) -> bytes:
    """Return a response frame up to its body, which the caller sends right after it.

    Every message is answered through here: the usual answers (JSON) are fixed texts with holes.

    Raises:
        EncodeError: a code above 32 767 with a binary header; a header over 16 MiB.
    """
    if remark is not None and len(remark) > MAX_REMARK:
        remark = f"{remark[:MAX_REMARK]}..."
    if serialize_type == 0:
        if header is not None and not ext_fields:
            if remark is None:
                data = _RESPONSE % (code, header.ext_json(), opaque)
            else:
                data = _REMARKED % (code, header.ext_json(), opaque, json_string(remark))
            size = len(data)
            if size <= _MAX_HEADER:
                return _pack_words(4 + size + body_length, size) + data
        else:
            data = encode_json_header(
                code, opaque, 1, _ext_json(header, ext_fields), remark, "PYTHON", VERSION
            )
    else:
        data = encode_binary_header(
            code, opaque, 1, _ext_entries(header, ext_fields), remark, "PYTHON", VERSION
        )
    return _frame_words(serialize_type, len(data), body_length) + data


def cut_response(
    serialize_type: int, code: int, remark: str | None, header: Header | None
) -> tuple[bytes, bytes]:
    """Return the parts before and after the opaque in the frame of a response without a body.

    With a JSON header the first part begins after the two lengths, which depend on the opaque.

    Raises:
        EncodeError: a code above 32 767 with a binary header; a header over 16 MiB.
    """
    frame = encode_response_frame(serialize_type, 0, code, remark, header)
    if serialize_type:
        return frame[:_OPAQUE_AT], frame[_OPAQUE_AT + 4 :]
    # Inside of a JSON text, quotes are escaped.
    before, mark, after = frame[8:].partition(b'"opaque":')
    return before + mark, after.removeprefix(b"0")


def join_response(serialize_type: int, before: bytes, opaque: int, after: bytes) -> bytes:
    """Return the frame that `cut_response` has cut, with an opaque."""
    if serialize_type:
        return b"".join((before, _pack_opaque(opaque), after))
    data = b"%b%d%b" % (before, opaque, after)
    size = len(data)
    return _pack_words(4 + size, size) + data


_RESPONSE = (
    b'{"code":%%d,"extFields":%%b,"flag":1,"language":"PYTHON","opaque":%%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION
)
_REMARKED = (
    b'{"code":%%d,"extFields":%%b,"flag":1,"language":"PYTHON","opaque":%%d,"remark":%%b,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION
)


def _frame_words(serialize_type: int, head_length: int, body_length: int) -> bytes:
    if head_length > _MAX_HEADER:
        raise _too_long(head_length)
    return _pack_words(4 + head_length + body_length, serialize_type << 24 | head_length)


def _too_long(head_length: int) -> EncodeError:
    return EncodeError(f"header of {head_length} bytes, at most {_MAX_HEADER} fit")


def _ext_json(header: Header | None, ext_fields: Mapping[str, str] | None) -> bytes | None:
    if not ext_fields:
        return None if header is None else header.ext_json()
    return json_object(ext_fields if header is None else header.to_ext() | dict(ext_fields))


def _ext_entries(header: Header | None, ext_fields: Mapping[str, str] | None) -> bytes:
    if not ext_fields:
        return b"" if header is None else header.ext_binary()
    return encode_entries(ext_fields if header is None else header.to_ext() | dict(ext_fields))
