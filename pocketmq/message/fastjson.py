"""fastjson's dialect of JSON, which Java peers and RocketMQ's config files speak.

It differs from JSON in three things:

- keys that are not strings stand there bare: integers `{0:1}` and even objects
  `{{"brokerName":"b","queueId":1,"topic":"T"}:7}` (a MessageQueue as key);
- the same object met twice is written as `{"$ref":"$.path.to[0].first"}`;
- null fields are left out.

Readers here take all of it and standard JSON as well: an integer key becomes its text, an object
key the text of its JSON, which is also how standard JSON writes such keys. Input may come from any
peer, so work and memory stay in proportion to its length.
"""

import functools
import re
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from pocketmq.message.message import MessageQueue

T = TypeVar("T")


class FastjsonError(ValueError):
    """Text that is neither JSON nor fastjson's dialect of it, or not of the wanted shape."""


class ShapeError(FastjsonError):
    """Text that could be read, but is not of the wanted shape."""


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
    return _resolve(value) if _has_reference(data) else value


def decode_into(data: bytes | bytearray | memoryview | str, kind: type[T]) -> T:
    """Read `data` into a msgspec type.

    Standard JSON goes the whole way in C. Numbers and booleans may come as text and the other way
    round (`strict=False`), since Java's readers do not mind either.

    Raises:
        FastjsonError: it cannot be read.
        ShapeError: it is not of that shape.
    """
    if not _has_reference(data):
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


_MAX_DEPTH: Final = 200

# A string (the closing quote is optional here so that a missing one is found at once instead of
# being looked for from every quote again), a brace, or anything between them.
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}]|[^"{}]+', re.DOTALL)
# Within what stands between strings and braces: a bare key, known by its surroundings. The text
# before begins at a brace, so "^" stands for one.
_BARE_KEY: Final = re.compile(r"(^|,)(\s*)(-?[0-9]+|[A-Za-z_$][\w$]*)(?=\s*:)")
_COLON: Final = re.compile(r"\s*:")


def _decode_dialect(data: bytes | bytearray | memoryview | str) -> Any:
    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
        return msgspec.json.decode(_standard_json(text))
    except UnicodeDecodeError as error:
        raise FastjsonError(f"not UTF-8: {error}") from None
    except msgspec.DecodeError as error:
        raise FastjsonError(str(error)) from None
    except RecursionError:
        raise FastjsonError("nested too deeply") from None


def _standard_json(text: str) -> str:
    """Put quotes around bare keys; around an object key they enclose its escaped JSON."""
    parts: list[str] = []
    # For each open brace: where in parts it stands, and whether an object key was met within.
    opened: list[tuple[int, bool]] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        first = token[0]
        if first == '"':
            if len(token) == 1 or token[-1] != '"':
                raise FastjsonError(f"a string without end at character {match.start()}")
        elif first == "{":
            if len(opened) == _MAX_DEPTH:
                raise FastjsonError("nested too deeply")
            opened.append((len(parts), False))
        elif first == "}":
            if not opened:
                raise FastjsonError(f"a closing brace too many at character {match.start()}")
            begin, has_object_key = opened.pop()
            if _COLON.match(text, match.end()):
                # Each level of keys within keys would double the backslashes of the one before.
                if has_object_key:
                    raise FastjsonError("an object as key within an object as key")
                has_object_key = True
                key = "".join(parts[begin:]) + token
                del parts[begin:]
                token = str(msgspec.json.encode(key), "utf-8")
            if opened and has_object_key:
                opened[-1] = (opened[-1][0], True)
        else:
            token = _BARE_KEY.sub(r'\1\2"\3"', token)
        parts.append(token)
    return "".join(parts)


# ------------------------------------------------------------------------------------- references

_MAX_NODES: Final = 2_000_000
"""Values that the references of one text may expand to."""
_PATH_STEP: Final = re.compile(r"\.((?:\\.|[^.\[\\])+)|\[(\d+)\]", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def _has_reference(data: bytes | bytearray | memoryview | str) -> bool:
    if isinstance(data, str):
        return '"$ref"' in data
    return b'"$ref"' in (bytes(data) if isinstance(data, memoryview) else data)


def _resolve(root: Any) -> Any:
    """Put the objects that `$ref` means where it stands. They are shared, not copied."""
    for holder, key, path in list(_references(root)):
        holder[key] = _target(root, path)
    _check_expansion(root, 0, {})
    return root


def _references(root: Any) -> Iterator[tuple[Any, Any, str]]:
    """Every (container, key or index, path) where a reference stands below `root`."""
    pending = [root]
    while pending:
        holder = pending.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, value in items:
            if (path := _path_of(value)) is not None:
                yield holder, key, path
            elif isinstance(value, dict | list):
                pending.append(value)


def _path_of(value: Any) -> str | None:
    if isinstance(value, dict) and len(value) == 1:
        path = value.get("$ref")
        if isinstance(path, str):
            return path
    return None


def _target(root: Any, path: str) -> Any:
    """Return the value at `$.name[0].na\\-me`; a backslash precedes special characters."""
    if not path.startswith("$"):
        raise FastjsonError(f"a reference that does not start at the root: {path!r}")
    value = root
    at = 1
    while at < len(path):
        step = _PATH_STEP.match(path, at)
        if step is None:
            raise FastjsonError(f"a reference that cannot be read: {path!r}")
        at = step.end()
        try:
            if step[2] is None:
                value = value[_ESCAPED.sub(r"\1", step[1])]
            else:  # an index, or the key of a map with integer keys
                value = value[step[2]] if isinstance(value, dict) else value[int(step[2])]
        except (KeyError, IndexError, TypeError, ValueError):
            raise FastjsonError(f"a reference to nothing: {path!r}") from None
    if _path_of(value) is not None:
        raise FastjsonError(f"a reference to a reference: {path!r}")
    return value


def _check_expansion(value: Any, depth: int, sizes: dict[int, int]) -> int:
    """Count the values below `value`, those that are shared as often as they are met.

    References can tie a circle, or double at every level; what comes after walks the whole tree.
    """
    if not isinstance(value, dict | list):
        return 1
    known = sizes.get(id(value))
    if known == 0:
        raise FastjsonError("a reference to an object that encloses it")
    if known is None:
        if depth == _MAX_DEPTH:
            raise FastjsonError("nested too deeply")
        sizes[id(value)] = 0  # being counted
        inner = value.values() if isinstance(value, dict) else value
        known = 1 + sum(_check_expansion(item, depth + 1, sizes) for item in inner)
        sizes[id(value)] = known
    if known > _MAX_NODES:
        raise FastjsonError(f"references that expand to more than {_MAX_NODES} values")
    return known


# ---------------------------------------------------------------------------------------- writing


_json: Final = msgspec.json.Encoder().encode


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


def _write(value: Any, standard: bool, parts: list[bytes]) -> None:
    if isinstance(value, str | int | float):  # most are
        parts.append(_json(value))
    elif isinstance(value, dict):
        _write_object([(_key(key, standard), item) for key, item in value.items()], standard, parts)
    elif isinstance(value, msgspec.Struct):
        fields = _fields(type(value))
        _write_object([(key, getattr(value, name)) for key, name in fields], standard, parts)
    elif isinstance(value, MessageQueue):
        parts.append(_queue_json(value))
    elif isinstance(value, list | tuple | set | frozenset):
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
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[bytes, str], ...]:
    """Return the key of each field, as JSON, and its attribute."""
    return tuple((_json(field.encode_name), field.name) for field in msgspec.structs.fields(kind))


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
