"""Each call of the file layer fails once, in each way, while a broker works; and proof that a wrong
answer to that would be found."""

from __future__ import annotations

import random
import re
import shutil
from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from .bugs import DISK_BUGS
from .failing_disk import CALLS, Fault, try_fault

FAULTS = [
    (flush, Fault(call, error, first, first + 3, short))
    for flush, first, error in (("SYNC_FLUSH", 2, EIO), ("ASYNC_FLUSH", 9, ENOSPC))
    for call in CALLS
    for short in ((False, True) if call == "write" else (False,))
]


@pytest.mark.parametrize(("flush", "fault"), FAULTS, ids=str)
async def test_a_disk_that_fails(tmp_path: Path, flush: str, fault: Fault) -> None:
    sync = flush == "SYNC_FLUSH"
    _, faults = await try_fault(tmp_path / "store", fault, random.Random(1), sync=sync)
    assert faults == []


@pytest.mark.parametrize("name", DISK_BUGS)
async def test_a_bug_is_found(tmp_path: Path, name: str) -> None:
    bug, chance, root = DISK_BUGS[name], random.Random(1), tmp_path / "store"
    faults: list[str] = []
    with bug.patch:
        while not any(re.search(bug.found, fault) for fault in faults):
            _, found = await try_fault(root, bug.fault, chance, sync=bug.sync)
            faults += found
            shutil.rmtree(root)
            assert len(faults) < 100, faults[:3]
