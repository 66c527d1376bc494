"""What a run of a benchmark begins with."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import pytest

from bench.clean_slate import MEMORY, clean_slate

AVAILABLE = 16 * mmap.PAGESIZE


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what was mapped."""
    sizes: list[int] = []
    real = mmap.mmap

    def note(descriptor: int, size: int, *more: Any) -> mmap.mmap:
        sizes.append(size)
        return real(descriptor, size, *more)

    monkeypatch.setattr("bench.clean_slate.mmap.mmap", note)
    return sizes


@pytest.mark.parametrize(
    ("text", "scale", "size"),
    [
        (f"MemFree: 1 kB\nMemAvailable:  {AVAILABLE // 1024} kB\n", 1.0, AVAILABLE // 2),
        ("MemAvailable: 9999999999 kB\n", 3 * mmap.PAGESIZE / MEMORY, 3 * mmap.PAGESIZE),
    ],
)
def test_no_more_than_half_of_the_memory_and_what_the_scale_says(
    tmp_path: Path, touched: list[int], text: str, scale: float, size: int
) -> None:
    (tmp_path / "meminfo").write_text(text)
    clean_slate(scale, tmp_path, tmp_path / "meminfo")
    assert touched == [size]
    assert [path.name for path in tmp_path.iterdir()] == ["meminfo"]


@pytest.mark.parametrize("text", [None, "", "MemAvailable:\n", "MemAvailable: many kB\n"])
def test_a_system_that_does_not_tell(tmp_path: Path, touched: list[int], text: str | None) -> None:
    if text is not None:
        (tmp_path / "meminfo").write_text(text)
    clean_slate(1.0, tmp_path, tmp_path / "meminfo")
    assert touched == []
