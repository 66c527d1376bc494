"""A sample of tests/proxy/restarts.py: one kill and one stop under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proxy.restarts import Restarts


@pytest.mark.crash
async def test_no_message_is_lost_by_restarts(tmp_path: Path) -> None:
    run = Restarts(tmp_path, messages=90, restarts=2)
    await run.run()
    assert len(run.traffic.sent) >= 90
