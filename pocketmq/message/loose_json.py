"""Converts JSON in all forms that fastjson's lexer takes to standard JSON.

`pocketmq.message.fastjson` reads what Java peers write. fastjson also reads what others write:
texts in single quotes, control characters within texts, extra commas, `Set[…]`, comments, `+1`,
`01` and `1L`, a byte order mark, NUL at the end. Some clients rely on that. Bare keys are left as
they are, because `pocketmq.message.fastjson` reads them.

Such texts are short in practice. They are limited to `MAX_LENGTH`, and the work is proportional to
their length: up to 3 µs for each byte.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pocketmq.message import fastjson
from pocketmq.message.fastjson_text import FastjsonError

MAX_LENGTH: Final = 4 << 10
"""Bytes of a text that is read like this."""

# The ends of texts and comments are optional here so that a missing one is found at once.
_TOKEN: Final = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"?'
    r"|'[^'\\]*(?:\\.[^'\\]*)*'?"
    r"|/\*(?:[^*]|\*(?!/))*(?:\*/)?|//[^\n]*"
    r"|[{}\[\],:]|[^\"'{}\[\],:/]+|/",
    re.DOTALL,
)
_END: Final = " \t\r\n\f\b\0\x1a"
_COLLECTIONS: Final = frozenset({"Set", "TreeSet"})
_NUMBER: Final = re.compile(r"\s*([+-]?)([0-9]+)((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)[LSB]?\s*")
_IN_TEXT: Final = re.compile(r'\\x([0-9a-fA-F]{2})|\\(.)|["\x00-\x1f]', re.DOTALL)
_ESCAPES: Final = {"'": "'", "v": "\\u000b", "0": "\\u0000"} | {
    c: f"\\{c}" for c in '"\\/bfnrtu'
}  # fastjson also knows \1 to \7, which no client is known to write


def decode(data: bytes | bytearray | memoryview | str) -> Any:
    """Read `data`, in the standard form or any other that fastjson takes.

    Raises:
        FastjsonError: it cannot be read.
    """
    try:
        return fastjson.decode(data)
    except FastjsonError:
        if len(data) > MAX_LENGTH:
            raise
    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise FastjsonError(f"not UTF-8: {error}") from None
    return fastjson.decode(_standard(text.removeprefix("\ufeff").rstrip(_END)))


def _standard(text: str) -> str:
    parts: list[str] = []
    # A comma is written only between two values.
    comma = False
    last = ","
    for match in _TOKEN.finditer(text):
        token = match.group()
        first = token[0]
        if first == "/" and token[1:2] == "*" and (len(token) < 4 or token[-2:] != "*/"):
            raise FastjsonError(f"a comment without end at character {match.start()}")
        if token.isspace() or token.startswith(("/*", "//")):
            continue
        if first == ",":
            comma = last not in ",{["
            continue
        if first in "\"'":
            if len(token) == 1 or token[-1] != first:
                raise FastjsonError(f"a string without end at character {match.start()}")
            token = f'"{_IN_TEXT.sub(_escaped, token[1:-1])}"'
        elif first not in "{}[]:":
            if number := _NUMBER.fullmatch(token):
                sign, digits, rest = number.groups()
                token = f"{sign.strip('+')}{digits.lstrip('0') or '0'}{rest}"
        elif first == "[" and last.strip() in _COLLECTIONS:
            parts.pop()
        if comma and first not in "}]":
            parts.append(",")
        comma = False
        parts.append(token)
        last = token
    return "".join(parts)


def _escaped(match: re.Match[str]) -> str:
    if match[1] is not None:
        return f"\\u00{match[1]}"
    if match[2] is not None:
        return _ESCAPES.get(match[2], match[0])
    character = match[0]
    return '\\"' if character == '"' else f"\\u{ord(character):04x}"
