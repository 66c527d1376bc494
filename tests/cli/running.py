"""A `python -m pocketmq ...`, or another module, that runs beside the test."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self

PROJECT = Path(__file__).parents[2]

#: Seconds for what takes one; a machine that is busy with other things needs more.
TIMEOUT = 60.0


def command(*arguments: str | Path, module: str = "pocketmq") -> list[str]:
    """The process's arguments."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def environment(**changes: str) -> dict[str, str]:
    """This process's, able to find the checkout from any directory."""
    return {**os.environ, "PYTHONPATH": str(PROJECT), **changes}


class Running:
    """The process and the lines it has written; ended with the `with` block.

    Attributes:
        out: complete lines of stdout so far; `err` of stderr.
    """

    def __init__(
        self,
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        module: str = "pocketmq",
    ) -> None:
        self.out: list[str] = []
        self.err: list[str] = []
        self._arrived: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            command(*arguments, module=module),
            env=environment(**(env or {})),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.out)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.err)),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()  # An ephemeral store is to be removed.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(TIMEOUT)
            self.process.kill()
        self.end()

    def wait_for(self, pattern: str, timeout: float = TIMEOUT) -> re.Match[str]:
        """The first match in what it writes; an error with all it wrote when that does not come."""
        deadline = time.monotonic() + timeout
        while True:
            for line in [*self.out, *self.err]:
                if match := re.search(pattern, line):
                    return match
            ended = not any(reader.is_alive() for reader in self._readers)
            try:
                if not ended:
                    self._arrived.get(timeout=max(deadline - time.monotonic(), 0.0))
                    continue
            except queue.Empty:
                pass
            if ended and self._arrived.empty():
                raise AssertionError(f"it ended without {pattern!r}: {self.everything()}")
            if time.monotonic() >= deadline:
                raise AssertionError(f"no {pattern!r} in {timeout} s: {self.everything()}")

    def write(self, text: str) -> None:
        """To its stdin, at once."""
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends the signal and returns the exit code."""
        self.process.send_signal(number)
        return self.end()

    def end(self, timeout: float = TIMEOUT) -> int:
        """Closes its stdin, waits for its end and returns the exit code."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        code = self.process.wait(timeout)
        for reader in self._readers:
            reader.join(TIMEOUT)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return code

    def everything(self) -> str:
        """All it wrote, for a failed test."""
        return "\n".join([*self.out, *self.err])

    def _read(self, stream: IO[str], lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))
            self._arrived.put(None)
        self._arrived.put(None)
