"""The official Go client as processes: each does one thing, and prints a JSON line per result."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from .process import Process

Result = dict[str, Any]


class GoClient:
    """`go("send", "-n", 5, ...)` gives the results of one run of tests/interop/go.

    Each run has a home of its own below `directory`: members of a broadcast keep their offsets in
    it, by a client id that all of them share.
    """

    def __init__(self, program: Path, directory: Path) -> None:
        self._program = program
        self._directory = directory
        self._numbers = itertools.count(1)

    def __call__(self, *arguments: object) -> list[Result]:
        done = subprocess.run(
            [self._program, *map(str, arguments)],
            env={**os.environ, "HOME": str(self._home())},
            capture_output=True, text=True, timeout=90,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, *arguments: object) -> GoRun:
        """A run that goes on beside the test."""
        return GoRun([self._program, *map(str, arguments)], self._home())

    def _home(self) -> Path:
        return self._directory / f"go-{next(self._numbers)}"


class GoRun:
    """A run whose results are taken one by one as they come."""

    def __init__(self, argv: list[str | Path], home: Path) -> None:
        self._process = Process("go", argv, log=home / "output.log", env={"HOME": str(home)})

    def collect(self, count: int, timeout: float = 60.0) -> list[Result]:
        """The next results, each within `timeout` seconds of the one before."""
        return [json.loads(self._process.wait_for("^{", timeout)) for _ in range(count)]

    def stop(self) -> None:
        """Let it say goodbye to the servers; one that has ended must have ended well."""
        assert self._process.terminate(30) == 0, self._process.tail()

    def kill(self) -> None:
        self._process.kill()
