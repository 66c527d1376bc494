"""Rounds of traffic, each ended by SIGKILL or now and then by SIGTERM, and a look at what is left.

A store lives for some rounds, so that it never takes long to read; then it is stopped cleanly,
checked as `pocketmq store check` does, and the next one begins. The seed draws what is sent, when
the broker is killed, and with what it starts. The order in which requests meet is up to the
machine, so a fault may need some runs to come again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pocketmq.broker.config import load_broker_config
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.settings.properties_file import Settings
from pocketmq.store.check.store_check import check_store
from tests.interop.harness.ports import free_port

from .broker_process import BrokerProcess
from .deletions import Deletions
from .ledger import Ending, Ledger, Sent, now_ms
from .lies import TIMER_SLOT_MS
from .store_campaign import StoreCampaign
from .traffic import DELAY_LEVELS, QUEUES, Traffic, make_groups
from .verdict import Verdict

#: Small files, so that all kinds of them roll, and short intervals.
SETTINGS: Final = {
    "mappedFileSizeCommitLog": 64 << 10,
    "mappedFileSizeConsumeQueue": 1_040,
    "mappedFileSizeTimerLog": 1_040,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
    "defaultTopicQueueNums": QUEUES,
    "messageDelayLevel": DELAY_LEVELS,
    "flushDelayOffsetInterval": 100,
    "timerPrecisionMs": TIMER_SLOT_MS,
    "timerRollWindowSlot": 20,
    "timerFlushIntervalMs": 100,
    "recallMessageEnable": True,
    "transactionTimeOut": 200,
    "transactionCheckInterval": 100,
    "transactionCheckMax": 100_000,
    "transactionOpBatchInterval": 50,
    "flushConsumerOffsetInterval": 100,
    "diskMaxUsedSpaceRatio": 100,
    "cleanFileForciblyEnable": False,
}
CLEAN_STOPS: Final = 0.12
KILLS_AT_START: Final = 0.25
#: Of each queue, the messages that are read again after every kill; all are now and then.
READ_AGAIN: Final = 150


class Campaign(StoreCampaign):
    """Ends brokers under traffic.

    Attributes:
        settle_every: after so many rounds everything that is due must be delivered ...
        patience: ... within so many seconds.
    """

    rounds_of_a_store = 50

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        lie: str = "",
        settle_every: int = 10,
        patience: float = 20.0,
        progress: Callable[[Campaign], None] = lambda campaign: None,
    ) -> None:
        """`lie`: the deliberate bug of the brokers; `progress` is called after each store."""
        super().__init__(directory, seed, progress)
        self._lie = lie
        self.settle_every = settle_every
        self.patience = patience

    def begin(self) -> _StoreLife:
        return _StoreLife(self, self.store, self.seed_of_store, self._lie)


class _StoreLife:
    """The rounds of one store."""

    def __init__(self, campaign: Campaign, directory: Path, seed: int, lie: str) -> None:
        self.ledger = Ledger()
        self._campaign = campaign
        self._directory = directory
        self._chance = random.Random(seed)
        self._lie = lie
        self._port = free_port()
        self._verdict = Verdict(self.ledger, self._chance, campaign.patience)
        self._pending: list[Sent] = []
        self._start_time = 0.3  # seconds that the last start took
        self._broker: BrokerProcess | None = None

    async def run(self, rounds: int) -> None:
        campaign, chance = self._campaign, self._chance
        self._directory.mkdir(parents=True)
        for turn in range(1, rounds + 1):
            await self._killed_at_start()
            traffic = Traffic(self.ledger, chance, self._pending)
            broker, connection = await self._start(traffic)
            if turn == 1:
                await make_groups(connection)
            settling = turn % campaign.settle_every == 0 or turn == rounds
            await self._look(connection, settling=settling)
            if campaign.faults:
                return
            campaign.rounds += 1
            deletions = Deletions(self.ledger, chance, traffic)
            if turn == rounds:
                await deletions.finish(connection)
                await self._stop(broker)
                await connection.close()
                break
            sending = asyncio.create_task(self._send(traffic, deletions, connection))
            await self.ledger.more(chance.randrange(120), timeout=1.0)
            await asyncio.sleep(chance.choice((0.0, 0.0, chance.uniform(0.0, 0.02))))
            if chance.random() < CLEAN_STOPS:
                await self._stop(broker)
            else:
                self._kill(broker, "killed")
            await sending
            await connection.close()
        self._check_files()

    async def _send(self, traffic: Traffic, deletions: Deletions, connection: Connection) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(traffic.run(connection))
            group.create_task(deletions.run(connection))

    async def _look(self, connection: Connection, *, settling: bool) -> None:
        faults = await self._verdict.find_faults(
            connection, again=None if settling else READ_AGAIN, queries=60 if settling else 6
        )
        if settling and not faults:
            faults = await self._verdict.settle(connection)
        self._campaign.faults += faults

    def _check_files(self) -> None:
        config, _ = load_broker_config(Settings.of_file(self._directory / "broker.conf"))
        report = check_store(config)
        self._campaign.faults += [f"store check: {problem}" for problem in report.problems]
        if not report.starts:
            self._campaign.faults.append(f"store check: {report.refusal}")

    # --- processes ----------------------------------------------------------------------------

    def _spawn(self) -> BrokerProcess:
        flush = self._chance.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
        settings = {**SETTINGS, "flushDiskType": flush}
        self._broker = BrokerProcess(self._directory, self._port, settings, self._lie)
        return self._broker

    async def _start(self, traffic: Traffic) -> tuple[BrokerProcess, Connection]:
        began = time.monotonic()
        broker = self._spawn()
        await broker.listening()
        self._start_time = time.monotonic() - began
        return broker, await traffic.connect(broker.address)

    async def _killed_at_start(self) -> None:
        """Recovery must bear to be killed itself, wherever it is."""
        while self._chance.random() < KILLS_AT_START:
            broker = self._spawn()
            await asyncio.sleep(self._chance.uniform(0.0, 1.2 * self._start_time))
            self._kill(broker, "killed at their start")

    def _kill(self, broker: BrokerProcess, how: str) -> None:
        begun = now_ms()
        broker.kill()
        self.ledger.endings.append(Ending(begun, now_ms(), clean=False))
        self._campaign.endings[how] += 1

    async def _stop(self, broker: BrokerProcess) -> None:
        begun = now_ms()
        await broker.stop()
        self.ledger.endings.append(Ending(begun, now_ms(), clean=True))
        self._campaign.endings["stopped"] += 1

    def end(self) -> None:
        """Leave no process behind."""
        if self._broker is not None:
            self._broker.kill()
