"""Clients that send at random moments, each by the rules of one contender, and what is noted."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from pocketmq.client.errors import RemotingError
from pocketmq.client.producer.delivery import Delivery, RetryPolicy
from pocketmq.client.selector.detector import Detector
from pocketmq.client.selector.penalty import Selection
from pocketmq.client.selector.pipeline import PublishQueues, QueueSelector
from pocketmq.message.message import MessageQueue

from .reference import ReferenceClient
from .scenarios import Scenario

__all__ = [
    "CLIENTS",
    "TIMEOUT",
    "Attempt",
    "Client",
    "Contender",
    "Network",
    "Run",
    "Sent",
    "client",
    "drive",
]

CLIENTS = 2
#: The total time of a send, seconds: the default of both producers.
TIMEOUT = 3.0


class Contender(StrEnum):
    ROUND_ROBIN = "round-robin"
    REFERENCE = "reference 5.3.3"
    OURS_IN_TURN = "ours, in turn"
    OURS = "ours, penalised"


@dataclass(frozen=True, slots=True)
class Sent:
    """One send: `took` seconds; `broker` that stored it, None when it failed; `savable`: at its
    beginning there was a broker that would have stored it."""

    client: int
    began: float
    took: float
    broker: str | None
    savable: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    client: int
    broker: str
    began: float
    ended: float
    answered: bool


@dataclass
class Run:
    """Everything noted of one contender in one scenario, times in seconds from its beginning."""

    scenario: Scenario
    contender: Contender
    sends: list[Sent] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)


class Network(Protocol):
    """The brokers as one client reaches them; `attempt` raises RemotingError."""

    async def attempt(self, queue: MessageQueue, share: float) -> MessageQueue: ...
    async def probe(self, address: str, timeout: float) -> bool: ...


class Client(Protocol):
    async def send(self, timeout: float) -> MessageQueue: ...
    async def detect(self) -> None: ...


class _Ours:
    """The classes of the producer; brokers are known by their names, also to the detector."""

    def __init__(
        self,
        queues: Sequence[MessageQueue],
        network: Network,
        clock: Callable[[], float],
        selection: Selection,
        rng: random.Random,
    ) -> None:
        self._network = network
        self._clock = clock
        self._queues = PublishQueues(queues, start=rng.randrange(len(queues)))
        selector = QueueSelector(clock, selection=selection, draw=rng.random)
        self._delivery = Delivery(
            selector,
            RetryPolicy(),
            clock,
            lambda _topic: None,
            current=lambda _topic: self._queues,
            wait=lambda _broker, seconds: asyncio.sleep(seconds),
        )
        names: dict[str, str | None] = {name: name for name in self._queues.brokers}
        self._detector = Detector(selector, lambda: names, network.probe)

    async def send(self, timeout: float) -> MessageQueue:
        deadline = self._clock() + timeout
        topic = self._queues.queues[0].topic
        return await self._delivery.deliver(topic, self._queues, self._network.attempt, deadline)

    async def detect(self) -> None:
        await self._detector.run()


def client(
    contender: Contender,
    queues: Sequence[MessageQueue],
    network: Network,
    clock: Callable[[], float],
    rng: random.Random,
) -> Client:
    if contender in (Contender.OURS, Contender.OURS_IN_TURN):
        penalised = contender is Contender.OURS
        selection = Selection.PENALISED if penalised else Selection.ROUND_ROBIN
        return _Ours(queues, network, clock, selection, rng)
    rules = contender is Contender.REFERENCE
    return ReferenceClient(
        queues,
        network.attempt,
        network.probe,
        clock,
        start=rng.randrange(len(queues)),
        latency=rules,
        detector=rules,
    )


async def drive(
    run: Run,
    clients: Sequence[Client],
    *,
    rate: float,
    seed: int,
    clock: Callable[[], float],
    savable: Callable[[int], bool],
    trouble: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Let every client send `rate` messages a second through the scenario, at moments that only
    `seed` decides; returns when the last send has ended. `trouble` is what else happens."""
    loop = asyncio.get_running_loop()
    sends: set[asyncio.Task[None]] = set()

    async def send(index: int) -> None:
        began, saves = clock(), savable(index)
        broker = None
        with contextlib.suppress(RemotingError):
            broker = (await clients[index].send(TIMEOUT)).broker_name
        run.sends.append(Sent(index, began, clock() - began, broker, saves))

    async def traffic(index: int) -> None:
        rng = random.Random(f"{seed} traffic {index}")
        at = rng.expovariate(rate)
        while at < run.scenario.length:
            await asyncio.sleep(at - clock())
            task = loop.create_task(send(index))
            sends.add(task)
            task.add_done_callback(sends.discard)
            at += rng.expovariate(rate)

    detectors = [loop.create_task(each.detect()) for each in clients]
    try:
        async with asyncio.TaskGroup() as group:
            for index in range(len(clients)):
                group.create_task(traffic(index))
            if trouble is not None:
                group.create_task(trouble())
        await asyncio.gather(*sends)
    finally:
        for detector in detectors:
            detector.cancel()
        await asyncio.gather(*detectors, return_exceptions=True)
