"""A sample of the states that power cuts leave, and proof that a broken promise would be found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from .disk import Lie
from .power_loss import PowerLoss


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_what_a_power_cut_leaves(tmp_path: Path, flush: str) -> None:
    campaign = PowerLoss(tmp_path / "power", 1, sync=flush == "SYNC_FLUSH")
    await campaign.run(150)
    assert campaign.faults == []


async def test_what_a_power_cut_leaves_while_queues_are_unmapped(tmp_path: Path) -> None:
    """Fewer files of queues are mapped than are written to between two flushes."""
    campaign = PowerLoss(tmp_path / "power", 2, sync=False, most_mappings=2)
    await campaign.run(40)
    assert campaign.faults == []


def of_file(directory: str) -> Lie:
    return lambda kind, path: kind == "file" and path.parent.name == directory


def of_directory(name: str) -> Lie:
    return lambda kind, path: kind == "directory" and path.name == name


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        (of_file("commitlog"), "lost, the log ends"),
        (of_directory("commitlog"), "does not open|lost, the log ends|not readable"),
        (of_file("config"), "does not know the topic|does not load"),
        (of_directory("config"), "does not know the topic"),
    ],
    ids=["log", "names of the log", "tables", "names of tables"],
)
async def test_a_sync_that_is_left_out_is_found(
    tmp_path: Path, lie: Callable[[str, Path], bool], found: str
) -> None:
    """The proof can fail: a broker that leaves out one kind of sync breaks a promise."""
    campaign = PowerLoss(tmp_path / "power", 1, sync=True, lie=lie)
    await campaign.run(2_000)
    assert any(re.search(found, fault) for fault in campaign.faults), campaign.faults[:3]
