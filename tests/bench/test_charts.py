"""The charts: what is drawn of which figures, and that it is the same each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.charts import between_markers, main, newest

PAGE = """# Figures

<!-- bench.full -->
old
<!-- end of bench.full -->
between
<!-- bench.curves -->
<!-- end of bench.curves -->
"""
MACHINE = {
    "processors": 2, "processor": "Some CPU", "python": "3.11.2", "python_optimised": False,
    "machine": "x86_64", "accelerator": True,
}  # fmt: skip
HEAD = {"machine": MACHINE, "rounds": 5, "scale": 1.0, "failed": {}, "notes": []}


def row(title: str, ratio: float | None, target: str, holds: str) -> dict[str, Any]:
    return {
        "title": title, "unit": "msg/s", "ours": 2000.0, "official": 1000.0, "ratio": ratio,
        "target": target, "holds": holds,
    }  # fmt: skip


def point(size: int, name: str, p99: float | None = 5.0) -> dict[str, Any]:
    return {
        "curve": "queues", "title": "sends", "axis": "queues", "unit": "msg/s", "size": size,
        "name": name, "per_second": 10.0 * size, "p99_us": p99,
    }  # fmt: skip


FULL = HEAD | {
    "measures": [
        row("sends", 2.0, "≥ 1.5×", "yes"),
        row("pulls", 0.5, "≥ 1×", "no"),
        row("memory", 0.1, "≤ 60 MB", "yes"),
        row("refusals", 0.7, "≤ 1 ×", "yes"),
        row("unrated", None, "", ""),
    ],
    "failed": {"tails": "the broker is gone\nand more"},
    "notes": ["said of a row"],
}
CURVES = HEAD | {
    "scale": 0.1,
    "measures": [point(size, name) for size in (1, 8) for name in ("pocketmq", "official 5.3.3")],
}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def drawn(page: Path, **results: object) -> int:
    for name, result in results.items():
        (page.parent / f"{name}-20261126-120000.json").write_text(json.dumps(result))
    directory = page.parent
    return main(
        ["--results", str(directory), "--page", str(page), "--images", str(directory / "images")]
    )


def test_the_page_has_tables_and_images(page: Path) -> None:
    assert drawn(page, full=FULL, curves=CURVES) == 0
    text = page.read_text()
    assert "old" not in text
    assert "between" in text
    assert "| pulls | msg/s | 2,000 | 1,000 | 0.50 | ≥ 1× | no |" in text
    assert "tails could not be measured: the broker is gone\n" in text
    assert "- said of a row" in text
    assert "Medians of 5 rounds, on 2 processors (Some CPU), Python 3.11.2 that does not" in text
    assert "Medians of 5 rounds, at 0.1 of the usual counts, on" in text
    for name in "bench-full.svg", "bench-curve-queues.svg":
        assert f"(images/{name})" in text
        assert (page.parent / "images" / name).exists()


def test_only_ratios_with_an_aim_are_drawn(page: Path) -> None:
    drawn(page, full=FULL)
    chart = (page.parent / "images" / "bench-full.svg").read_text()
    assert "sends (msg/s)" in chart
    assert "pulls (msg/s)" in chart
    for other in "memory", "refusals", "unrated":
        assert other not in chart


def test_the_same_figures_give_the_same_files(page: Path) -> None:
    def files() -> dict[str, bytes]:
        drawn(page, full=FULL, curves=CURVES)
        return {path.name: path.read_bytes() for path in page.parent.rglob("*") if path.is_file()}

    assert files() == files()


def test_a_curve_without_latencies_and_without_the_official_broker(page: Path) -> None:
    assert drawn(page, curves=HEAD | {"measures": [point(1, "pocketmq", None)]}) == 0
    assert "p99" not in (page.parent / "images" / "bench-curve-queues.svg").read_text()


def test_the_newest_counts(tmp_path: Path) -> None:
    assert newest(tmp_path, "full") is None
    for name in "full-20261126-120000", "full-20261125-130000", "curves-20261127-120000":
        (tmp_path / f"{name}.json").write_text(json.dumps({"name": name}))
    assert newest(tmp_path, "full") == {"name": "full-20261126-120000"}


def test_a_page_without_markers_is_an_error() -> None:
    with pytest.raises(ValueError, match="there is no <!-- other -->"):
        between_markers(PAGE, "other", "text")


def test_without_figures_nothing_changes(page: Path) -> None:
    assert drawn(page) == 1
    assert page.read_text() == PAGE


def test_the_page_of_the_project_has_the_markers() -> None:
    text = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
    for name in "bench.full", "bench.curves":
        assert between_markers(text, name, "figures") != text
