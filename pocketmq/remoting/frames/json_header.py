"""JSON headers.

Readers are tolerant, because many writers exist: extFields values may be bare numbers or booleans,
keys may be missing, unknown or in another spelling, the language may be any word, and a text of up
to `loose_json.MAX_LENGTH` bytes need not be standard JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from pocketmq.message import loose_json
from pocketmq.remoting.bodies.lenient import folded
from pocketmq.remoting.codes import LanguageCode
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.frames.command import Command, SerializeType
from pocketmq.remoting.headers.base import json_string, text_of

# All errors of a decoder for foreign bytes: msgspec's own, recursion too deep, and numbers of
# thousands of digits.
DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)

_JSON = SerializeType.JSON
_decode_command = msgspec.json.Decoder(Command).decode
_decode_any = msgspec.json.Decoder().decode
_OPAQUE = re.compile(rb'"opaque"\s*:\s*"?(-?\d{1,10})(?!\d)')
_OTHER_EXT_FIELDS = re.compile(rb'"(?!extFields")(?i:ext[_-]*fields)"')
_FLAG = re.compile(rb'"flag"\s*:\s*"?(\d{1,10})(?!\d)')


def decode_json_header(head: bytes | memoryview) -> Command:
    """Return the command of a header's JSON text, still without its body.

    Raises:
        HeaderError: it is not a JSON object, or a field of it is invalid; with the opaque if the
            text has one.
    """
    try:
        command = _decode_command(head)
    except DECODE_ERRORS:
        return _decode_tolerantly(head)
    if not command.ext_fields and _OTHER_EXT_FIELDS.search(head):
        return _decode_tolerantly(head)
    # These fields do not belong in the text, so a peer's value is dropped. The body, which does not
    # either, is about to be set.
    command.serialize_type = _JSON
    return command


def _decode_tolerantly(head: bytes | memoryview) -> Command:
    try:
        value = _decode_any(head) if len(head) > loose_json.MAX_LENGTH else loose_json.decode(head)
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, got {type(value).__name__}")
        fields = {folded(name): item for name, item in value.items()}
        ext_fields = fields.get("extfields")
        if ext_fields is None:
            ext_fields = {}
        elif not isinstance(ext_fields, dict):
            raise ValueError("extFields is not an object")
        return Command(
            code=_number(fields, "code", None),
            opaque=_number(fields, "opaque", 0),
            flag=_number(fields, "flag", 0),
            language=_language(fields.get("language")),
            version=_number(fields, "version", 0),
            remark=_remark(fields.get("remark")),
            ext_fields={
                name: _text(value) for name, value in ext_fields.items() if value is not None
            },
        )
    except DECODE_ERRORS as error:
        raise broken_json_header(head, str(error)) from None


def broken_json_header(head: bytes | memoryview, why: str) -> HeaderError:
    """Return the error for a header that cannot be read, with the fields found in its text."""
    text = bytes(head)
    opaque = _OPAQUE.search(text)
    flag = _FLAG.search(text)
    number = int(opaque[1]) if opaque else None
    if number is not None and not -(2**31) <= number < 2**31:
        number = None
    return HeaderError(
        f"broken JSON header: {why}",
        opaque=number,
        flag=int(flag[1]) if flag else 0,
        serialize_type=SerializeType.JSON,
    )


def _number(fields: Mapping[str, Any], name: str, default: int | None) -> int:
    value = fields.get(name, default)
    if isinstance(value, str):
        value = int(value)
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise ValueError(f"{name} is {value!r:.40}, expected a 32-bit number")
    return value


def _language(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return LanguageCode(value).name
    except ValueError:
        return "JAVA"


def _remark(value: Any) -> str | None:
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return text_of(value)
    return msgspec.json.encode(value).decode()


def encode_json_header(
    code: int,
    opaque: int,
    flag: int,
    ext: bytes | None,
    remark: str | None,
    language: str,
    version: int,
) -> bytes:
    """Return a header's bytes. `ext` is the extFields object; without one the key is left out.

    The keys come in the order of Java peers.
    """
    return _HEADER % (
        code,
        b"" if ext is None else b'"extFields":%b,' % ext,
        flag,
        json_string(language),
        opaque,
        b"" if remark is None else b'"remark":%b,' % json_string(remark),
        version,
    )


_HEADER = (
    b'{"code":%d,%b"flag":%d,"language":%b,"opaque":%d,%b"serializeTypeCurrentRPC":"JSON",'
    b'"version":%d}'
)
