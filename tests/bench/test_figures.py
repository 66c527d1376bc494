"""That what fails in a benchmark is told, and that rates are of what was timed."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.batch_protocol import CHILDREN, compare
from bench.clients.peer import ClientProcess
from bench.rolling.run import ended, terminated
from tests.interop.harness.official import PROJECT, Server
from tests.interop.harness.process import Process, ProcessFailed

ANSWERS = """
import sys
for line in sys.stdin:
    print('{"seconds": 2, "cpu": 0.5, "failed": 100%s}', flush=True)
"""


@pytest.mark.parametrize(("more", "speed"), [("", 450.0), (', "timed": 900', 400.0)])
def test_a_rate_is_of_the_messages_that_were_timed(tmp_path: Path, more: str, speed: float) -> None:
    argv = [sys.executable, "-c", ANSWERS % more]
    with ClientProcess("client", argv, tmp_path / "log") as client:
        assert client.run("linger", "127.0.0.1:1", "topic", 1000) == (speed, 500.0)
    assert client.failed == 100


@dataclass
class FailingGenerator:
    """Of each run, one message fails."""

    runs: list[dict[str, int]] = field(default_factory=list)

    def run(self, _address: str, _topic: str, _mode: str, *arguments: str) -> dict[str, Any]:
        values = dict(zip(arguments[::2], arguments[1::2], strict=True))
        run = {name: int(values[name]) for name in ("-children", "-conns", "-n")}
        self.runs.append(run)
        return {"per_second": 1000.0, "messages": run["-n"], "failed": 1}


@pytest.mark.parametrize("depth", [1, 64])
def test_each_number_of_children_is_measured_and_failures_are_counted(
    depth: int, tmp_path: Path
) -> None:
    generator = FailingGenerator()
    process: Any = SimpleNamespace(pid=os.getpid())  # whose CPU time is read
    options = argparse.Namespace(rounds=2, scale=0.0)
    rows, failed = compare(
        generator,  # type: ignore[arg-type]
        Server(process, "127.0.0.1:1"),
        "send",
        depth,
        1,
        options,
        tmp_path,
    )
    assert len(rows) == len(CHILDREN)
    assert failed == 2 * len(CHILDREN)  # not those of the warm-up
    # However small the scale: a request on each connection, or there is nothing to divide by.
    assert all(run["-n"] >= run["-conns"] * max(run["-children"], 1) for run in generator.runs)


def test_a_rolling_restart_whose_processes_fail_has_no_report(tmp_path: Path) -> None:
    def failing() -> Process:
        process = Process("p", [sys.executable, "-c", "raise SystemExit(3)"], log=tmp_path / "log")
        process.wait(10.0)
        return process

    with pytest.raises(ProcessFailed, match="ended with exit code 3"):
        ended(failing(), 10.0)
    with pytest.raises(ProcessFailed, match="ended with exit code 3"):
        terminated(failing())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("bench", "--clients", "--no-official"), "--clients needs the official client"),
        (("bench.selector", "--length", "5"), "--length must be at least 24"),
        (("bench.selector", "--processes", "--length", "5"), "--length must be at least 6"),
    ],
)
def test_what_would_measure_something_else_is_refused(
    arguments: tuple[str, ...], error: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert error in done.stderr
