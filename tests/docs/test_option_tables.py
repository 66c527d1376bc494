"""The tables of options in docs/ list every option of the class that they name, with its default.

A table stands behind a comment `<!-- options: module.Class -->`; its first column is the option,
and a column `default` is compared with the signature.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, is_typeddict

import pytest

DOCS = Path(__file__).parents[2] / "docs"
MARK = re.compile(r"<!-- options: ([\w.]+) -->\n((?:\|.*\n)+)")


def tables() -> Iterator[tuple[str, str, str]]:
    for page in sorted(DOCS.glob("*.md")):
        for name, rows in MARK.findall(page.read_text()):
            yield page.name, name, rows


def read(rows: str) -> list[dict[str, str]]:
    head, _, *body = (
        [cell.strip() for cell in row.strip("|").split(" |")] for row in rows.splitlines()
    )
    return [dict(zip(head, cells, strict=True)) for cells in body]


def options(name: str) -> dict[str, Any]:
    """The options by name, with their defaults; a TypedDict has none."""
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    if is_typeddict(found):
        return dict.fromkeys(found.__annotations__, inspect.Parameter.empty)
    return {
        parameter.name: parameter.default
        for parameter in inspect.signature(found).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def plain(default: Any) -> Any:
    return default.value if isinstance(default, Enum) else default


@pytest.mark.parametrize(("page", "name", "rows"), [*tables()], ids=lambda value: value[:30])
def test_every_option_is_in_the_table_with_its_default(page: str, name: str, rows: str) -> None:
    table = {row["option"].strip("`"): row for row in read(rows)}
    known = options(name)
    assert list(table) == list(known), f"{page}: the options of {name}, in their order"
    for option, row in table.items():
        assert row["meaning"], f"{page}: {option} has no meaning"
        assert row["type"], f"{page}: {option} has no type"
        if "default" in row:
            told = ast.literal_eval(row["default"])
            assert told == plain(known[option]), f"{page}: the default of {option}"


def test_there_is_a_table_for_producers() -> None:
    assert "pocketmq.Producer" in {name for _, name, _ in tables()}
