"""A process that does as little as a broker could, to tell a broker's stalls from the machine's.

Every millisecond it writes to a page of a file that it maps. When it comes late, or its write takes
long, the host, the scheduler or the disk did that, and would have done it to a broker as well.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.interop.harness.official import PROJECT

__all__ = ["BareWriter", "longest_own"]

STEP = 0.001
GAP = 0.002  # Seconds between two writes from which on it was a stall.
SIZE = 64 << 20

Span = Sequence[int]
"""Begin and end, in microseconds since 1970."""


class BareWriter:
    """Writes into a file in `directory` until the end of the `with` block; `gaps` has its stalls
    then."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "bare-writer"
        self.gaps: list[Span] = []

    def __enter__(self) -> Self:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "bench.full.bare_writer", self._file],
            cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._child.stdout is not None
        self._child.stdout.readline()  # It writes.
        return self

    def __exit__(self, *error: object) -> None:
        output, _ = self._child.communicate()
        self.gaps = json.loads(output)
        self._file.unlink()


def longest_own(stalls: Sequence[Span], gaps: Sequence[Span]) -> float:
    """The longest stall in microseconds, each without the `gaps` that overlap it. The gaps have no
    overlaps among themselves."""
    return max(
        (
            end - begin - sum(max(0, min(end, until) - max(begin, since)) for since, until in gaps)
            for begin, end in stalls
        ),
        default=0,
    )


def main() -> None:
    """Write until the input ends, and print the gaps."""
    gaps = []
    with Path(sys.argv[1]).open("wb+") as file:
        os.posix_fallocate(file.fileno(), 0, SIZE)
        with mmap.mmap(file.fileno(), SIZE) as memory:
            print("writing", flush=True)
            at = 0
            last = time.time_ns()
            while not select.select([sys.stdin], [], [], STEP)[0]:
                memory[at] = 1
                at = (at + mmap.PAGESIZE) % SIZE
                now = time.time_ns()
                if now - last > (STEP + GAP) * 1e9:
                    gaps.append((last // 1000, now // 1000))
                last = now
    print(json.dumps(gaps))


if __name__ == "__main__":
    main()
