"""The whole cluster from a few seeds, and bugs that have to be found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .bugs import BUGS, changed

PROJECT = Path(__file__).parents[2]
# Every kind of cluster and fault, nearly every kind of client, a lost master; with few clients.
FIRST, COUNT = "2257", "5"
PATIENCE = 1200


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.dst", *arguments]
    environment = os.environ | {"POCKETMQ_PURE_PYTHON": "1"}
    return subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip


@pytest.mark.timeout(PATIENCE)
def test_a_few_seeds() -> None:
    """Every promise is kept, and runs of one seed are the same, also where a broker divides what
    takes long. `make dst` looks for seeds of which that is not true: here it would make every other
    change look wrong."""
    run = simulate(FIRST, "--seeds", COUNT, "--seconds", "12", "--double", "5")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.timeout(PATIENCE)
def test_stored_plans() -> None:
    """What failed once does not fail again, and each planted bug is found by a plan that is known
    to find it; `python -m tests.dst 1 --bugs all --seeds 200` looks for others."""
    run = simulate("--stored")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.timeout(PATIENCE)
def test_a_failure_tells_how_to_see_it_again() -> None:
    """In a plan that is smaller, and has the same kind of failure."""
    bug = ("--bug", "delayed too early")
    stored = PROJECT / "tests/dst/regressions/bugs/delayed-too-early.json"
    run = simulate("--plan", str(stored), "--shrink", "4", *bug)
    assert run.returncode == 1
    assert "  A4 " in run.stdout
    *_, command = (line for line in run.stdout.splitlines() if line.startswith("again: "))
    plan = Path(command.split()[5])
    again = simulate("--plan", str(plan), "--shrink", "0", *bug)
    plan.unlink()
    assert again.returncode == 1
    assert "  A4 " in again.stdout


@pytest.mark.parametrize("name", BUGS)
def test_bugs_have_a_place(name: str) -> None:
    """The line that each of them changes is there, once."""
    bug = BUGS[name]
    source = PROJECT / f"{bug.module.replace('.', '/')}.py"
    wrong = changed(source.read_text(), bug)
    assert wrong != source.read_text()
    assert wrong.count("\n") == source.read_text().count("\n")
