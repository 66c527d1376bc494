"""Machines, and the processes that run on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .disk import Disk
from .loop import SimLoop
from .scheduler import EPOCH, SECOND, Scheduler, Strand

if TYPE_CHECKING:
    from .network import Network

BOOTED = 1000 * SECOND
"""How long machines have been running at virtual time 0."""


class Process:
    """One life of a server or a client.

    Attributes:
        dead: it was killed: nothing of it runs any more, no `finally` either.
        ended: its main coroutine returned or failed, with `error`.
        locks: the files that it has locked, by inode.
    """

    def __init__(self, machine: Machine, number: int, life: int) -> None:
        self.machine = machine
        self.pid = number
        self.life = life
        self.random = machine.scheduler.stream(f"{machine.name} {life}")
        self.strands: list[Strand] = []
        self.paused = False
        self.missed: list[tuple[Strand, int, bool]] = []
        self.dead = False
        self.ended = False
        self.error: BaseException | None = None
        self.loop: SimLoop
        self.main: asyncio.Task[None]

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        scheduler = self.machine.scheduler

        def body() -> None:
            self.loop = strand.loop = SimLoop(self, strand)
            self.main = self.loop.create_task(main(), name="main")
            self.main.add_done_callback(self._ended)
            self.loop.run_forever()

        strand = Strand(self, "loop", body)
        scheduler.wake(strand)

    def _ended(self, main: asyncio.Task[None]) -> None:
        self.ended = True
        if not main.cancelled():
            self.error = main.exception()
        machine = self.machine
        machine.scheduler.step("ended", machine.name, type(self.error).__name__)
        if self.error is not None:
            machine.report("main", repr(self.error), self.error)
        self.loop.stop()
        # The kernel closes what a process leaves open.
        machine.network.process_ended(self, reset=True)
        machine.disk.unlock(self)


class Machine:
    """A host: an address, a disk, clocks, and at most one process at a time.

    Attributes:
        powered: False between a power cut and the next boot.
        report: called with what nobody in the process has caught.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        name: str,
        ip: str,
        root: Path,
        report: Callable[[str, str, BaseException | None], object],
    ) -> None:
        self.scheduler = scheduler
        self.network = network
        self.name = name
        self.ip = ip
        self.root = root
        self.report = report
        self.powered = True
        self.process: Process | None = None
        self.lives = 0
        self.disk = Disk(self)
        self._graveyard: list[Process] = []
        self._step = 0
        self._drift = 0.0
        self._drifts_since = self._gained = 0

    def __repr__(self) -> str:
        return self.name

    # Clocks

    def monotonic(self, now: int) -> int:
        return BOOTED + now + self._ahead(now)

    def wall(self, now: int) -> int:
        return EPOCH + now + self._step + self._ahead(now)

    def _ahead(self, now: int) -> int:
        return self._gained + int((now - self._drifts_since) * self._drift)

    def drift(self, rate: float) -> None:
        """Let both clocks gain so many seconds in each second from now on, or lose them."""
        now = self.scheduler.now
        self._gained = self._ahead(now)
        self._drift, self._drifts_since = rate, now
        self.scheduler.step("drift", self.name, rate)

    def step_clock(self, nanoseconds: int) -> None:
        """Set the wall clock forward, or back."""
        self._step += nanoseconds
        self.scheduler.step("clock", self.name, self._step)

    @property
    def clock_error(self) -> int:
        """How far the wall clock is ahead, nanoseconds."""
        return self._step

    # The process

    @property
    def running(self) -> bool:
        process = self.process
        return process is not None and not process.dead and not process.ended

    def boot(self, main: Callable[[], Coroutine[Any, Any, None]]) -> Process:
        """Start a process; power comes back if it was cut."""
        if self.running:
            raise RuntimeError(f"{self.name} runs already")
        self.lives += 1
        self.powered = True
        number = 100 * int(self.ip.rpartition(".")[2]) + self.lives
        process = self.process = Process(self, number, self.lives)
        self.scheduler.step("boot", self.name, self.lives)
        process.start(main)
        self.network.machine_up(self)
        return process

    def kill(self) -> None:
        """SIGKILL."""
        self._end(power=False)

    def cut_power(self) -> None:
        """End the process, and lose what the disk was not told to keep."""
        self._end(power=True)

    def _end(self, *, power: bool) -> None:
        process, self.process = self.process, None
        self.scheduler.step("power cut" if power else "kill", self.name, self.lives)
        if process is not None:
            process.dead = True
            # Its greenlets and coroutines are kept: collected, they would run `finally` blocks.
            self._graveyard.append(process)
            self.disk.unlock(process)
            self.network.process_ended(process, reset=not power)
        if power:
            self.powered = False
            self.disk.cut()

    def pause(self) -> None:
        """SIGSTOP; the kernel goes on."""
        if self.process is not None:
            self.process.paused = True
            self.scheduler.step("pause", self.name)

    def resume(self) -> None:
        """SIGCONT."""
        process = self.process
        if process is not None and process.paused:
            process.paused = False
            self.scheduler.step("resume", self.name)
            self.scheduler.catch_up(process)
