"""The load generator of bench/loadgen, built by Go, or another one with the same options."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.interop.harness.official import PROJECT, Unavailable, need

#: The longest run, seconds: a broker that does not answer must not keep a benchmark for ever.
LONGEST = 600


class LoadGenerator:
    """Runs the generator; each run gives its JSON line as a dict."""

    def __init__(self, program: Path) -> None:
        self.program = program

    @classmethod
    def build(cls, directory: Path) -> LoadGenerator:
        """Compile bench/loadgen; raises Unavailable where Go is missing."""
        program = directory / "loadgen"
        done = subprocess.run(
            [need("go"), "build", "-buildvcs=false", "-o", program, "."],
            cwd=PROJECT / "bench" / "loadgen", capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise Unavailable(f"bench/loadgen does not build: {done.stderr}")
        return cls(program)

    def run(
        self, address: str, topic: str, *arguments: str, longest: float = LONGEST
    ) -> dict[str, Any]:
        """One run against a broker; raises RuntimeError when it could not be done, and
        subprocess.TimeoutExpired after `longest` seconds.

        Sends that the broker refused (the official one does when they wait over 200 ms) are in
        `failed` and not in the rate; more than one in ten is an error.
        """
        mode, *options = arguments
        done = subprocess.run(
            [self.program, mode, "-addr", address, "-topic", topic, *options],
            capture_output=True, text=True, timeout=longest,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"loadgen {' '.join(arguments)}: {done.stderr.strip()}")
        line: dict[str, Any] = json.loads(done.stdout)
        if line["failed"] > line["messages"] / 9:
            raise RuntimeError(f"{line['failed']} sends failed: {line['first_remark']}")
        return line
