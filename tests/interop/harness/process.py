"""One child process whose output is kept in a file and can be waited on line by line."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

#: Seconds for what takes one; a busy machine may need a hundred times as long.
PATIENCE = 120.0

_ALIVE: weakref.WeakSet[Process] = weakref.WeakSet()


class ProcessFailed(AssertionError):
    """The process ended, or did not say the awaited line in time; the text ends with its log."""


class Process:
    """A started child process.

    Its standard output and error go line by line into `log`; `wait_for` wakes as soon as a
    line arrives. Nothing here ever signals a process it did not start.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.waited = 0.0  # Seconds from the start to the line that wait_for found last.
        self._started_at = time.monotonic()
        self._lines: list[str] = []
        self._seen = 0
        self._changed = threading.Condition()
        self._ended = False
        log.parent.mkdir(parents=True, exist_ok=True)
        self._child = subprocess.Popen(
            [str(part) for part in argv],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._pump, name=f"log of {name}", daemon=True)
        self._reader.start()
        _ALIVE.add(self)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    @property
    def lines(self) -> list[str]:
        """Every line printed until now, without line ends."""
        with self._changed:
            return list(self._lines)

    def _pump(self) -> None:
        assert self._child.stdout is not None
        with self.log.open("a") as log:
            for line in self._child.stdout:
                log.write(line)
                log.flush()
                with self._changed:
                    self._lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, pattern: str, timeout: float = PATIENCE) -> str:
        """The first line, of those not yet passed over by an earlier call, that matches pattern.

        Raises ProcessFailed when the process ends or `timeout` seconds pass before.
        """
        wanted = re.compile(pattern)
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                while self._seen < len(self._lines):
                    line = self._lines[self._seen]
                    self._seen += 1
                    if wanted.search(line):
                        self.waited = time.monotonic() - self._started_at
                        return line
                if self._ended:
                    raise ProcessFailed(f"{self.name} ended before {pattern!r}\n{self.tail()}")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ProcessFailed(
                        f"{self.name}: no {pattern!r} within {timeout} s\n{self.tail()}"
                    )
                self._changed.wait(left)

    def tail(self, count: int = 60) -> str:
        """The last lines of the log, under a heading, for failure messages.

        Without what a JVM says of its logging: those lines bury everything else.
        """
        lines = [line for line in self._lines if "|-INFO in " not in line]
        return "\n".join([f"--- {self.name} ({self.log})", *lines[-count:]])

    def kill(self) -> None:
        """SIGKILL, and reap: what the machine's power button is to a process."""
        if self.running:
            self._child.kill()
        self._finish()

    def terminate(self, timeout: float = 60.0) -> int:
        """SIGTERM; returns the exit code. A process that ignores it is killed and an error."""
        if self.running:
            self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessFailed(f"{self.name} ignored SIGTERM\n{self.tail()}") from None
        self._finish()
        return self._child.returncode

    def wait(self, timeout: float) -> int:
        """The exit code, once the process has ended by itself."""
        code = self._child.wait(timeout)
        self._finish()
        return code

    def _finish(self) -> None:
        self._child.wait()
        self._reader.join(5.0)
        _ALIVE.discard(self)


@contextlib.contextmanager
def killed_at_the_end() -> Iterator[None]:
    """What was started within and still runs at its end is killed."""
    others = set(_ALIVE)
    try:
        yield
    finally:
        for left in set(_ALIVE) - others:
            left.kill()


@atexit.register
def _kill_leftovers() -> None:
    for process in list(_ALIVE):
        process.kill()
