"""Output of commands for people and for scripts: tables, JSON lines, and error messages."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pocketmq.limited_log import printable
from pocketmq.remoting.serving.service import ExitCode

if TYPE_CHECKING:
    from rich.table import Table


def _plain(cell: str) -> str:
    return ""


def _if_any(colour: str) -> Callable[[str], str]:
    return lambda cell: "" if cell in ("", "0", "no") else colour


def _disk(cell: str) -> str:
    """A broker cleans up by force from 85% on, and refuses messages at 90%."""
    percent = int(cell.rstrip("%") or 0)
    return "bold red" if percent >= 85 else "yellow" if percent >= 75 else ""


#: Colours of cells on a terminal, by column title.
_STYLES: Final[Mapping[str, Callable[[str], str]]] = {
    "LAG": _if_any("yellow"),
    "DEAD LETTERS": _if_any("yellow"),
    "SILENT": _if_any("bold red"),
    "DISK": _disk,
    "DISK PERCENT": _disk,
    "CLIENTS": lambda cell: "dim" if cell == "0" else "",
}


#: What JSON may contain, and a terminal obeys: C1 controls, and the marks that reorder a line.
_OBEYED: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def json_line(value: Any) -> bytes:
    """Return a JSON value as a line, which cannot move the cursor of a terminal."""
    line = msgspec.json.encode(value).decode()
    if not line.isprintable():
        line = _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
    return f"{line}\n".encode()


def print_json(value: Any) -> None:
    """One JSON value on a line of its own."""
    sys.stdout.write(json_line(value).decode())


def print_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str) -> None:
    """Print a table of `rows`, which have the same keys; as JSON, one object a line.

    `empty` is the text for people, on stderr, if there are no rows.
    """
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        print_table(rows)
    else:
        print(empty, file=sys.stderr)


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Aligned columns: plain text, or in colours on a terminal."""
    titles, cells, right = _columns(rows)
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    # A table wider than the terminal is easier to read as wrapped lines than as folded cells.
    fits = sum(widths) + 2 * len(widths) <= shutil.get_terminal_size().columns
    if not (on_terminal() and fits and _rich_table(titles, cells, right)):
        _plain_table(titles, cells, right, widths)


def local_time(milliseconds: int) -> str:
    """Unix milliseconds as local time with its zone; nothing for 0 and below."""
    if milliseconds <= 0:
        return ""
    return dt.datetime.fromtimestamp(milliseconds / 1000).astimezone().isoformat(" ", "seconds")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 message, 2 messages."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _plain_table(
    titles: Sequence[str],
    cells: Sequence[Sequence[str]],
    right: Sequence[bool],
    widths: Sequence[int],
) -> None:
    for line in (titles, *cells):
        parts = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        ]
        print("  ".join(parts).rstrip())


def _rich_table(
    titles: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]
) -> bool:
    """Print with rich; False where it is not installed."""
    try:
        from rich.console import Console
    except ImportError:  # not in a base install
        return False
    Console().print(_table(titles, cells, right))
    return True


def rich_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows as a table of rich, which must be installed."""
    return _table(*_columns(rows))


def _table(titles: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    styles = [_STYLES.get(title, _plain) for title in titles]
    for title, number in zip(titles, right, strict=True):
        table.add_column(title, justify="right" if number else "left")
    for row in cells:
        table.add_row(*(Text(cell, style(cell)) for cell, style in zip(row, styles, strict=True)))
    return table


def _columns(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[list[str], list[list[str]], list[bool]]:
    """Return the titles, the cell texts by row, and which columns are numeric."""
    heads = list(rows[0])
    cells = [[_text(row[head]) for head in heads] for row in rows]
    right = [all(type(row[head]) in (int, float) for row in rows) for head in heads]
    return [_title(head) for head in heads], cells, right


def on_terminal() -> bool:
    """Whether stdout is a terminal that can show colours."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _title(name: str) -> str:
    """consumeTps as CONSUME TPS."""
    words = "".join(f" {letter}" if letter.isupper() else letter for letter in name)
    return words.upper()


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    return printable(str(value))


def complain(text: str, code: ExitCode) -> ExitCode:
    """Print an error message, and return its exit code."""
    # It may quote a server's answer, or somebody else's file.
    print("\n".join(map(printable, f"error: {text}".split("\n"))), file=sys.stderr)
    return code
