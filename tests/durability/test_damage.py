"""A sample of damaged stores, and proof that a check which is left out would be found."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pocketmq.message.record import decode

from .base_stores import BaseStore, base_stores, quick_disk
from .damaged_store import Damages


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """A directory in memory, where that is possible: thousands of files are written."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() else None
    with quick_disk(), tempfile.TemporaryDirectory(dir=parent) as root:
        yield Path(root)


@pytest.fixture(scope="module")
def stores(directory: Path) -> list[BaseStore]:
    return asyncio.run(base_stores(directory, 1))


async def test_damaged_stores(directory: Path, stores: list[BaseStore]) -> None:
    campaign = Damages(directory, 1, stores)
    await campaign.run(40)
    assert campaign.faults == []
    assert campaign.refused > 5
    assert campaign.repaired > 5


BUGS = [
    pytest.param(
        {"pocketmq.store.queue.damaged_entries.decode": partial(decode, check_crc=False)},
        "is served with another body|missing, and the log",
        id="no CRC of a body that is read",
    ),
    pytest.param(
        {
            "pocketmq.store.queue.damaged_entries.check_head": lambda *_: None,
            "pocketmq.store.queue.record_heads.check_head": lambda *_: None,
        },
        "is lost|never was|another body|stays at|[Ee]rror",
        id="no look at the record that an entry leads to",
    ),
    pytest.param(
        {
            "pocketmq.store.check.store_check.TimerIndex": mock.MagicMock(),
            "pocketmq.store.check.store_check.recovered_dry": lambda _: nullcontext(
                (None, mock.MagicMock())
            ),
        },
        "check says starts=True",
        id="a check that does not try to start",
    ),
]


@pytest.mark.parametrize(("left_out", "found"), BUGS)
async def test_a_check_that_is_left_out_is_found(
    directory: Path, stores: list[BaseStore], left_out: dict[str, Any], found: str
) -> None:
    """The proof can fail."""
    own = Path(tempfile.mkdtemp(dir=directory))  # a case that fails is kept under its number
    campaign = Damages(own, 1, stores)
    patches = [mock.patch(name, instead) for name, instead in left_out.items()]
    for patch in patches:
        patch.start()
    try:
        await campaign.run(600)
    finally:
        for patch in patches:
            patch.stop()
    assert any(re.search(found, fault) for fault in campaign.faults), campaign.faults
