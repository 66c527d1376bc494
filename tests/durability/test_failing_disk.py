"""Each call of the file layer fails once, in each way, while a broker works."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .failing_disk import CALLS, ERRORS, Fault, try_fault

FAULTS = [
    (flush, Fault(call, error, first, first + 3, short))
    for flush, first in (("SYNC_FLUSH", 2), ("ASYNC_FLUSH", 9))
    for call in CALLS
    for error in ERRORS
    for short in ((False, True) if call == "write" else (False,))
]


@pytest.mark.parametrize(("flush", "fault"), FAULTS, ids=str)
async def test_a_disk_that_fails(tmp_path: Path, flush: str, fault: Fault) -> None:
    sync = flush == "SYNC_FLUSH"
    assert await try_fault(tmp_path / "store", fault, random.Random(1), sync=sync) == []
