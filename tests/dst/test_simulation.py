"""The whole cluster from a few seeds, and bugs that have to be found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .bugs import BUGS, changed

PROJECT = Path(__file__).parents[2]
FIRST, COUNT = "8", "8"  # every kind of cluster, kills, a power cut, a lost master
PATIENCE = 1200
SAMPLE = "delayed too early;transaction not ended"


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.dst", *arguments]
    environment = os.environ | {"POCKETMQ_PURE_PYTHON": "1"}
    return subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip


@pytest.mark.timeout(PATIENCE)
def test_a_few_seeds() -> None:
    """Every promise is kept, and runs of one seed are the same. `make dst` looks for seeds of which
    that is not true: here it would make every other change look wrong."""
    run = simulate(FIRST, "--seeds", COUNT, "--seconds", "12", "--double", "5")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.timeout(PATIENCE)
def test_planted_bugs_are_found() -> None:
    """A sample; `python -m tests.dst --bugs all --seeds 200` looks for each of them."""
    run = simulate("1", "--seeds", "3", "--seconds", "12", "--bugs", SAMPLE)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("name", BUGS)
def test_bugs_have_a_place(name: str) -> None:
    """The line that each of them changes is there, once."""
    bug = BUGS[name]
    source = PROJECT / f"{bug.module.replace('.', '/')}.py"
    assert changed(source.read_text(), bug) != source.read_text()
