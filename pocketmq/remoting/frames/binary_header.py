"""ROCKETMQ binary headers.

code i16 | language u8 | version i16 | opaque i32 | flag i32 | remark length i32, remark
| ext length i32, entries of (key length i16, key, value length i32, value)
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct as Layout

from pocketmq.remoting.codes import LanguageCode
from pocketmq.remoting.errors import EncodeError, HeaderError
from pocketmq.remoting.frames.command import Command, SerializeType

MAX_CODE = 32_767

_FIXED = Layout(">hBhiii")
FIXED_SIZE = _FIXED.size
"""Bytes before the remark."""

_unpack_fixed = _FIXED.unpack_from
_unpack_i32 = Layout(">i").unpack_from
_pack_i32 = Layout(">i").pack
_NAMES = {code.value: code.name for code in LanguageCode}
_NUMBERS = {code.name: code.value for code in LanguageCode}
_OTHER = LanguageCode.OTHER.value


def decode_binary_header(head: bytes | memoryview) -> Command:
    """Return the command of a header's bytes, still without its body.

    Raises:
        HeaderError: lengths that contradict each other, or texts that are not UTF-8; with opaque
            and flag if the header is long enough to hold them.
    """
    data = bytes(head)
    size = len(data)
    if size < FIXED_SIZE + 4:
        raise broken_binary_header(data, f"{size} bytes, at least {FIXED_SIZE + 4} are needed")
    code, language, version, opaque, flag, remark_length = _unpack_fixed(data)
    try:
        entries = FIXED_SIZE + remark_length
        if not 0 <= remark_length <= size - FIXED_SIZE - 4:
            raise ValueError(f"remark of {remark_length} bytes")
        ext_length = _unpack_i32(data, entries)[0]
        entries += 4
        if not 0 <= ext_length <= size - entries:
            raise ValueError(f"extFields of {ext_length} bytes, {size - entries} are there")
        return Command(
            code=code,
            opaque=opaque,
            flag=flag,
            language=_NAMES.get(language, ""),
            version=version,
            remark=data[FIXED_SIZE : entries - 4].decode() if remark_length else None,
            # An empty key or value reads as null, and null entries do not exist.
            ext_fields={
                key.decode(): data[start:end].decode()
                for key, start, end in iter_entries(data, entries, entries + ext_length)
                if key and end > start
            },
            serialize_type=SerializeType.ROCKETMQ,
        )
    except ValueError as error:
        raise broken_binary_header(data, str(error)) from None


def broken_binary_header(head: bytes, why: str) -> HeaderError:
    """Return the error for a header that cannot be read, with the fields found at its start."""
    size = len(head)
    return HeaderError(
        f"broken binary header: {why}",
        opaque=_unpack_i32(head, 5)[0] if size >= 9 else None,
        flag=_unpack_i32(head, 9)[0] if size >= 13 else 0,
        serialize_type=SerializeType.ROCKETMQ,
    )


def iter_entries(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield key, and start and end of the value, of each entry in `data[start:end]`.

    Raises:
        ValueError: a length does not fit.
    """
    while start < end:
        if end - start < 6:
            raise ValueError(f"{end - start} bytes left over after the last extField")
        key_start = start + 2
        key_end = key_start + (data[start] << 8 | data[start + 1])
        start = key_end + 4
        if start > end:
            raise ValueError(f"extField name of {key_end - key_start} bytes")
        length = _unpack_i32(data, key_end)[0]
        value_start = start
        start += length
        if length < 0 or start > end:
            raise ValueError(f"extField value of {length} bytes")
        yield data[key_start:key_end], value_start, start


def encode_binary_header(
    code: int,
    opaque: int,
    flag: int,
    entries: bytes,
    remark: str | None,
    language: str,
    version: int,
) -> bytes:
    """Return a header's bytes; `entries` as `pocketmq.remoting.headers.base.encode_entries` gives
    them.

    Raises:
        EncodeError: a code above 32 767.
    """
    if code > MAX_CODE:
        raise EncodeError(f"code {code} does not fit a binary header, use JSON")
    text = b"" if remark is None else remark.encode("utf-8", "replace")
    number = _NUMBERS.get(language, _OTHER)
    fixed = _FIXED.pack(code, number, version, opaque, flag, len(text))
    return b"%b%b%b%b" % (fixed, text, _pack_i32(len(entries)), entries)
