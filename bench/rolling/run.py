"""One run: the cluster, its load, the restarts, consumers that come and go, and what came of it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from math import inf
from pathlib import Path

import msgspec

from bench.rolling import consumer, producer
from bench.rolling.cluster import Cluster, Restart
from bench.rolling.findings import Findings, examine
from bench.rolling.latency import percentile
from bench.rolling.load import BROKERS, Kind, Load, Tally
from pocketmq.client.admin import Admin
from pocketmq.client.errors import RemotingError
from tests.interop.harness.official import PROJECT
from tests.interop.harness.process import Process, ProcessFailed

__all__ = ["Guest", "Plan", "Report", "roll"]

#: From the start of the last process to the first message, seconds.
LEAD = 1.0
#: Consumers that are members all the time.
RESIDENTS = 2
#: The end is waited for as long as the consumers get on: a queue of a killed orderly consumer can
#: be locked by another one after 60 s.
DRAIN = 90.0


class Guest(msgspec.Struct, frozen=True):
    """A member from `joins` to `leaves` (seconds after the first message), which then gets
    SIGTERM, or SIGKILL if `killed`; `kinds`: the groups it joins."""

    joins: float
    leaves: float
    killed: bool = False
    kinds: tuple[Kind, ...] = tuple(Kind)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What happens. `restarts`: when each broker is restarted, seconds, in their order, or when the
    one before is back, if that is later; `kill`: by SIGKILL; `java`: more flags of the official
    brokers' virtual machines."""

    load: Load
    restarts: tuple[float, ...]
    guests: tuple[Guest, ...]
    kill: bool = False
    java: tuple[str, ...] = ()

    @classmethod
    def of(cls, load: Load, *, kill: bool = False) -> Plan:
        """The usual one: a restart in each quarter but the last, and a guest in each eighth, who
        stays for a twelfth; every other one is killed."""
        length = load.seconds
        guests = [
            Guest(length * n / 8, length * n / 8 + length / 12, killed=n % 2 == 0)
            for n in range(1, 8)
        ]
        return cls(
            load=load,
            restarts=tuple(length * n / 4 + length / 10 for n in range(3)),
            guests=tuple(guests),
            kill=kill,
        )


class Report(msgspec.Struct, kw_only=True):
    """What came of a run; latencies by topic, of p50 and p99, seconds from when it was due."""

    make: str
    seconds: float
    wanted_rate: float
    sent_rate: float
    findings: dict[str, Findings]
    latencies: dict[str, tuple[float | None, float | None]]
    errors: dict[str, int]
    restarts: list[Restart]
    guests: int
    killed: int

    @property
    def holds(self) -> bool:
        """Nothing acknowledged was lost, everything stored was handled, order held."""
        return all(
            found.acknowledged and not (found.lost or found.unhandled or found.violations)
            for found in self.findings.values()
        )


async def roll(
    make: str, plan: Plan, directory: Path, say: Callable[[str], object] = lambda _: None
) -> Report:
    """One run in `directory`; `say` is told what happens. Raises Unavailable, ProcessFailed."""
    async with AsyncExitStack() as stack:
        say(f"starting a name server and {len(BROKERS)} brokers ({make})")
        cluster = await stack.enter_async_context(Cluster(make, directory, plan.java))
        run = _Run(plan, cluster, directory, say)
        stack.callback(run.kill)
        return await run.run(make)


def ended(process: Process, timeout: float) -> None:
    """Wait for a producer; raises ProcessFailed unless it has sent all it could."""
    _check(process, process.wait(timeout))


def terminated(process: Process) -> None:
    """End a consumer; raises ProcessFailed if it had ended by itself."""
    _check(process, process.terminate(30.0))


def _check(process: Process, code: int) -> None:
    if code:
        raise ProcessFailed(f"{process.name} ended with exit code {code}\n{process.tail()}")


class _Run:
    def __init__(
        self, plan: Plan, cluster: Cluster, directory: Path, say: Callable[[str], object]
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._directory = directory
        self._say = say
        self._processes: list[Process] = []
        self._members: dict[str, Process] = {}
        self._killed: set[str] = set()
        self._restarts: list[Restart] = []
        self._begin = 0.0

    def kill(self) -> None:
        for process in self._processes:
            process.kill()

    async def run(self, make: str) -> Report:
        load = self._plan.load
        for number in range(RESIDENTS):
            await self._join(f"resident-{number}", tuple(Kind))
        self._begin = time.monotonic() + LEAD
        producers = [await self._produce(number) for number in range(load.producers)]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._roll())
            for number, guest in enumerate(self._plan.guests):
                group.create_task(self._visit(f"guest-{number}", guest))
            for process in producers:
                group.create_task(asyncio.to_thread(ended, process, load.seconds + 120))
        self._say("everything is sent; waiting for the consumers")
        stored = await self._drained()
        for process in self._members.values():
            await asyncio.to_thread(terminated, process)
        return await asyncio.to_thread(self._report, make, stored)

    def _spawn(self, name: str, module: str, settings: msgspec.Struct) -> Process:
        text = msgspec.json.encode(settings).decode()
        process = Process(
            name,
            [sys.executable, "-m", module, text],
            log=self._directory / f"{name}.log",
            cwd=PROJECT,
        )
        self._processes.append(process)
        return process

    async def _produce(self, number: int) -> Process:
        settings = producer.Settings(
            number, self._cluster.namesrv, str(self._directory), self._plan.load, self._begin
        )
        return self._spawn(f"producer-{number}", "bench.rolling.producer", settings)

    async def _join(self, name: str, kinds: tuple[Kind, ...]) -> Process:
        settings = consumer.Settings(
            name,
            self._cluster.namesrv,
            str(self._directory),
            list(kinds),
            self._plan.load.commit_interval,
        )
        process = self._members[name] = self._spawn(name, "bench.rolling.consumer", settings)
        await asyncio.to_thread(process.wait_for, "ready", 60.0)
        return process

    async def _until(self, moment: float) -> None:
        await asyncio.sleep(self._begin + moment - time.monotonic())

    async def _visit(self, name: str, guest: Guest) -> None:
        await self._until(guest.joins)
        process = await self._join(name, guest.kinds)
        self._tell(f"{name} has joined")
        await self._until(guest.leaves)
        del self._members[name]
        if guest.killed:
            self._killed.add(name)
            await asyncio.to_thread(process.kill)
        else:
            await asyncio.to_thread(terminated, process)
        self._tell(f"{name} {'was killed' if guest.killed else 'has left'}")

    async def _roll(self) -> None:
        for name, moment in zip(BROKERS, self._plan.restarts, strict=False):
            await self._until(moment)
            restart = await asyncio.to_thread(self._cluster.restart, name, kill=self._plan.kill)
            self._restarts.append(restart)
            self._tell(f"{name} was away for {restart.back - restart.begin:.2f} s")

    def _tell(self, what: str) -> None:
        self._say(f"{time.monotonic() - self._begin:6.1f} s  {what}")

    async def _drained(self) -> dict[Kind, int]:
        """Wait until both groups have consumed and committed everything; what each topic stores."""
        least, deadline = inf, time.monotonic() + DRAIN
        async with Admin(namesrv=self._cluster.namesrv) as admin:
            while least and time.monotonic() < deadline:
                with suppress(RemotingError):
                    lag = sum([await admin.lag(str(kind), str(kind)) for kind in Kind])
                    if lag < least:
                        least, deadline = lag, time.monotonic() + DRAIN
                await asyncio.sleep(0.2)
            if least:
                self._say(f"{least} messages were not consumed, and no more of them in {DRAIN} s")
            stored = {}
            for kind in Kind:
                bounds = (await admin.topic_stats(str(kind))).offset_table.values()
                stored[kind] = sum(each.max_offset for each in bounds)
            return stored

    def _report(self, make: str, stored: dict[Kind, int]) -> Report:
        load = self._plan.load
        tallies = [
            msgspec.json.decode((self._directory / f"tally-{n}.json").read_bytes(), type=Tally)
            for n in range(load.producers)
        ]
        findings, latencies = {}, {}
        errors: Counter[str] = Counter()
        for tally in tallies:
            errors.update(tally.errors)
        for kind in Kind:
            flags = {number: Path(tally.flags[kind]) for number, tally in enumerate(tallies)}
            findings[str(kind)] = examine(
                kind, self._directory, flags, stored[kind], self._restarts, self._killed
            )
            counts: Counter[int] = Counter()
            for tally in tallies:
                counts.update(tally.latencies[kind])
            latencies[str(kind)] = (percentile(counts, 0.5), percentile(counts, 0.99))
        return Report(
            make=make,
            seconds=load.seconds,
            wanted_rate=load.rate,
            sent_rate=sum(found.acknowledged for found in findings.values()) / load.seconds,
            findings=findings,
            latencies=latencies,
            errors=dict(errors),
            restarts=self._restarts,
            guests=len(self._plan.guests),
            killed=len(self._killed),
        )
