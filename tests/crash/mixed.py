"""All kinds of producers and consumers through faults of all servers, as Jepsen does it.

Name server, broker and proxy are processes of their own. Each round has one fault: one of them is
killed, stopped or halted (SIGSTOP) for a while, all are killed, a topic gets more or fewer queues,
or a member leaves its group and joins again. After some rounds nobody sends any more, and
everything that was acknowledged must arrive at every group. Then the history of the clients is
judged, which is all that is looked at (tests.crash.history).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from tests.interop.harness.official import write_properties
from tests.interop.harness.ports import free_port

from .broker_process import BrokerProcess, ServerProcess
from .clients import BROKER, DELAY_LEVELS, ORDERLY, SUBSCRIPTIONS, WITH_OFFSETS, Clients
from .history import broken_promises, missing
from .ledger import Handled, Ledger, now_ms
from .lies import TIMER_SLOT_MS
from .store_campaign import StoreCampaign

SETTINGS: Final = {
    "brokerName": BROKER,
    "brokerIP1": "127.0.0.1",
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 2_000,
    "mappedFileSizeTimerLog": 1_040,
    "messageDelayLevel": DELAY_LEVELS,
    "timerPrecisionMs": TIMER_SLOT_MS,
    "timerFlushIntervalMs": 100,
    "recallMessageEnable": True,
    "transactionTimeOut": 300,
    "transactionCheckInterval": 200,
    "transactionCheckMax": 100_000,
    "transactionOpBatchInterval": 50,
    "flushConsumerOffsetInterval": 100,
    "flushDelayOffsetInterval": 100,
    "popCkStayBufferTime": 400,
    "popCkStayBufferTimeOut": 100,
    "registerNameServerPeriod": 10_000,
    "diskMaxUsedSpaceRatio": 100,
    "cleanFileForciblyEnable": False,
}
PROXY_SETTINGS: Final = ("minInvisibleTimeMillsForRecv=1000", "enableTopicMessageTypeCheck=false")
#: Seconds without any progress after which what is awaited counts as lost.
STALL: Final = 60.0


class MixedCampaign(StoreCampaign):
    """Does harm to all servers.

    Attributes:
        handled: what groups handled, by group.
        late: messages that a group had not got yet when the senders stopped, and got.
        stall: seconds without any progress after which what is awaited counts as lost.
    """

    rounds_of_a_store = 25

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        lie: str = "",
        stall: float = STALL,
        progress: Callable[[MixedCampaign], None] = lambda campaign: None,
    ) -> None:
        """`lie`: the deliberate bug of the brokers; `progress` is called after each store."""
        super().__init__(directory, seed, progress)
        self.handled: Counter[str] = Counter()
        self.late = 0
        self.stall = stall
        self._lie = lie

    def begin(self) -> _StoreLife:
        return _StoreLife(self, self.store, self.seed_of_store, self._lie)


async def left_over(
    ledger: Ledger,
    clients: Clients,
    subscriptions: Mapping[str, Collection[str]],
    stall: float = STALL,
) -> list[str]:
    """Wait until everything is due and has arrived; return what has not, as lines.

    It waits as long as less is missing or groups get on, and gives up when neither has happened for
    `stall` seconds.
    """
    now = now_ms()
    due = max([now, *(sent.due for sent in ledger.messages)])
    await asyncio.sleep((due - now) / 1000)
    best = [len(ledger.messages) * len(subscriptions), 1 << 63]
    since = time.monotonic()
    while True:
        clients.check()
        lag = await clients.lag()
        left = missing(ledger, subscriptions, due)
        if not left and lag == 0:
            return []
        better = [min(best[0], len(left)), best[1] if lag is None else min(best[1], lag)]
        if better != best:
            best, since = better, time.monotonic()
        elif time.monotonic() - since > stall:
            return left or [f"the groups stay {lag} messages behind"]
        await asyncio.sleep(0.2)


class _StoreLife:
    """The rounds of one store."""

    def __init__(self, campaign: MixedCampaign, directory: Path, seed: int, lie: str) -> None:
        self.ledger = Ledger()
        self._campaign = campaign
        self._directory = directory
        self._chance = random.Random(seed)
        self._lie = lie
        self._ports = {"namesrv": free_port(), "broker": free_port(), "proxy": free_port()}
        self._servers: dict[str, ServerProcess] = {}

    async def run(self, rounds: int) -> None:
        self._directory.mkdir(parents=True)
        for name in self._ports:
            await self._start(name)
        clients = Clients(
            self.ledger,
            self._chance,
            self._address("namesrv"),
            self._address("broker"),
            self._ports["proxy"],
        )
        async with clients:
            for _ in range(rounds):
                fault = self._draw(clients)
                await fault()
                await self._work_goes_on(clients)
                self._campaign.rounds += 1
            await clients.stop_sending()
            self._campaign.late += len(missing(self.ledger, SUBSCRIPTIONS, now_ms()))
            self._campaign.faults += await left_over(
                self.ledger, clients, SUBSCRIPTIONS, self._campaign.stall
            )
        self._judge()

    def _judge(self) -> None:
        campaign, ledger = self._campaign, self.ledger
        campaign.handled += Counter(
            event.group for event in ledger.history if isinstance(event, Handled)
        )
        campaign.faults += broken_promises(ledger, orderly=[ORDERLY], tells=WITH_OFFSETS)

    async def _work_goes_on(self, clients: Clients) -> None:
        """Wait for some acknowledgements."""
        began = time.monotonic()
        await self.ledger.more(self._chance.randint(20, 80), timeout=self._campaign.stall)
        clients.check()
        assert time.monotonic() - began < self._campaign.stall, "nothing is acknowledged any more"

    # --- faults -------------------------------------------------------------------------------

    def _draw(self, clients: Clients) -> Callable[[], Awaitable[None]]:
        faults: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "broker killed": (5, lambda: self._restart("broker", kill=True)),
            "broker stopped": (2, lambda: self._restart("broker", kill=False)),
            "broker halted": (3, lambda: self._halt("broker")),
            "name server killed": (2, lambda: self._restart("namesrv", kill=True)),
            "proxy killed": (1, lambda: self._restart("proxy", kill=True)),
            "proxy stopped": (1, lambda: self._restart("proxy", kill=False)),
            "proxy halted": (1, lambda: self._halt("proxy")),
            "all killed": (1, self._restart_all),
            "queues changed": (2, clients.scale),
            "member restarted": (2, clients.restart_a_member),
        }
        weights = [weight for weight, _ in faults.values()]
        [name] = self._chance.choices(list(faults), weights)
        self._campaign.endings[name] += 1
        return faults[name][1]

    async def _restart(self, name: str, *, kill: bool) -> None:
        server = self._servers[name]
        if kill:
            server.kill()
        else:
            await server.stop()
        await asyncio.sleep(self._chance.choice((0.0, self._chance.uniform(0.0, 1.0))))
        await self._start(name)

    async def _restart_all(self) -> None:
        names = list(self._ports)
        self._chance.shuffle(names)
        for name in names:
            self._servers[name].kill()
        self._chance.shuffle(names)
        for name in names:
            await self._start(name)

    async def _halt(self, name: str) -> None:
        self._servers[name].pause()
        try:
            await asyncio.sleep(self._chance.uniform(0.1, 3.0))
        finally:
            self._servers[name].resume()

    # --- processes ----------------------------------------------------------------------------

    def _address(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[name]}"

    async def _start(self, name: str) -> None:
        server = self._servers[name] = self._spawn(name)
        await (await server.listening()).close()

    def _spawn(self, name: str) -> ServerProcess:
        port, log = self._ports[name], self._directory / f"{name}.log"
        if name == "broker":
            flush = self._chance.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
            settings = {
                **SETTINGS,
                "flushDiskType": flush,
                "namesrvAddr": self._address("namesrv"),
            }
            return BrokerProcess(self._directory, port, settings, self._lie)
        if name == "namesrv":
            config = write_properties(
                self._directory / "namesrv.conf",
                {"listenPort": port, "kvConfigPath": self._directory / "kv.json"},
            )
            return ServerProcess(["namesrv", "-c", str(config)], port, log)
        settings_of_proxy = [word for value in PROXY_SETTINGS for word in ("--set", value)]
        command = ["proxy", "-n", self._address("namesrv"), "--grpc-port", str(port)]
        return ServerProcess([*command, *settings_of_proxy], port, log)

    def end(self) -> None:
        """Leave no process behind."""
        for server in self._servers.values():
            server.kill()
