"""Simulated brokers: what becomes of a request, computed at once from what will happen to them.

A broker appends one message after another (the commit log has one writer), each in a lognormal
service time; now and then it stands still, as a broker does for a garbage collection or a busy
disk. On top of that come the troubles of a scenario.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

__all__ = ["Outcome", "SimulatedBroker", "Trouble"]

#: There and back between a client and a broker, seconds.
ROUND_TRIP = 0.000_3
#: Mean and shape of the lognormal service time, seconds.
SERVICE, SERVICE_SHAPE = 0.001, 0.5
#: Mean time between two stalls, and how long one is in the middle (lognormal), seconds.
STALL_EVERY, STALL, STALL_SHAPE = 8.0, 0.1, 0.4


@dataclass(frozen=True)
class Trouble:
    """What is wrong with one broker from `begin` to `end`, seconds.

    "dead": connections are refused, and what was under way is lost; "hung": it takes requests and
    answers when the trouble is over (SIGSTOP); "cut": for the clients `of` nothing gets through;
    "slow": answers take `extra` seconds longer, and the service `factor` times as long.
    """

    broker: str
    begin: float
    end: float
    kind: Literal["dead", "hung", "cut", "slow"]
    of: frozenset[int] = frozenset()
    extra: float = 0.0
    factor: float = 1.0


@dataclass(frozen=True)
class Outcome:
    """When the client hears (inf: never), and whether it is an answer or a refused or lost
    connection."""

    at: float
    answered: bool


@dataclass
class SimulatedBroker:
    """`rng` decides its service times and stalls; `until`: the end of the simulation, seconds."""

    name: str
    troubles: Sequence[Trouble]
    rng: random.Random
    until: float
    _free_at: float = 0.0
    _stalls: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.troubles = [trouble for trouble in self.troubles if trouble.broker == self.name]
        stalls = [(t.begin, t.end) for t in self.troubles if t.kind == "hung"]
        at = self.rng.expovariate(1 / STALL_EVERY)
        while at < self.until:
            length = STALL * self.rng.lognormvariate(0, STALL_SHAPE)
            stalls.append((at, at + length))
            at += length + self.rng.expovariate(1 / STALL_EVERY)
        for begin, end in sorted(stalls):
            if self._stalls and begin <= self._stalls[-1][1]:
                begin, end = self._stalls[-1][0], max(end, self._stalls[-1][1])
                self._stalls.pop()
            self._stalls.append((begin, end))

    def ask(self, now: float, client: int) -> Outcome:
        """A send of `client` reaches for the broker at `now`."""
        arrived = now + ROUND_TRIP / 2
        if (early := self._unheard(arrived, client)) is not None:
            return early
        slow = self._now("slow", arrived, client)
        service = SERVICE * self.rng.lognormvariate(0, SERVICE_SHAPE)
        begin = self._awake(max(arrived, self._free_at))
        # Interrupted by a stall, the rest of the service follows it.
        done = begin + service * (slow.factor if slow else 1.0)
        for stall_begin, stall_end in self._stalls_from(begin):
            if stall_begin >= done:
                break
            done += stall_end - stall_begin
        self._free_at = done
        return self._answer(arrived, done + (slow.extra if slow else 0.0), client)

    def probe(self, now: float, client: int) -> Outcome:
        """As `ask`, for a request that waits behind no send."""
        arrived = now + ROUND_TRIP / 2
        if (early := self._unheard(arrived, client)) is not None:
            return early
        slow = self._now("slow", arrived, client)
        done = self._awake(arrived)
        return self._answer(arrived, done + (slow.extra if slow else 0.0), client)

    def could_answer(self, now: float, client: int, timeout: float) -> bool:
        """Whether a send at `now` would be answered in time; nothing is sent."""
        arrived = now + ROUND_TRIP / 2
        if self._unheard(arrived, client) is not None:
            return False
        slow = self._now("slow", arrived, client)
        done = self._awake(max(arrived, self._free_at)) + SERVICE + (slow.extra if slow else 0.0)
        return self._answer(arrived, done, client).answered and done < now + timeout

    def _unheard(self, arrived: float, client: int) -> Outcome | None:
        if self._now("cut", arrived, client):
            return Outcome(inf, False)
        if self._now("dead", arrived, client):
            return Outcome(arrived + ROUND_TRIP / 2, False)
        return None

    def _answer(self, arrived: float, done: float, client: int) -> Outcome:
        at = done + ROUND_TRIP / 2
        for trouble in self.troubles:
            if trouble.kind == "dead" and arrived <= trouble.begin < at:
                self._free_at = trouble.end
                return Outcome(trouble.begin, False)
            if trouble.kind == "cut" and client in trouble.of and trouble.begin <= at < trouble.end:
                return Outcome(inf, False)
        return Outcome(at, True)

    def _now(self, kind: str, at: float, client: int) -> Trouble | None:
        for trouble in self.troubles:
            if (
                trouble.kind == kind
                and trouble.begin <= at < trouble.end
                and (kind != "cut" or client in trouble.of)
            ):
                return trouble
        return None

    def _stalls_from(self, at: float) -> list[tuple[float, float]]:
        return self._stalls[bisect_right(self._stalls, (at, inf)) :]

    def _awake(self, at: float) -> float:
        """The first moment from `at` on at which it does not stand still."""
        index = bisect_right(self._stalls, (at, inf)) - 1
        return max(at, self._stalls[index][1]) if index >= 0 else at
