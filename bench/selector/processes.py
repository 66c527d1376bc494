"""The same traffic against real brokers, of which one is stopped, killed, or slow to reach."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from pocketmq.client.admin import Admin
from pocketmq.client.errors import RemotingError, SendError
from pocketmq.client.instance import ClientInstance
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.offset import GetMaxOffsetRequestHeader
from tests.interop.harness import ours
from tests.interop.harness.official import Server
from tests.interop.harness.ports import free_port

from .brokers import Trouble
from .proxy import SlowRelay
from .scenarios import BAD, Scenario
from .traffic import CLIENTS, Attempt, Contender, Run, client, drive

__all__ = ["measure", "process_scenarios"]

TOPIC = "measured"
#: Clients reach the brokers at these addresses, through relays: one each, to make all alike.
RELAY_HOSTS = {f"b{i}": f"127.0.0.{2 + i}" for i in range(3)}
#: Recognisably more than a send needs, less than any rule isolates for, seconds.
ADDED = 0.3


def process_scenarios(length: float) -> tuple[Scenario, ...]:
    """What can be done to a process; `length` seconds each."""
    begin, end = length / 6, length * 2 / 3
    return (
        Scenario("steady", length),
        Scenario("one slow", length, (Trouble(BAD, begin, end, "slow", extra=ADDED),), end),
        Scenario("one hung (SIGSTOP)", length, (Trouble(BAD, begin, end, "hung"),), end),
        Scenario("one dead (SIGKILL)", length, (Trouble(BAD, begin, end, "dead"),), end),
    )


class _RealNetwork:
    """One client's connections; a producer makes the single attempts."""

    def __init__(self, index: int, namesrv: str, run: Run) -> None:
        self._index = index
        self._run = run
        self._producer = Producer(
            "selector", namesrv=namesrv, retries=0, start_detector_enable=False
        )
        self._instance = ClientInstance(namesrv)
        self.began = 0.0

    async def __aenter__(self) -> _RealNetwork:
        await self._producer.start()
        await self._instance.start()
        await self._instance.routes.for_publish(TOPIC)
        for queue in await self._producer.queues(TOPIC):
            await self._producer.send(Message(TOPIC, b"first"), queue=queue)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._producer.shutdown()
        await self._instance.shutdown()

    async def queues(self) -> Sequence[MessageQueue]:
        return await self._producer.queues(TOPIC)

    def clock(self) -> float:
        return time.monotonic() - self.began

    async def attempt(self, queue: MessageQueue, share: float) -> MessageQueue:
        began, answered = self.clock(), False
        try:
            await self._producer.send(Message(TOPIC, bytes(100)), queue=queue, timeout=share)
            answered = True
        except SendError as error:
            raise error.__cause__ or error from None
        finally:
            self._run.attempts.append(
                Attempt(self._index, queue.broker_name, began, self.clock(), answered)
            )
        return queue

    async def probe(self, address: str, timeout: float) -> bool:
        header = GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=0)
        try:
            await self._instance.pool.request(
                self._instance.routes.master(address),
                RequestCode.GET_MAX_OFFSET,
                header,
                timeout=timeout,
            )
        except RemotingError:
            return False
        return True


class _Brokers:
    """A name server and the brokers of a scenario, each behind a relay of its own."""

    def __init__(self, names: Sequence[str], directory: Path) -> None:
        self._names = names
        self._directory = directory
        self._ports = {name: free_port() for name in names}
        self._servers: dict[str, Server] = {}
        self._stack = AsyncExitStack()
        self._relays: dict[str, SlowRelay] = {}

    async def __aenter__(self) -> _Brokers:
        async with self._stack as stack:
            directory = tempfile.TemporaryDirectory(dir=self._directory)
            self._directory = Path(stack.enter_context(directory))
            namesrv = await asyncio.to_thread(ours.start_name_server, self._directory)
            stack.callback(namesrv.process.kill)
            self.namesrv = namesrv.address
            stack.callback(self._kill)
            for name in self._names:
                await asyncio.to_thread(self._start, name)
                port = self._ports[name]
                relay = SlowRelay(RELAY_HOSTS[name], port, f"127.0.0.1:{port}")
                self._relays[name] = await stack.enter_async_context(relay)
            async with Admin(namesrv=self.namesrv) as admin:
                await admin.create_topic(TOPIC, queues=4)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    def _start(self, name: str) -> None:
        self._servers[name] = ours.start_broker(
            self._directory,
            self.namesrv,
            name=name,
            port=self._ports[name],
            settings={"brokerIP1": RELAY_HOSTS[name], "bindAddress": "127.0.0.1"},
        )

    def _kill(self) -> None:
        for server in self._servers.values():
            server.process.kill()

    async def suffer(self, trouble: Trouble, clock: Callable[[], float]) -> None:
        """Let one broker have its trouble, from its beginning to its end."""
        process = self._servers[trouble.broker].process
        await asyncio.sleep(trouble.begin - clock())
        if trouble.kind == "slow":
            self._relays[trouble.broker].delay = trouble.extra
        elif trouble.kind == "hung":
            os.kill(process.pid, signal.SIGSTOP)
        else:
            await asyncio.to_thread(process.kill)
        await asyncio.sleep(trouble.end - clock())
        if trouble.kind == "slow":
            self._relays[trouble.broker].delay = 0.0
        elif trouble.kind == "hung":
            os.kill(process.pid, signal.SIGCONT)
        else:
            await asyncio.to_thread(self._start, trouble.broker)


async def measure(
    scenario: Scenario,
    contender: Contender,
    directory: Path,
    *,
    rate: float = 250,
    seed: int = 63,
) -> Run:
    """One run in real time, with brokers of its own, whose stores are in `directory` meanwhile."""
    run = Run(scenario, contender)
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(_Brokers(scenario.broker_names, directory))
        networks = [
            await stack.enter_async_context(_RealNetwork(index, brokers.namesrv, run))
            for index in range(CLIENTS)
        ]
        began = time.monotonic()

        def clock() -> float:
            return time.monotonic() - began

        queues = await networks[0].queues()
        clients = []
        for index, network in enumerate(networks):
            network.began = began
            rng = random.Random(f"{seed} client {index}")
            clients.append(client(contender, queues, network, clock, rng))

        async def troubles() -> None:
            for trouble in scenario.troubles:
                await brokers.suffer(trouble, clock)

        await drive(
            run,
            clients,
            rate=rate,
            seed=seed,
            clock=clock,
            savable=lambda _index: True,
            trouble=troubles,
        )
    return run
