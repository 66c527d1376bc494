"""fastjson's dialect of JSON, which Java peers and RocketMQ's config files speak.

It differs from JSON in three things:

- keys that are not strings are written without quotes: integers `{0:1}` and even objects
  `{{"brokerName":"b","queueId":1,"topic":"T"}:7}` (a MessageQueue as key);
- the same object met twice is written as `{"$ref":"$.path.to[0].first"}`;
- null fields are left out.

Readers here take all of it and standard JSON as well: an integer key becomes its text, an object
key the text of its JSON, which is also how standard JSON writes such keys. Input may come from any
peer, so work and memory are proportional to its length.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Mapping
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec
import msgspec.inspect

from pocketmq.message.fastjson_text import FastjsonError, has_reference, resolve, standard_json
from pocketmq.message.message import MessageQueue

T = TypeVar("T")


class ShapeError(FastjsonError):
    """Text that could be read, but does not have the wanted shape."""


# ---------------------------------------------------------------------------------------- reading


def decode(data: bytes | bytearray | memoryview | str) -> Any:
    """Read `data` into dicts (with string keys), lists, strings, numbers, booleans and None.

    Raises:
        FastjsonError: it cannot be read.
    """
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = _decode_dialect(data)
    except RecursionError:
        raise FastjsonError("nested too deeply") from None
    return resolve(value, len(data)) if has_reference(data) else value


def decode_into(data: bytes | bytearray | memoryview | str, kind: type[T]) -> T:
    """Read `data` into a msgspec type.

    Standard JSON is parsed entirely in C. Numbers and booleans may come as text and the other way
    round (`strict=False`), since Java's readers accept both.

    Raises:
        FastjsonError: it cannot be read.
        ShapeError: it does not have that shape.
    """
    if not has_reference(data):
        try:
            return msgspec.json.decode(data, type=kind, strict=False)
        except msgspec.ValidationError as error:
            raise ShapeError(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # perhaps the dialect
        except RecursionError:
            raise FastjsonError("nested too deeply") from None
    try:
        return msgspec.convert(decode(data), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ShapeError(str(error)) from error


def message_queue_of(key: str) -> MessageQueue:
    """Return the MessageQueue whose JSON text is the key of a map.

    Raises:
        ShapeError: the text is not such an object.
    """
    try:
        queue = msgspec.json.decode(key, type=_QueueKey, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ShapeError(f"not a MessageQueue: {key[:200]!r}: {error}") from error
    return MessageQueue(queue.topic, queue.broker_name, queue.queue_id)


class _QueueKey(msgspec.Struct, rename="camel"):
    """A MessageQueue as JSON. Java orders the fields of its beans by name."""

    broker_name: str
    queue_id: int
    topic: str


def _decode_dialect(data: bytes | bytearray | memoryview | str) -> Any:
    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
        return msgspec.json.decode(standard_json(text))
    except UnicodeDecodeError as error:
        raise FastjsonError(f"not UTF-8: {error}") from None
    except msgspec.DecodeError as error:
        raise FastjsonError(str(error)) from None
    except RecursionError:
        raise FastjsonError("nested too deeply") from None


# ---------------------------------------------------------------------------------------- writing


_json: Final = msgspec.json.Encoder().encode
_WORK_OF_STEP: Final = 200
_PARTS_OF_ENTRY: Final = 20
"""Offsets or names in an entry that take as long to write as an entry of its own."""


def encode(value: Any, *, standard: bool = False) -> bytes:
    """Write `value` (dicts, lists, msgspec structs, plain values) as fastjson would.

    Keys that are integers or `MessageQueue` objects are written bare, as old peers and the
    Go client want them; with `standard` they are strings, which Java since 4.x reads as well.
    Fields and entries that are None are left out.

    Raises:
        TypeError: something JSON has no form for.
    """
    parts: list[bytes] = []
    _write(value, standard, parts)
    return b"".join(parts)


def encode_steps(table: Mapping[Any, Any]) -> Generator[None, None, msgspec.Raw]:
    """Write a table as a part of a value to encode; write some entries in each step."""
    pieces = []
    some = {}
    work = 0
    for key, value in dict(table).items():
        some[key] = value
        work += 1 + (len(value) // _PARTS_OF_ENTRY if isinstance(value, dict | list) else 0)
        if work >= _WORK_OF_STEP:
            pieces.append(encode(some)[1:-1])
            some = {}
            work = 0
            yield
    pieces.append(encode(some)[1:-1])
    return msgspec.Raw(b"{%b}" % b",".join(filter(None, pieces)))


def _write(value: Any, standard: bool, parts: list[bytes]) -> None:
    if isinstance(value, str | int | float):  # most are
        parts.append(_json(value))
    elif isinstance(value, dict):
        kinds = set(map(type, chain(value, value.values())))
        if kinds == {str}:
            parts.append(_json(value))
        elif kinds == {int} and not standard:  # such as offsets by queue id
            parts.append(str(value).replace(" ", "").encode())
        else:
            items = [(_key(key, standard), item) for key, item in value.items()]
            _write_object(items, standard, parts)
    elif isinstance(value, msgspec.Struct):
        separator = b"{"
        for key, name, plain in _fields(type(value)):
            if (item := getattr(value, name)) is not None:
                parts += (separator, key, b":")
                if plain:
                    parts.append(_json(item))
                else:
                    _write(item, standard, parts)
                separator = b","
        parts.append(b"{}" if separator == b"{" else b"}")
    elif isinstance(value, MessageQueue):
        parts.append(_queue_json(value))
    elif isinstance(value, list | tuple | set | frozenset):
        if set(map(type, value)) == {str}:
            parts.append(_json(value))
            return
        parts.append(b"[")
        for number, item in enumerate(value):
            if number:
                parts.append(b",")
            _write(item, standard, parts)
        parts.append(b"]")
    else:
        parts.append(_json(value))


def _write_object(items: list[tuple[bytes, Any]], standard: bool, parts: list[bytes]) -> None:
    separator = b"{"
    for key, value in items:
        if value is not None:
            parts += (separator, key, b":")
            _write(value, standard, parts)
            separator = b","
    parts.append(b"{}" if separator == b"{" else b"}")


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[bytes, str, bool], ...]:
    """Return the key of each field, as JSON, its attribute, and whether msgspec writes its values
    as fastjson does: it takes a tenth of the time."""
    return tuple(
        (_json(field.encode_name), field.name, _is_plain(msgspec.inspect.type_info(field.type)))
        for field in msgspec.structs.fields(kind)
    )


def _is_plain(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.Metadata):
        return _is_plain(kind.type)
    if isinstance(kind, msgspec.inspect.ListType):
        return _is_plain(kind.item_type)
    if isinstance(kind, msgspec.inspect.DictType):
        return isinstance(kind.key_type, msgspec.inspect.StrType) and _is_plain(kind.value_type)
    if isinstance(kind, msgspec.inspect.StructType):
        return all(plain for _, _, plain in _fields(kind.cls))
    return isinstance(
        kind,
        msgspec.inspect.StrType
        | msgspec.inspect.IntType
        | msgspec.inspect.FloatType
        | msgspec.inspect.BoolType,
    )


def _key(key: Any, standard: bool) -> bytes:
    if isinstance(key, str):
        return _json(key)
    if isinstance(key, MessageQueue):
        text = _queue_json(key)
        return _json(text.decode()) if standard else text
    if isinstance(key, int) and not isinstance(key, bool):
        return b'"%d"' % key if standard else b"%d" % key
    raise TypeError(f"a map key must be a string, an integer or a MessageQueue: {key!r}")


def _queue_json(queue: MessageQueue) -> bytes:
    return _json(_QueueKey(queue.broker_name, queue.queue_id, queue.topic))
