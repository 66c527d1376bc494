"""NATS JetStream under the loads, by its own `nats bench`.

Server and command come from the Go module proxy, and stay in the cache of official peers. The
stream is in files, which the server flushes in the background, as a broker with ASYNC_FLUSH does.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from bench.generator import LONGEST
from tests.interop.harness.official import Unavailable, cache_directory, need
from tests.interop.harness.ports import free_port
from tests.interop.harness.process import Process

from .loads import CONNECTIONS, IN_FLIGHT, SIZE, Load, Run

SERVER = "2.15.2"
COMMAND = "0.5.1"
_MODULES = (
    f"github.com/nats-io/nats-server/v2@v{SERVER}",
    f"github.com/nats-io/natscli/nats@v{COMMAND}",
)
# Fast batches have the default length of `nats bench`: with 32 or 64 messages each, the server took
# up to a third fewer.
_OPTIONS = {
    Load.SINGLE: ("async", "--clients", str(CONNECTIONS), "--batch", str(IN_FLIGHT)),
    Load.BATCH: ("fast", "--clients", str(CONNECTIONS), "--batch", "500"),
    Load.ONE: ("sync", "--clients", "1"),
}
_RATE = re.compile(r"stats: ([\d,]+) msgs/sec")
_P50 = re.compile(r"\bP50:? ([\d,.]+)us")


def parse(output: str) -> Run:
    """Read the figures of all clients together, which come last in the output of `nats bench`.

    Raises:
        ValueError: they are not there.
    """
    rates, p50s = _RATE.findall(output), _P50.findall(output)
    if not rates or not p50s:
        raise ValueError(f"nats bench printed no figures: {output[-500:]!r}")
    return Run(float(rates[-1].replace(",", "")), float(p50s[-1].replace(",", "")))


def programs() -> Path:
    """The directory of nats-server and nats, built the first time.

    Raises:
        Unavailable: Go is missing, or the modules cannot be had.
    """
    directory = cache_directory() / f"nats-{SERVER}-{COMMAND}"
    for module in _MODULES:
        name = "nats" if "natscli" in module else "nats-server"
        if not (directory / name).exists():
            done = subprocess.run(
                [need("go"), "install", module],
                env={**os.environ, "GOBIN": str(directory)}, capture_output=True, text=True,
            )  # fmt: skip
            if done.returncode:
                raise Unavailable(f"{module} could not be built: {done.stderr[-500:]}")
    return directory


class Nats:
    """A NATS server with JetStream, and its command."""

    name = f"NATS JetStream {SERVER}"

    def __init__(self, directory: Path) -> None:
        """Start it in a new folder of `directory`. Raises Unavailable."""
        home = directory / "nats"
        port = free_port()
        built = programs()
        self._server = Process(
            "NATS server",
            [built / "nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", home],
            log=home / "output.log",
        )
        self._server.wait_for("Server is ready")
        self._command = (
            str(built / "nats"), "--no-context", "--server", f"nats://127.0.0.1:{port}",
            "bench", "js", "pub",
        )  # fmt: skip
        # Its settings are none of the user's.
        self._environment = {**os.environ, "XDG_CONFIG_HOME": str(home / "config")}

    def run(self, load: Load, count: int, turn: int) -> Run:
        kind, *options = _OPTIONS[load]
        done = subprocess.run(
            [*self._command, kind, *options, "--msgs", str(count), "--size", str(SIZE),
             "--create", "--purge", "--maxbytes", "8GB", "--no-progress", "bench.systems"],
            env=self._environment, capture_output=True, text=True, timeout=LONGEST,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"nats bench js pub {kind}: {done.stdout[-500:]}{done.stderr}")
        return parse(done.stdout)

    def stop(self) -> None:
        self._server.kill()
