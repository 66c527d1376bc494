"""What all typed headers share: the extFields of one request or response family as a struct.

A header's class has RocketMQ's name, its attributes are RocketMQ's fields in snake_case. On the
wire every value is a string, including numbers and booleans; a field that is None is left out. A
field without a default is mandatory: if it is missing, the request fails with HeaderError.

Integers are checked against their Java width when read, so that the store and the encoders get only
values that fit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from struct import Struct as Layout
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self

import msgspec

from pocketmq.remoting.errors import EncodeError, HeaderError

#: Java's int and long. Python's have no limit, and an attacker's take two kilobytes.
I32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
I64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

encode_json = msgspec.json.Encoder().encode
"""Any plain value as JSON. Raises UnicodeEncodeError for half a surrogate pair."""

_pack_key_length = Layout(">H").pack
pack_length = Layout(">i").pack
"""The length of a value in a binary header."""


class Header(msgspec.Struct, rename="camel", gc=False):
    """The extFields of a request or response. An instance of this class itself is an empty map.

    As in the reference, most headers treat a number that cannot be read as a missing one. Headers
    with `strict_numbers` refuse it: those that the reference decodes by hand, and answers in which
    a missing number has a meaning.
    """

    strict_numbers: ClassVar[bool] = False

    @classmethod
    def from_ext(cls, ext: Mapping[str, Any]) -> Self:
        """Read the fields from a map of strings; unknown keys are ignored.

        Raises:
            HeaderError: a mandatory field is missing, or is a number that cannot be read.
        """
        try:
            return msgspec.convert(ext, cls, strict=False)
        except msgspec.ValidationError as error:
            # Its text: the error itself in a variable would be in a cycle with the traceback, and
            # keep the whole request until a garbage collection.
            first = str(error)
        # Second try with Java's reading: any word but "true" is false, and numbers may begin with
        # a plus or zeros. Rare enough to stay off the path above.
        try:
            return msgspec.convert(_as_java_reads(cls, ext), cls, strict=False)
        except msgspec.ValidationError:
            raise HeaderError(f"{cls.__name__}: {first}") from None

    def to_ext(self) -> dict[str, str]:
        """Return the fields as they are on the wire."""
        return {
            name: value
            if type(value) is str
            else (str(value) if type(value) is int else text_of(value))
            for name, value in msgspec.to_builtins(self).items()
            if value is not None
        }

    def ext_json(self) -> bytes:
        """Return the extFields object of a JSON header.

        Hot headers override this with a template.
        """
        return json_object(self.to_ext())

    def ext_binary(self) -> bytes:
        """Return the entries of a ROCKETMQ header. Hot headers override this too."""
        return encode_entries(self.to_ext())


def text_of(value: Any) -> str:
    """Return a bare value as extFields carry it: booleans in lower case, codes as digits."""
    if value is True:
        return "true"
    if value is False:
        return "false"
    return int.__repr__(value) if isinstance(value, int) else str(value)


def encode_entries(ext: Mapping[str, str]) -> bytes:
    """Encode each entry as `i16 keyLen, key, i32 valueLen, value`; an empty value is read back as
    absent.

    Raises:
        EncodeError: a key is over 32 767 bytes, or a text has half a surrogate pair.
    """
    parts: list[bytes] = []
    for key, value in ext.items():
        try:
            name, data = key.encode(), value.encode()
        except UnicodeEncodeError as error:
            raise EncodeError(f"extField {key!r} is not Unicode text: {error}") from None
        if len(name) > 32_767:
            raise EncodeError(f"extField name of {len(name)} bytes, at most 32767 fit")
        parts += (_pack_key_length(len(name)), name, pack_length(len(data)), data)
    return b"".join(parts)


def json_string(text: str) -> bytes:
    """Return the JSON form of a string, quotes included; halves of surrogate pairs become `?`."""
    try:
        return encode_json(text)
    except UnicodeEncodeError:
        return encode_json(text.encode("utf-8", "replace").decode())


def json_object(ext: Mapping[str, str]) -> bytes:
    """Return the JSON form of an extFields map.

    Raises:
        EncodeError: a value is not a string, or no Unicode text.
    """
    try:
        return encode_json(ext)
    except (TypeError, UnicodeEncodeError) as error:
        raise EncodeError(f"extFields cannot be written: {error}") from None


class _Fields(NamedTuple):
    """What Java reads in its own way: fields by name, with the bounds of numbers."""

    booleans: frozenset[str]
    numbers: dict[str, tuple[int, int]]


@cache
def _fields_of(cls: type[Header]) -> _Fields:
    booleans = set()
    numbers = {}
    for field in msgspec.structs.fields(cls):
        kind, bounds = _kind(field.type)
        if kind is bool:
            booleans.add(field.encode_name)
        elif kind is int:
            numbers[field.encode_name] = bounds
    return _Fields(frozenset(booleans), numbers)


_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_LONG: Final = (-(2**63), 2**63 - 1)


def _as_java_reads(cls: type[Header], ext: Mapping[str, Any]) -> dict[str, Any]:
    booleans, numbers = _fields_of(cls)
    result: dict[str, Any] = {}
    for key, value in ext.items():
        if isinstance(value, str):
            if key in booleans:
                value = value.lower() == "true"
            elif key in numbers:
                low, high = numbers[key]
                number = int(value) if _NUMBER.fullmatch(value) else None
                if number is not None and low <= number <= high:
                    value = number
                elif not cls.strict_numbers:
                    continue
        result[key] = value
    return result


def _kind(kind: Any) -> tuple[Any, tuple[int, int]]:
    """Return bool, int ... of `I32`, `I32 | None`, `bool | None`, and the bounds of a number."""
    if hasattr(kind, "__metadata__"):
        (meta,) = kind.__metadata__
        return kind.__origin__, (meta.ge, meta.le)
    for argument in getattr(kind, "__args__", ()):
        if argument is not type(None):
            return _kind(argument)
    return kind, _LONG
