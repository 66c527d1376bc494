"""The golden stores of the official 5.3.3 broker, unpacked once, with their message lists."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


class GoldenStore(NamedTuple):
    commit_log: list[tuple[int, bytes]]
    """(base physical offset, content) of each file, in order."""
    config: dict[str, bytes]
    """Name and content of the files of config/."""
    messages: dict[int, dict[str, Any]]
    """What the official client pulled, by physical offset."""


def read_golden(name: str) -> GoldenStore:
    commit_log = []
    config = {}
    with tarfile.open(GOLDEN / f"store-5.3.3-{name}.tar.gz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            path = Path(member.name)
            if path.parent.name == "commitlog":
                commit_log.append((int(path.name), file.read()))
            elif path.parent.name == "config":
                config[path.name] = file.read()
    messages = json.loads((GOLDEN / f"store-5.3.3-{name}.json").read_text("utf-8"))
    return GoldenStore(sorted(commit_log), config, {m["physicalOffset"]: m for m in messages})


@pytest.fixture(scope="session")
def golden_clean() -> GoldenStore:
    return read_golden("clean")


@pytest.fixture(scope="session", params=["clean", "killed"])
def golden(request: pytest.FixtureRequest) -> GoldenStore:
    return read_golden(request.param)
