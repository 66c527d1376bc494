"""Redis streams under the loads, by its own `redis-benchmark`: Debian's package redis-server.

The append-only file is flushed each second, its default, which is closest to ASYNC_FLUSH.
"""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

from bench.generator import LONGEST
from tests.interop.harness.official import need
from tests.interop.harness.ports import free_port
from tests.interop.harness.process import Process

from .loads import CONNECTIONS, IN_FLIGHT, SIZE, Load, Run

_OPTIONS = {
    Load.SINGLE: ("-c", str(CONNECTIONS), "-P", str(IN_FLIGHT)),
    Load.ONE: ("-c", "1", "-P", "1"),
}


def parse(output: str) -> Run:
    """Read the figures of `redis-benchmark --csv`.

    Raises:
        ValueError: they are not there.
    """
    try:
        (row,) = csv.DictReader(output.splitlines())
        return Run(float(row["rps"]), float(row["p50_latency_ms"]) * 1000)
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"redis-benchmark printed no figures: {output[-500:]!r}") from None


class Redis:
    """A Redis server with an append-only file."""

    name = "Redis streams"

    def __init__(self, directory: Path) -> None:
        """Start it in a new folder of `directory`. Raises Unavailable."""
        home = directory / "redis"
        home.mkdir()
        self._benchmark = need("redis-benchmark")
        self._port = str(free_port())
        self._server = Process(
            "Redis",
            [
                need("redis-server"), "--port", self._port, "--bind", "127.0.0.1", "--dir", home,
                "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
                # The file is not rewritten in the middle of a run.
                "--auto-aof-rewrite-percentage", "0",
            ],
            log=home / "output.log",
        )  # fmt: skip
        self._server.wait_for("Ready to accept connections")

    def run(self, load: Load, count: int, turn: int) -> Run | None:
        if load not in _OPTIONS:
            return None
        self._call("-n", "1", "FLUSHALL")  # of the run before, from memory
        return parse(
            self._call(*_OPTIONS[load], "-n", str(count), "XADD", "full", "*", "body", "x" * SIZE)
        )

    def _call(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._benchmark, "-p", self._port, "--csv", *arguments],
            capture_output=True, text=True, timeout=LONGEST,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"redis-benchmark: {done.stdout[-500:]}{done.stderr}")
        return done.stdout

    def stop(self) -> None:
        self._server.kill()
