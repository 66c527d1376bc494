"""Curves: the sizes, and what is kept of them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from bench.curves.__main__ import line, main
from bench.curves.brokers import CURVES
from bench.curves.curve import Curve, Points
from bench.full.workload import Session
from bench.generator import LoadGenerator


def session_in(directory: Path, generator: LoadGenerator | None, scale: float) -> Session:
    console = Console(file=io.StringIO())
    return Session(directory, generator, console, 1, scale, with_official=False)  # type: ignore[arg-type]


def test_points_are_medians() -> None:
    points = Points()
    for rate, tail in (10.0, 1.0), (30.0, 2.0), (20.0, 9.0):
        points.add(8, "a", rate, tail)
    points.add(8, "b", 5.0)
    assert points.rows() == [
        {"size": 8, "name": "a", "per_second": 20.0, "p99_us": 2.0, "rates": [10.0, 30.0, 20.0]},
        {"size": 8, "name": "b", "per_second": 5.0, "p99_us": None, "rates": [5.0]},
    ]


@pytest.mark.parametrize(("scale", "sizes"), [(1.0, [1, 2, 3, 4]), (0.01, [1, 3])])
def test_a_small_scale_has_few_sizes(tmp_path: Path, scale: float, sizes: list[int]) -> None:
    def measure(_session: Session, asked: Sequence[int], points: Points) -> None:
        for size in asked:
            points.add(size, "a", 1.0, 1000.0)

    rows = Curve("c", "a title", "things", "/s", (1, 2, 3, 4), measure).rows(
        session_in(tmp_path, None, scale)
    )
    assert [row["size"] for row in rows] == sizes
    assert line(rows[0]) == "c: 1 things, a: 1 /s, p99 1,000 µs"


@pytest.mark.parametrize(
    "curve",
    [
        pytest.param(curve, id=curve.name, marks=pytest.mark.long if curve.name == "stored" else ())
        for curve in CURVES
    ],
)
def test_each_size_has_a_point(tmp_path: Path, generator: LoadGenerator, curve: Curve) -> None:
    rows = curve.rows(session_in(tmp_path, generator, 0.0001))
    assert [row["size"] for row in rows] == [curve.sizes[0], curve.sizes[2]]


def test_the_command_keeps_what_it_measures(tmp_path: Path, generator: LoadGenerator) -> None:
    options = ["--rounds", "1", "--scale", "0.0001", "--no-official", "--only", "bodies"]
    assert main([*options, "--results", str(tmp_path)]) == 0
    (file,) = tmp_path.glob("curves-*.json")
    assert [row["size"] for row in json.loads(file.read_text())["measures"]] == [16, 1024]
