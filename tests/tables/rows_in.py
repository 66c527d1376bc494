"""What a reader finds in a table, without pocketmq."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars
from pyarrow import parquet


def rows_in(directory: Path, format: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    if format == "delta":
        if not (directory / "_delta_log").is_dir():
            return []
        found: list[dict[str, Any]] = polars.read_delta(str(directory)).to_dicts()
        return found
    return _rows(directory)


def dead_letters_in(directory: Path) -> list[dict[str, Any]]:
    return _rows(directory / "_dead_letters")


def _rows(directory: Path) -> list[dict[str, Any]]:
    paths = sorted(directory.glob("*.parquet"))
    return [row for path in paths for row in parquet.ParquetFile(path).read().to_pylist()]
