"""Virtual time, and whose turn it is.

What the product runs as an event loop or a thread is a strand here, a greenlet. One strand runs at
a time, and gives the turn away only where it would block. A heap of (time, random tie) says what is
next, so that one seed is one interleaving.
"""

from __future__ import annotations

import heapq
import itertools
from asyncio import events
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any, Final

import greenlet

if TYPE_CHECKING:
    from .machine import Machine, Process

MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
EPOCH: Final = 1_700_000_000 * SECOND
"""The wall clock at virtual time 0, Unix nanoseconds."""
LOOK: Final = 100
"""What a look at a clock takes, nanoseconds: a loop that waits for a time ends."""
WAKE: Final = (1 * MICROSECOND, 20 * MICROSECOND)
"""How long the turn of a strand takes to come once it is woken."""
STEPS: Final = 200
"""The last steps that are kept to be shown."""


class Event:
    """Something that is to happen; `cancel` it in time and it does not."""

    __slots__ = ("action", "arguments", "key")

    def __init__(
        self, key: tuple[int, float, int], action: Callable[..., object], arguments: tuple[Any, ...]
    ) -> None:
        self.key = key
        self.action: Callable[..., object] | None = action
        self.arguments = arguments

    def __lt__(self, other: Event) -> bool:
        return self.key < other.key

    def cancel(self) -> None:
        self.action = None


class Strand:
    """One line of execution of a process: its event loop, or one of its threads.

    Attributes:
        in_loop: whether it is inside of its loop's `run_forever`.
        waits_for: what it is parked for, for the list of blocked strands.
        granted: the lock that it was handed while it was parked.
    """

    __slots__ = ("granted", "greenlet", "ident", "in_loop", "loop", "name", "process", "result",
                 "thread", "token", "waits_for")  # fmt: skip

    def __init__(self, process: Process, name: str, body: Callable[[], None]) -> None:
        scheduler = process.machine.scheduler
        self.process = process
        self.name = name
        self.ident = next(scheduler.idents)
        self.in_loop = False
        self.loop: Any = None
        self.thread: Any = None
        self.token = 0
        self.result = False
        self.granted: object = None
        self.waits_for = ""
        self.greenlet = greenlet.greenlet(body, scheduler.home)
        process.strands.append(self)


class Scheduler:
    """The one of this operating-system process; `begin` gives it a seed.

    Attributes:
        now: virtual nanoseconds.
        strand: the one that runs; None while the simulator itself does.
        digest: of all steps so far: two runs of a seed have the same.
        steps: the last of them, as (time, kind, details).
    """

    def __init__(self) -> None:
        self.home = greenlet.getcurrent()
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Start afresh with another seed."""
        self.seed = seed
        self.home = greenlet.getcurrent()
        self.chance = self.stream("schedule")
        self.now = 0
        self.strand: Strand | None = None
        self.idents: Iterator[int] = itertools.count(1000)
        self.digest = 0
        self.steps: deque[tuple[Any, ...]] = deque(maxlen=STEPS)
        self.on_step: Callable[[tuple[Any, ...]], object] | None = None
        self.events = 0
        self._numbers = itertools.count()
        self._heap: list[Event] = []

    def stream(self, name: str) -> Random:
        """A stream of random numbers of its own: what one part draws moves no other part."""
        return Random(f"{self.seed} {name}")

    @property
    def machine(self) -> Machine | None:
        """The machine that the running strand is on."""
        return None if self.strand is None else self.strand.process.machine

    @property
    def process(self) -> Process | None:
        return None if self.strand is None else self.strand.process

    def step(self, *what: Any) -> None:
        """Note that something happened that has to be the same in each run of the seed."""
        step = (self.now, *what)
        self.digest = hash((self.digest, step))
        self.steps.append(step)
        if self.on_step is not None:
            self.on_step(step)

    # Events

    def at(self, time: float, action: Callable[..., object], *arguments: Any) -> Event:
        """Have `action(*arguments)` called at a virtual time, by the simulator itself."""
        key = (max(int(time), self.now), self.chance.random(), next(self._numbers))
        event = Event(key, action, arguments)
        heapq.heappush(self._heap, event)
        return event

    def after(self, nanoseconds: float, action: Callable[..., object], *arguments: Any) -> Event:
        return self.at(self.now + nanoseconds, action, *arguments)

    def run(self, until: int, done: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass, at most up to `until`; stop early, and return True, when `done` says so
        after an event."""
        heap = self._heap
        while heap and heap[0].key[0] <= until:
            if done():
                return True
            event = heapq.heappop(heap)
            if event.action is None:
                continue
            self.now = max(self.now, event.key[0])
            self.events += 1
            event.action(*event.arguments)
        self.now = max(self.now, until)
        return done()

    # Strands

    def wake(self, strand: Strand, *, delay: int | None = None, token: int | None = None) -> None:
        """Let a parked strand go on soon; with a `token`, only from the parking of that number."""
        if delay is None:
            delay = self.chance.randrange(*WAKE)
        token = strand.token if token is None else token
        self.at(self.now + delay, self._resume, strand, token, True)

    def park(self, until: int | None = None, waits_for: str = "") -> bool:
        """Give the turn away until `wake`; return False if the time `until` came before."""
        strand = self.strand
        if strand is None:
            raise RuntimeError(f"the simulator itself would wait for {waits_for or 'a wake'}")
        timer = None
        if until is not None:
            timer = self.at(until, self._resume, strand, strand.token, False)
        strand.waits_for = waits_for
        self.home.switch()
        strand.waits_for = ""
        if timer is not None:
            timer.cancel()
        return strand.result

    def catch_up(self, process: Process) -> None:
        """Let strands go on whose turn came while their process was stopped."""
        missed, process.missed = process.missed, []
        for strand, token, result in missed:
            delay = self.chance.randrange(*WAKE)
            self.at(self.now + delay, self._resume, strand, token, result)

    def sleep(self, seconds: float) -> None:
        """`time.sleep`."""
        self.park(self.now + int(seconds * SECOND))

    def _resume(self, strand: Strand, token: int, result: bool) -> None:
        process = strand.process
        if strand.token != token or process.dead or strand.greenlet.dead:
            return
        if process.paused:
            process.missed.append((strand, token, result))
            return
        strand.token += 1
        strand.result = result
        self.strand = strand
        events._set_running_loop(strand.loop if strand.in_loop else None)
        try:
            strand.greenlet.switch()
        finally:
            events._set_running_loop(None)
            self.strand = None

    def work(self, nanoseconds: int) -> None:
        """Let what runs take so long, within its turn."""
        self.now += nanoseconds

    # Clocks, as what runs sees them

    def monotonic_ns(self) -> int:
        """Each machine's monotonic clock has its own beginning, and may run fast or slow."""
        self.now += LOOK
        machine = self.machine
        return self.now if machine is None else machine.monotonic(self.now)

    def time_ns(self) -> int:
        self.now += LOOK
        machine = self.machine
        return EPOCH + self.now if machine is None else machine.wall(self.now)


scheduler: Final = Scheduler()
