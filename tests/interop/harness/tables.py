"""What mqadmin prints, as data."""

from __future__ import annotations

import json
import re
from typing import Any


def columns(text: str) -> list[dict[str, str]]:
    """A table with a heading line of `#Name` columns, as one dict per row.

    Columns are at least two blanks apart (cells such as `1-0(0.0w, 0.0, 0.0)` hold single ones).
    Rows end at the first line with another number of cells.
    """
    lines = text.splitlines()
    heading = next((at for at, line in enumerate(lines) if line.startswith("#")), None)
    if heading is None:
        raise AssertionError(f"no table in:\n{text}")
    names = [name.strip() for name in lines[heading].split("#")[1:]]
    rows = []
    # A wide offset of queryMsgByKey of 5.5 comes one blank before its key.
    blanks = r"\s+" if "IndexKey" in names else r"\s{2,}"
    for line in lines[heading + 1 :]:
        cells = re.split(blanks, line.strip())
        if len(cells) != len(names):
            break
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


def fields(text: str) -> dict[str, str]:
    """Lines of `name : value`, as brokerStatus and queryMsgById print them."""
    lines = (line for line in text.splitlines() if "|-" not in line)  # logback's begin with a time
    matches = (re.match(r"([\w \-/.]+?)\s*:\s*(.*?)\s*$", line) for line in lines)
    return {match[1]: match[2] for match in matches if match}


def fastjson(text: str) -> Any:
    """JSON whose integer keys are bare, as fastjson prints a route."""
    return json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text))
