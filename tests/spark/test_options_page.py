"""docs/spark.md has every option of reads, with its default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pocketmq.spark.options.options import NAMES, Options, Use

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \| .*\|$", re.MULTILINE)
SECTIONS = {
    "\n## Options": (Use.BATCH, {"path": "/store"}),
    "\n## Reading from running brokers": (Use.BATCH, {"namesrv": "a:9876"}),
    "\n### Options of streams": (Use.STREAM, {"path": "/store"}),
}
WITHOUT_DEFAULT = {
    "path", "paths", "subscribe", "subscribePattern", "assign", "startingTimestamp",
    "endingTimestamp", "maxRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "namesrv", "tags", "sql", "accessKey", "secretKey", "securityToken", "tlsCaFile",
    "tlsCertFile", "tlsKeyFile",
}  # fmt: skip


def rows(section: str) -> list[tuple[str, str]]:
    text = PAGE.read_text().partition(section)[2]
    return [(name, default) for name, _, default in ROW.findall(re.split("\n##+ ", text)[0])]


def defaults() -> Iterator[tuple[str, str, str]]:
    for section in SECTIONS:
        for name, default in rows(section):
            if name not in WITHOUT_DEFAULT and default != "as above":
                yield section, name, default.partition(";")[0].strip("`")


def test_every_option_is_there() -> None:
    assert {name for section in SECTIONS for name, _ in rows(section)} == {*NAMES}
    assert {name for _, name, _ in defaults()} == {*NAMES} - WITHOUT_DEFAULT


@pytest.mark.parametrize(("section", "name", "default"), [*defaults()])
def test_an_option_with_its_default_changes_nothing(section: str, name: str, default: str) -> None:
    use, options = SECTIONS[section]
    assert Options.parse({**options, name: default}, use) == Options.parse(options, use)
