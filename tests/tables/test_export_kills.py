"""Exports that are killed. `python -m tests.tables.export_kills` kills them more often."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="pip install 'pocketmq[tables]'")

from tests.tables.export_kills import run

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_each_message_is_in_the_table_once(format: str, tmp_path: Path) -> None:
    outcome = run(tmp_path, 2, format)
    assert outcome.kills == 2
    assert outcome.stored == outcome.rows == outcome.distinct > 0
