from __future__ import annotations

from pathlib import Path

import pytest

from bench.stolen_time import StolenTime


def ticks(stat: Path, idle: int, steal: int) -> None:
    stat.write_text(f"cpu  100 20 30 {idle} 5 0 5 {steal} 7 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n")


@pytest.mark.parametrize(("stolen", "percent", "warns"), [(30, 30, True), (1, 1, False)])
def test_the_share_since_the_beginning(
    tmp_path: Path, stolen: int, percent: int, warns: bool
) -> None:
    """Little is not worth a word."""
    stat = tmp_path / "stat"
    ticks(stat, idle=1000, steal=500)
    time = StolenTime(stat)
    ticks(stat, idle=1100 - stolen, steal=500 + stolen)
    assert time.percent == pytest.approx(percent)
    warning = time.warning()
    assert (warning is not None) == warns
    assert not warns or f"{percent} %" in str(warning)


@pytest.mark.parametrize("text", [None, "", "cpu 1 2 3\n", "intr what\n"])
def test_a_system_that_does_not_tell(tmp_path: Path, text: str | None) -> None:
    stat = tmp_path / "stat"
    if text is not None:
        stat.write_text(text)
    stolen = StolenTime(stat)
    assert stolen.percent is None
    assert stolen.warning() is None
