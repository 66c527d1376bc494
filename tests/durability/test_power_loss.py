"""A sample of the states that power cuts leave, and proof that a broken promise would be found."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fast_files import memory_directory

from .bugs import BUGS
from .power_loss import PowerLoss


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=memory_directory()) as directory:
        yield Path(directory) / "power"


@pytest.fixture
def share(request: pytest.FixtureRequest) -> float:
    """How much of its states a test tries: all of them with --long."""
    return 1.0 if request.config.getoption("--long") else 0.4


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_what_a_power_cut_leaves(root: Path, flush: str, share: float) -> None:
    campaign = PowerLoss(root, 1, sync=flush == "SYNC_FLUSH")
    await campaign.run(int(150 * share))
    assert campaign.faults == []


async def test_what_a_power_cut_leaves_while_queues_are_unmapped(root: Path) -> None:
    """Fewer files of queues are mapped than are written to between two flushes."""
    campaign = PowerLoss(root, 2, sync=False, most_mappings=2)
    await campaign.run(40)
    assert campaign.faults == []


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_what_a_power_cut_leaves_of_timed_messages(
    root: Path, flush: str, share: float
) -> None:
    campaign = PowerLoss(root, 1, sync=flush == "SYNC_FLUSH", timed=True)
    await campaign.run(int(60 * share))
    assert campaign.faults == []


# Most are found within 500 states. It is chance: the broker's threads write when they like.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", BUGS)
async def test_a_bug_is_found(root: Path, name: str) -> None:
    bug = BUGS[name]
    campaign = PowerLoss(root, 1, sync=bug.sync, timed=bug.timed, lie=bug.lie)
    with bug.patch:
        await campaign.run(10_000)
    assert any(re.search(bug.found, fault) for fault in campaign.faults), campaign.faults[:3]
