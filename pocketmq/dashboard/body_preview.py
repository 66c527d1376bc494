"""Bodies of messages for people: as JSON, text, or hexadecimal digits, cut to a size that fits on a
page."""

from __future__ import annotations

import enum
import itertools
from typing import Final

import msgspec

#: Characters of JSON and text that are shown.
MOST_TEXT: Final = 64 * 1024
#: Bytes that are shown as hexadecimal digits.
MOST_HEX: Final = 4 * 1024
#: The largest body that is tried as JSON, bytes, and its most levels: each line is indented by as
#: many, so a small body can become a hundred times larger.
MOST_JSON: Final = 128 * 1024
MOST_LEVELS: Final = 64
_ROW: Final = 16


class Form(enum.Enum):
    """How a body is shown."""

    JSON = "json"
    TEXT = "text"
    HEX = "hex"


class BodyPreview(msgspec.Struct, frozen=True, kw_only=True):
    """A body in one form, its available forms, its size in bytes, and whether it was cut."""

    form: Form
    forms: tuple[Form, ...]
    text: str
    size: int
    is_cut: bool


def preview(body: bytes, form: Form | None = None) -> BodyPreview:
    """Show a body in `form` if available, else in its natural form."""
    text = _beginning(body)
    pretty = None if text is None else _json(body)
    forms = tuple(
        each
        for each, has in (
            (Form.JSON, pretty is not None),
            (Form.TEXT, text is not None),
            (Form.HEX, True),
        )
        if has
    )
    chosen = form if form in forms else forms[0]
    if chosen is Form.HEX:
        return BodyPreview(
            form=chosen,
            forms=forms,
            text=_hex(body[:MOST_HEX]),
            size=len(body),
            is_cut=len(body) > MOST_HEX,
        )
    shown = pretty if chosen is Form.JSON else text
    assert shown is not None
    return BodyPreview(
        form=chosen,
        forms=forms,
        text=shown[:MOST_TEXT],
        size=len(body),
        is_cut=len(shown) > MOST_TEXT,
    )


def _beginning(body: bytes) -> str | None:
    """Return more than is shown of a text, so that one can tell whether it is cut; None if it is
    none. Looking at each character of a large body would block the event loop."""
    most = 4 * MOST_TEXT + 4
    return _text(body[:most], whole=len(body) <= most)


def excerpt(body: bytes, most: int) -> str:
    """Return the first characters of a body in one line, for lists."""
    text = _text(body[: 4 * most], whole=len(body) <= 4 * most)
    if text is None:
        cut = body[: most // 3].hex(" ")
        return cut + ("…" if len(body) > most // 3 else "")
    line = " ".join(text.split())
    return line if len(line) <= most and len(body) <= 4 * most else line[: most - 1] + "…"


def printable(text: str) -> str:
    """Return the text without control characters and characters that change the text direction."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def _text(body: bytes, *, whole: bool = True) -> str | None:
    """Return the text of a body without control characters; None if it is not UTF-8.

    The end of a partial body may be an incomplete character.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        if whole or error.start < len(body) - 3:
            return None
        text = body[: error.start].decode()
    return printable(text)


def _json(body: bytes) -> str | None:
    if body[:64].lstrip()[:1] not in (b"{", b"[") or len(body) > MOST_JSON or _is_deep(body):
        return None
    try:
        # Formatting leaves the tokens unchanged: numbers keep their digits, and keys their order.
        return _beginning(msgspec.json.format(body, indent=2))
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_deep(body: bytes) -> bool:
    """Return whether there are more levels than may be. Brackets in strings count, too."""
    steps = (1 if byte in b"[{" else -1 for byte in body if byte in b"[]{}")
    return any(level > MOST_LEVELS for level in itertools.accumulate(steps))


def _hex(body: bytes) -> str:
    rows = []
    for at in range(0, len(body), _ROW):
        row = body[at : at + _ROW]
        digits = row.hex(" ").ljust(3 * _ROW - 1)
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:08x}  {digits}  {letters}")
    return "\n".join(rows)
