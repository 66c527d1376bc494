"""A sample of damaged stores, and proof that a check which is left out would be found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .base_stores import quick_disk
from .damaged_store import Damages


@pytest.fixture(autouse=True)
def _quick_disk() -> Iterator[None]:
    with quick_disk():
        yield


async def test_damaged_stores(tmp_path: Path) -> None:
    campaign = Damages(tmp_path / "damages", 1)
    await campaign.run(150)
    assert campaign.faults == []
    assert campaign.refused > 20
    assert campaign.repaired > 20
