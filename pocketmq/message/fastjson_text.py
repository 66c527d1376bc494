"""fastjson's dialect of JSON as text: made into standard JSON, and its references resolved.

`pocketmq.message.fastjson` describes the dialect, and reads it with msgspec. This is for readers
that work without msgspec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final


class FastjsonError(ValueError):
    """Text that is neither JSON nor fastjson's dialect of it, or does not have the wanted shape."""


_MAX_DEPTH: Final = 200

# A string (the closing quote is optional here so that a missing one is found at once instead of
# being searched from every quote again), a brace, or anything between them.
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}]|[^"{}]+', re.DOTALL)
# Within the text between strings and braces: a bare key, known by its surroundings. The text
# before it begins at a brace, so "^" stands for one.
_BARE_KEY: Final = re.compile(r"(^|,)(\s*)(-?[0-9]+|[A-Za-z_$][\w$]*)(?=\s*:)")
_COLON: Final = re.compile(r"\s*:")


def decode(data: bytes | str) -> Any:
    """Read `data` into dicts (with string keys), lists, strings, numbers, booleans and None.

    Raises:
        FastjsonError: it cannot be read.
    """
    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
        try:
            value = json.loads(text)
        except ValueError:
            value = json.loads(standard_json(text))
    except FastjsonError:
        raise
    except ValueError as error:
        raise FastjsonError(str(error)) from None
    except RecursionError:
        raise FastjsonError("nested too deeply") from None
    return resolve(value, len(data)) if has_reference(data) else value


def standard_json(text: str) -> str:
    """Put quotes around bare keys; around an object key they enclose its escaped JSON."""
    parts: list[str] = []
    # For each open brace: its index in parts, and whether an object key was met within.
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
                # Each level of keys within keys would double the backslashes of the previous one.
                if has_object_key:
                    raise FastjsonError("an object as key within an object as key")
                has_object_key = True
                key = "".join(parts[begin:]) + token
                del parts[begin:]
                token = json.dumps(key, ensure_ascii=False)
            if opened and has_object_key:
                opened[-1] = (opened[-1][0], True)
        else:
            token = _BARE_KEY.sub(r'\1\2"\3"', token)
        parts.append(token)
    return "".join(parts)


_LEAST_NODES: Final = 10_000
"""Values that the references of any text may expand to, and those of a longer one as many as it has
characters: later steps take a time for each of them."""
_PATH_STEP: Final = re.compile(r"\.((?:\\.|[^.\[\\])+)|\[(\d+)\]", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def has_reference(data: bytes | bytearray | memoryview | str) -> bool:
    """Return whether `resolve` may have something to do."""
    if isinstance(data, str):
        return '"$ref"' in data
    return b'"$ref"' in (bytes(data) if isinstance(data, memoryview) else data)


def resolve(root: Any, length: int) -> Any:
    """Replace each `$ref` by the object that it refers to. Objects are shared, not copied.

    `length`: the characters of the text that `root` was read from, which bound the expansion.
    """
    for holder, key, path in list(_references(root)):
        holder[key] = _target(root, path)
    _check_expansion(root, max(length, _LEAST_NODES), 0, {})
    return root


def _references(root: Any) -> Iterator[tuple[Any, Any, str]]:
    """Every (container, key or index, path) of a reference below `root`."""
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


def _check_expansion(value: Any, most: int, depth: int, sizes: dict[int, int]) -> int:
    """Count the values below `value`, shared ones as often as they are met.

    References can form a cycle, or double at every level; later steps walk the whole tree.
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
        known = 1 + sum(_check_expansion(item, most, depth + 1, sizes) for item in inner)
        sizes[id(value)] = known
    if known > most:
        raise FastjsonError(f"references that expand to more than {most} values")
    return known
