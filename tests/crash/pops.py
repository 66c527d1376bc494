"""Consumers that pop from a broker that is killed: `python -m tests.crash.pops --rounds 100`.

Each round sends messages, pops, acknowledges most of what comes and gives some back, until the
broker is killed, or now and then stopped. At the end, with a broker that stays, everything is
popped that still comes. Then:

- every message that was acknowledged by the broker when it was sent was popped, and its last
  delivery was acknowledged: nothing is lost;
- a message that was acknowledged by its consumer, and answered before its time was over, does not
  come again after clean stops. After a kill each copy of it that was popped before, in its queue
  and in the retry topic, may come again once: the offset behind the checkpoint may not have been on
  the disk. Each delivery that did not end with an acknowledgement may be taken back once more: how
  far the timer and the revive log were may not have been there, either.

`--kills 0` stops the broker cleanly each time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

from pocketmq.remoting.errors import RemotingError
from tests.broker.conftest import Client
from tests.broker.pop.consuming import PopClient, Popped
from tests.interop.harness.ports import free_port

from .broker_process import BrokerProcess

SETTINGS: Final = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 2_000,
    "mappedFileSizeTimerLog": 1_040,
    "timerPrecisionMs": 100,
    "timerFlushIntervalMs": 100,
    "flushConsumerOffsetInterval": 100,
    "popCkStayBufferTime": 400,
    "popCkStayBufferTimeOut": 100,
    "diskMaxUsedSpaceRatio": 100,
    "cleanFileForciblyEnable": False,
}
INVISIBLE_MS: Final = 2_500
TOPIC: Final = "popped"
CONSUMERS: Final = 3
KILLS: Final = 0.85
PATIENCE: Final = 60.0


class Ledger:
    """What was sent and acknowledged, and when. Times are those of the monotonic clock."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        # Of each stored copy of a message, by kind of topic, queue and offset.
        self.first_pops: defaultdict[bytes, dict[tuple[int, int, int], float]] = defaultdict(dict)
        self.given_up: defaultdict[bytes, list[float]] = defaultdict(list)  # pops without ack
        self.came_again: Counter[bytes] = Counter()
        self.acked: dict[bytes, bool] = {}  # and whether it was answered in time
        self.histories: defaultdict[bytes, list[str]] = defaultdict(list)
        self.kills: list[float] = []
        self.deliveries = 0
        self.faults: list[str] = []
        self.nothing_open = asyncio.Event()

    def popped(self, message: Popped) -> None:
        """Note a delivery, and whether it may be one."""
        body, handle = message.body, message.handle
        self.deliveries += 1
        copy = (handle.kind, handle.queue_id, handle.queue_offset or 0)
        now = time.monotonic()
        self.first_pops[body].setdefault(copy, now)
        self.given_up[body].append(now)
        if not self.acked.pop(body, False):
            return
        self.came_again[body] += 1
        if self.came_again[body] > self._excuses(body):
            self.faults.append(
                f"{body!r} came {self.came_again[body]} times after it was acknowledged, and "
                f"kills excuse {self._excuses(body)} of them: {self.histories[body]}"
            )

    def note(self, message: Popped, what: str) -> None:
        """Note what happened to a message, for its fault."""
        at = round(time.time() * 1000)
        self.histories[message.body].append(f"{at} {what} {message.handle.encode()}")

    def _excuses(self, body: bytes) -> int:
        """How many times this message may come again, for each kill by what was before."""
        before = [*self.first_pops[body].values(), *self.given_up[body]]
        return sum(kill >= time for time in before for kill in self.kills)

    @property
    def again(self) -> int:
        """How many deliveries came after an acknowledgement."""
        return self.came_again.total()

    def acknowledged(self, body: bytes, *, in_time: bool) -> None:
        """Note that a message was acknowledged; one whose time was over may come again."""
        self.acked[body] = in_time
        self.given_up[body].pop()
        if not self.open:
            self.nothing_open.set()

    @property
    def open(self) -> set[bytes]:
        """Messages that must still come."""
        return self.sent - self.acked.keys()


class PopCampaign:
    """Rounds on one store in `directory`; such a part of them ends with a kill."""

    def __init__(self, directory: Path, seed: int, kills: float = KILLS) -> None:
        self._kills = kills
        self.ledger = Ledger()
        self._directory = directory
        self._random = random.Random(seed)
        self._number = 0
        self._port = free_port()
        self._topic_is_made = asyncio.Event()

    async def run(self, rounds: int) -> None:
        """Kill the broker so often, and look at what is left."""
        for _ in range(rounds):
            await self._round()
        await self._finish()

    async def _round(self) -> None:
        broker = BrokerProcess(self._directory, self._port, SETTINGS)
        connection = await broker.listening()
        await connection.close()
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(self._send(broker.address))]
            work += [
                tasks.create_task(self._consume(broker.address, careful=False))
                for _ in range(CONSUMERS)
            ]
            await asyncio.sleep(self._random.uniform(0.1, 1.5))
            if self._random.random() < self._kills:
                self.ledger.kills.append(time.monotonic())
                broker.kill()
            else:
                await broker.stop()
            for task in work:
                task.cancel()

    async def _finish(self) -> None:
        broker = BrokerProcess(self._directory, self._port, SETTINGS)
        connection = await broker.listening()
        await connection.close()
        ledger = self.ledger
        if ledger.open:
            ledger.nothing_open.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
                work = [
                    tasks.create_task(self._consume(broker.address, careful=True))
                    for _ in range(CONSUMERS)
                ]
                await ledger.nothing_open.wait()
                # Longer than anything is invisible: what comes now comes again.
                await asyncio.sleep(INVISIBLE_MS / 1000 + 1.0)
                for task in work:
                    task.cancel()
        await broker.stop()
        if ledger.open:
            lost = sorted(ledger.open)
            ledger.faults.append(f"{len(lost)} messages are lost: {lost[:10]}")

    async def _send(self, address: str) -> None:
        client = Client()
        with contextlib.suppress(RemotingError):
            await client.open(address)
            while True:
                body = b"%d" % self._number
                self._number += 1
                answer = await client.send(TOPIC, body, queue_id=self._number % 4)
                if answer.code == 0:
                    self.ledger.sent.add(body)
                    self._topic_is_made.set()
                await asyncio.sleep(0.001)

    async def _consume(self, address: str, *, careful: bool) -> None:
        client = Client()
        pops = PopClient(client, TOPIC, "G", "killed")
        with contextlib.suppress(RemotingError):
            await client.open(address)
            await self._topic_is_made.wait()
            while True:
                got = await pops.pop(invisible_time=INVISIBLE_MS, poll_time=500, max_msg_nums=8)
                for message in got:
                    self.ledger.note(message, "popped")
                    self.ledger.popped(message)
                for message in got:
                    await self._settle(pops, message, careful=careful)

    async def _settle(self, pops: PopClient, message: Popped, *, careful: bool) -> None:
        """Acknowledge a message, give it back, or forget it."""
        chance = 0.0 if careful else self._random.random()
        if chance < 0.8:
            if (await pops.ack(message)).code == 0:
                over = message.handle.next_visible_time
                self.ledger.note(message, "acknowledged")
                self.ledger.acknowledged(message.body, in_time=time.time() * 1000 < over)
        elif chance < 0.9:
            with contextlib.suppress(AssertionError):
                await pops.change(message, 300)
                self.ledger.note(message, "given back")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.pops", description=__doc__)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--kills", type=float, default=KILLS, help="how many ends are kills, 0 to 1"
    )
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="pocketmq-pops-"))
    campaign = PopCampaign(directory, options.seed, options.kills)
    asyncio.run(campaign.run(options.rounds))
    ledger = campaign.ledger
    print(
        f"seed {options.seed}: {options.rounds} rounds, {len(ledger.kills)} kills, "
        f"{len(ledger.sent)} messages, {ledger.deliveries} deliveries, {ledger.again} of them "
        f"after an acknowledgement; {len(ledger.faults)} faults"
    )
    print(*ledger.faults[:20], sep="\n")
    if ledger.faults:
        print(f"the store is left in {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
