"""The tables in docs/ of the fields of a class, or of the members of an enumeration, have them all.

A table of fields stands behind a comment `<!-- fields: module.Class -->`, one of members behind
`<!-- members: module.Class -->`; its first column is the name.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

DOCS = Path(__file__).parents[2] / "docs"
MARK = re.compile(r"<!-- (fields|members): ([\w.]+) -->\n((?:\|.*\n)+)")


def tables() -> Iterator[tuple[str, str, str]]:
    for page in sorted(DOCS.glob("*.md")):
        yield from MARK.findall(page.read_text())


def fields(kind: type) -> set[str]:
    """Public attributes of the objects, and properties."""
    slots: Iterable[str] = getattr(kind, "__slots__", ())
    if issubclass(kind, msgspec.Struct):
        slots = kind.__struct_fields__
    properties = (name for name, _ in inspect.getmembers(kind, inspect.isdatadescriptor))
    return {name for name in (*slots, *properties) if not name.startswith("_")}


@pytest.mark.parametrize(("what", "name", "rows"), [*tables()], ids=lambda value: value[:40])
def test_the_table_is_complete(what: str, name: str, rows: str) -> None:
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    told = re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)
    assert len(told) == len(set(told))
    assert set(told) == (fields(found) if what == "fields" else set(found.__members__))


def test_there_are_tables_of_what_programs_receive() -> None:
    names = {name for _, name, _ in tables()}
    assert names >= {"pocketmq.MessageExt", "pocketmq.types.ConsumerEventKind"}
    assert names >= {"pocketmq.hooks.SendContext", "pocketmq.hooks.ConsumeContext"}
