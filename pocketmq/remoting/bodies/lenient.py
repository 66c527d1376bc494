"""Bodies that are not spelled exactly, as fastjson reads them into Java's classes.

msgspec reads a body only where every key is spelled as RocketMQ spells it. fastjson does not mind
the case of a key, nor `_` and `-` in it, and it converts values: numbers from texts, names of
enumerations from their ordinals. Clients in other languages rely on that. `respelt` rewrites the
keys and values of such a body as RocketMQ writes them, and msgspec reads the result.

Work is in proportion to the body's length. Readers are made once for each class.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

from pocketmq.message import loose_json
from pocketmq.message.fastjson_text import FastjsonError
from pocketmq.message.message import MessageQueue

T = TypeVar("T")

MAX_LENGTH: Final = 4 << 20
"""Bytes of a body whose keys may be spelled in another way."""

Reader = Callable[[Any], Any]
"""Rewrites one value as RocketMQ writes it. A value that makes no sense stays as it is, and msgspec
refuses it. None means that the field is left out, which gives it its default."""


def respelt(fields: Any, kind: Any) -> Any:
    """Return `fields`, a decoded body, with the keys and values that `kind` expects.

    Unknown keys and nulls are left out, which gives a field its default.
    """
    return _object_reader(kind)(fields)


def convert(fields: Any, kind: type[T]) -> T:
    """Return `fields` as a struct, however they are spelled.

    Raises:
        msgspec.ValidationError: they have another shape.
    """
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError:
        return msgspec.convert(respelt(fields, kind), kind, strict=False)


def check_known(fields: Any, kind: Any) -> None:
    """Refuses an object without a known field.

    Raises:
        FastjsonError: it has keys, and none of them is known.
    """
    if isinstance(fields, dict) and fields:
        reader = _object_reader(kind)
        if not any(map(reader.name_of, fields)):
            keys = ", ".join(repr(key) for key in itertools.islice(fields, 5))
            raise FastjsonError(f"none of its keys is known: {keys:.200}; known are {reader.known}")


def folded(name: str) -> str:
    """A key as fastjson compares it."""
    return name.replace("_", "").replace("-", "").lower()


class _ObjectReader:
    """Reads the fields of one class."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._readers: dict[str, Reader | None] = {
            name: _reader(kind) for name, kind in fields.items()
        }
        self._folded = {folded(name): name for name in fields}
        # The getter's name, which some clients use for the field.
        for name, kind in fields.items():
            if kind is bool:
                self._folded.setdefault(f"is{folded(name)}", name)
        self.known = ", ".join(fields)

    def name_of(self, key: str) -> str | None:
        """The field that `key` means."""
        return key if key in self._readers else self._folded.get(folded(key))

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        result: dict[str, Any] = {}
        readers = self._readers
        for key, item in value.items():
            name = key if key in readers else self._folded.get(folded(key))
            # An exact spelling wins, then the first one.
            if name is None or (name is not key and name in result):
                continue
            reader = readers[name]
            if reader is not None and item is not None:
                item = reader(item)
            if item is not None:
                result[name] = item
        return result


@cache
def _object_reader(kind: Any) -> _ObjectReader:
    return _ObjectReader({f.encode_name: f.type for f in msgspec.structs.fields(kind)})


@cache
def _queue_reader() -> _ObjectReader:
    return _ObjectReader({"topic": str, "brokerName": str, "queueId": int})


def _reader(kind: Any) -> Reader | None:
    """The reader of values of a type; None for one that takes anything."""
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (argument for argument in get_args(kind) if argument is not type(None))
    origin = get_origin(kind)
    if origin is Annotated:
        inner, meta = get_args(kind)
        return _EnumReader(meta.extra["enum"]) if meta.extra else _reader(inner)
    if origin is list:
        return _list_reader(_reader(get_args(kind)[0]))
    if origin is dict:
        key, item = get_args(kind)
        return _map_reader(_queue_key if key is MessageQueue else None, _reader(item))
    if kind is MessageQueue:
        return _queue_reader()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _object_reader(kind)
    return _SIMPLE.get(kind)


def _list_reader(item: Reader | None) -> Reader:
    def read(value: Any) -> Any:
        if item is None or not isinstance(value, list):
            return value
        return [item(one) for one in value]

    return read


def _map_reader(key: Callable[[str], str] | None, item: Reader | None) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            name if key is None else key(name): one if item is None else item(one)
            for name, one in value.items()
            if one is not None
        }

    return read


def _queue_key(text: str) -> str:
    try:
        fields = loose_json.decode(text)
    except FastjsonError:
        return text
    return msgspec.json.encode(_queue_reader()(fields)).decode()


class _EnumReader:
    """Names of a Java enumeration, in the order of their ordinals."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def __call__(self, value: Any) -> Any:
        if type(value) is int and 0 <= value < len(self._names):
            return self._names[value]
        if isinstance(value, str):
            return value if value.upper() not in self._names else value.upper()
        return value


_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_ZEROS: Final = re.compile(r"\.0*\Z")
_HUGE: Final = 2.0**64
_NO_VALUE: Final = frozenset({"", "null", "NULL"})
_TRUE: Final = frozenset({"true", "1", "y", "t"})
_FALSE: Final = frozenset({"false", "0", "n", "f"})


def _integer(value: Any) -> Any:
    if isinstance(value, str):
        if value in _NO_VALUE:
            return None
        text = _ZEROS.sub("", value.replace(",", ""))
        return int(text) if _INTEGER.fullmatch(text) else value
    # A number that no integer of Java holds stays as it is, and is refused.
    return int(value) if isinstance(value, float | bool) and abs(value) < _HUGE else value


def _boolean(value: Any) -> Any:
    if isinstance(value, str):
        if value in _NO_VALUE:
            return None
        word = value.lower()
        return word in _TRUE if word in _TRUE or word in _FALSE else value
    if isinstance(value, int | float):
        return value == 1
    return value


def _number(value: Any) -> Any:
    return None if isinstance(value, str) and value in _NO_VALUE else value


def _text(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


_SIMPLE: Final[dict[Any, Reader]] = {
    int: _integer,
    bool: _boolean,
    float: _number,
    str: _text,
}
