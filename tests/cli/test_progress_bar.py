"""The bar of long jobs, as `pocketmq sync` and `pocketmq export` show it."""

from __future__ import annotations

import io
from typing import Literal

import pytest

pytest.importorskip("rich")

from rich.console import Console

from pocketmq.cli.progress_bar import progress_bar


@pytest.mark.parametrize(("unit", "shown"), [("bytes", "30/70 bytes"), ("messages", "30/70")])
def test_a_terminal_shows_how_much_is_done(unit: Literal["bytes", "messages"], shown: str) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with progress_bar("exporting", unit, console) as (planned, advanced):
        planned(70)
        advanced(10)
        advanced(20)
    assert "exporting" in screen.getvalue()
    assert shown in screen.getvalue()


def test_what_is_not_a_terminal_stays_clean() -> None:
    output = io.StringIO()
    with progress_bar("exporting", "messages", Console(file=output)) as (planned, advanced):
        planned(70)
        advanced(70)
    assert output.getvalue() == ""
