"""A broker in its own process: `pocketmq serve --brokers N` starts, watches and restarts it.

Its standard input is a pipe that nobody writes to. The broker stops when that pipe ends: when this
process closes it, and also when this process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from pocketmq.cli.servers.server_command import STOP_AT_EOF

log = logging.getLogger("pocketmq")


class BrokerFailed(Exception):
    """A broker's process ended before it listened; `code` is its exit code."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"broker {name} did not start ({ending(code)})")
        self.code = code


class Restarts(NamedTuple):
    """When to restart a broker that ended, in seconds.

    The pauses double from `first_pause` to `longest_pause`. They start over when a broker has
    listened for `healthy`. After `reported` failures in a row, one line tells the operator.
    """

    first_pause: float = 0.5
    longest_pause: float = 30.0
    healthy: float = 60.0
    reported: int = 5

    def pause(self, failures: int) -> float:
        """Return the pause after a number of consecutive failures."""
        return min(self.first_pause * 2.0 ** min(failures - 1, 30), self.longest_pause)


class BrokerProcess:
    """One broker's process.

    Args:
        name: the broker's name, for log lines.
        arguments: of `pocketmq broker`.
        on_listening: called with each line that says that the broker listens.
        restarts: when to restart it.
        stop_seconds: how long `stop` waits before it kills the process.

    Attributes:
        is_listening: the broker has reported that it listens, and has not ended since.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        on_listening: Callable[[str], None],
        *,
        restarts: Restarts,
        stop_seconds: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self._arguments = arguments
        self._on_listening = on_listening
        self._restarts = restarts
        self._stop_seconds = stop_seconds
        self._sleep = sleep
        self.is_listening = False
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process; return when its broker listens and is registered.

        Raises BrokerFailed. The broker has then printed the cause to stderr, which it shares.
        """
        process = self._process = await asyncio.create_subprocess_exec(
            # -P: do not import modules from the working directory.
            *(sys.executable, "-P", "-m", "pocketmq", "broker", STOP_AT_EOF, *self._arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Ctrl-C in the terminal is for the process that watches the brokers.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        )
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            raise BrokerFailed(self.name, await process.wait())
        self.is_listening = True
        self._on_listening(f"{line.decode(errors='replace').rstrip()}, process {process.pid}")

    async def supervise(self) -> None:
        """Restart the broker each time its process ends, until this is cancelled."""
        failures = 0
        while True:
            assert self._process is not None
            lasted, code = await self._ended(self._process)
            failures = 1 if lasted else failures + 1
            while True:
                pause = self._restarts.pause(failures)
                self._report(code, failures, pause)
                await self._sleep(pause)
                try:
                    await self.start()
                except BrokerFailed as error:
                    code = error.code
                except OSError as error:
                    log.warning("broker %s cannot be started: %s", self.name, error)
                else:
                    break
                failures += 1

    async def _ended(self, process: asyncio.subprocess.Process) -> tuple[bool, int]:
        """Wait for the end; return whether the broker was healthy before, and its exit code."""
        began = asyncio.get_running_loop().time()
        code = await process.wait()
        self.is_listening = False
        return asyncio.get_running_loop().time() - began >= self._restarts.healthy, code

    def _report(self, code: int, failures: int, pause: float) -> None:
        how = ending(code)
        if failures < self._restarts.reported:
            log.warning("broker %s ended (%s); it starts again in %g s", self.name, how, pause)
        elif failures == self._restarts.reported:
            log.error(
                "broker %s has failed %d times in a row (last: %s); it is tried again every %g s "
                "at most, without a further line until it listens; the lines before this one say "
                "why it ends",
                *(self.name, failures, how, self._restarts.longest_pause),
            )

    async def stop(self) -> None:
        """Stop the broker cleanly; kill its process if that takes too long."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(self._stop_seconds):
                await process.wait()
        except TimeoutError:
            log.error(
                "broker %s has not stopped within %g s and is killed; its store is recovered at "
                "the next start",
                *(self.name, self._stop_seconds),
            )
            self.kill()
            await process.wait()
        except asyncio.CancelledError:
            self.kill()
            raise

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


def ending(code: int) -> str:
    """Return how a process ended, for people."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
