"""Lives of brokers of both makes on one store, one after the other."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.interop.harness import official, ours
from tests.interop.harness.official import Server

from . import comparison
from .answers import Answers, read_answers
from .comparison import Begin
from .index_loss import index_loss
from .ledger import End, Kind, Ledger
from .life import Stop, work_until_the_end
from .traffic import DELAY_LEVELS, NEVER, Traffic

#: So small that every kind of file rolls many times in a life.
SETTINGS: Final[Mapping[str, object]] = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 1_040,
    "mappedFileSizeTimerLog": 1_040,
    "maxHashSlotNum": 100,
    # Checkpoints that are never far behind: recovery begins in the middle of the log.
    "flushCommitLogThoroughInterval": 500,
    "flushConsumeQueueThoroughInterval": 500,
    "messageDelayLevel": DELAY_LEVELS,
    "transactionCheckInterval": 3_600_000,
    "transactionOpBatchInterval": 100,
}
#: Of the last life: half messages that nobody can be asked about are given up at once.
CHECKING: Final[Mapping[str, object]] = {
    "transactionCheckInterval": 500,
    "transactionTimeOut": 500,
    "transactionCheckMax": 1,
}
MAKES: Final = ("ours", "official")
_START: Final = {"official": official.start_broker, "ours": ours.start_broker}
_SPAWN: Final = {"official": official.spawn_broker, "ours": ours.spawn_broker}
#: Seconds within which a start of each make is killed, if it is.
_START_TIME: Final = {"official": 4.0, "ours": 0.6}
_NAME: Final = "handed"


class Handover:
    """One store and its lives.

    Attributes:
        faults: what was wrong, as lines that name the life.
        counts: what happened, for a report.
    """

    def __init__(self, directory: Path, namesrv: str, seed: int) -> None:
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.ledger = Ledger()
        self.store = directory / "store"
        self._directory = directory
        self._namesrv = namesrv
        self._chance = random.Random(seed)
        # Few entries: files roll. Many: a kill costs the official broker's index a long stretch.
        self._settings = {**SETTINGS, "maxIndexNum": self._chance.choice((200, 2_000))}
        self._traffic = Traffic(self.ledger, self._chance)
        self._before: Answers | None = None
        self._life = 0
        self._begins: list[Begin] = []
        self._lost: list[range] = []  # of the index
        self._clean: set[int] = set()  # lives that leave nothing behind
        self._killed = False
        self._known: set[str] = set()

    async def live(self, make: str, stop: Stop, messages: int, pause: float = 0.0) -> None:
        """One life: compare what the broker finds, let it work, end it."""
        server = await self._start(make)
        try:
            await self._compare(server, make)
            worked = await work_until_the_end(
                server, self._traffic, self._life, stop, self._chance, messages, pause
            )
        finally:
            server.process.kill()
        self._killed = stop is not Stop.CLEAN
        if stop is Stop.CLEAN and make == "ours":
            # The official broker forgets the ops of the last transactionOpBatchInterval.
            self._clean.add(self._life)
        self.counts[f"{make}, ended {stop if worked else Stop.KILL}"] += 1
        for code, remark in self._traffic.refused:
            self.counts[f"refused by {make}: {code} {remark}"] += 1
        self._traffic.refused.clear()

    async def kill_start(self, make: str) -> None:
        """Start a broker, and kill it while it recovers or soon after."""
        self._begin(make)
        server = await asyncio.to_thread(self._run, _SPAWN, make, self._settings)
        await asyncio.sleep(self._chance.uniform(0, _START_TIME[make]))
        server.process.kill()
        self._killed = True
        self.counts[f"{make}, killed while it started"] += 1

    async def finish(self, make: str, due_within: int = NEVER, patience: float = 60.0) -> None:
        """The last life: what is due within so many ms is delivered, and half messages that are
        open are checked."""
        server = await self._start(make, CHECKING)
        try:
            await self._compare(server, make)
            await self._settle(server, make, due_within, patience)
        finally:
            server.process.kill()

    async def _start(self, make: str, more: Mapping[str, object] | None = None) -> Server:
        self._begin(make)
        self._life += 1
        flush = self._chance.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
        settings = {**self._settings, "flushDiskType": flush, **(more or {})}
        return await asyncio.to_thread(self._run, _START, make, settings)

    def _run(
        self, how: Mapping[str, Callable[..., Server]], make: str, settings: Mapping[str, object]
    ) -> Server:
        return how[make](
            self._directory, self._namesrv, name=_NAME, store=self.store, settings=settings
        )

    def _begin(self, make: str) -> None:
        self._begins.append(Begin(_now(), make, self._killed))
        if make == "official" and self._killed and (lost := index_loss(self.store)):
            self._lost.append(lost)
            self.counts["gaps in the index that the official broker left"] += 1

    def _forgets(self, physical: int) -> bool:
        return any(physical in lost for lost in self._lost)

    async def _compare(self, server: Server, make: str) -> None:
        answers = await read_answers(server.address, make)
        self.counts["messages compared"] += len(answers.messages)
        self.counts["index answers compared"] += len(answers.index)
        self._note(
            comparison.faults(
                answers, self.ledger, self._before, self._begins, _now() + NEVER, self._forgets
            )
        )
        self._before = answers

    def _note(self, faults: Iterable[str]) -> None:
        for fault in faults:
            if fault not in self._known:
                self._known.add(fault)
                self.faults.append(f"life {self._life}: {fault}")

    async def _settle(self, server: Server, make: str, due_within: int, patience: float) -> None:
        """Wait for deliveries, and for what becomes of open half messages."""
        assert self._before is not None
        # By what was there before the checks: these store halves again, with other offsets.
        ops = comparison.ended_halves(self._before)
        halves = [sent for sent in self.ledger.messages if sent.kind is Kind.HALF]
        untold = {sent.unique_key for sent in halves if sent.place.queue_offset not in ops}
        horizon, until = _now() + due_within, time.monotonic() + patience
        while True:
            answers = await read_answers(server.address, make, index=False)
            late = comparison.undelivered(answers, self.ledger, horizon)
            given_up = comparison.given_up(answers)
            if (not late and untold <= given_up) or time.monotonic() > until:
                break
            await asyncio.sleep(0.5)
        await self._compare(server, make)
        self._note(
            f"not delivered in {patience} s: {sent.kind.value} {sent.unique_key.lstrip('0')} of "
            f"life {sent.life}" for sent in late
        )  # fmt: skip
        for sent in halves:
            key, end = sent.unique_key, self.ledger.ends[sent.unique_key]
            if key in given_up and key not in untold:
                self._note([f"half {key.lstrip('0')} has an op, and was checked all the same"])
            elif key not in given_up and key in untold:
                self._note([f"half {key.lstrip('0')} has no op ({end.value}) and was not checked"])
            elif key in untold and self.ledger.ended.get(key) in self._clean:
                self._note([f"half {key.lstrip('0')} has no op, though its end was acknowledged"])
            elif key in untold and key in self.ledger.ended:
                self.counts["ends of half messages whose op was lost with a kill"] += 1
        self.counts["messages acknowledged"] = len(self.ledger.messages)
        for kind in Kind:
            count = sum(sent.kind is kind for sent in self.ledger.messages)
            self.counts[f"acknowledged: {kind.value}"] = count
        self.counts["halves left open"] = sum(
            self.ledger.ends[sent.unique_key] is End.OPEN for sent in halves
        )
        found = comparison.deliveries(answers, {sent.topic for sent in self.ledger.messages})
        self.counts["delivered again after a kill"] = sum(
            len(times) > 1 for times in found.values()
        )


def _now() -> int:
    return int(time.time() * 1000)
