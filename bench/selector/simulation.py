"""One run in simulated time."""

from __future__ import annotations

import asyncio
import random

from pocketmq.client.errors import RemotingClosed, RemotingTimeout
from pocketmq.message.message import MessageQueue

from . import virtual_time
from .brokers import Outcome, SimulatedBroker
from .scenarios import Scenario
from .traffic import CLIENTS, TIMEOUT, Attempt, Contender, Run, client, drive

__all__ = ["simulate"]

TOPIC = "simulated"
QUEUES = 4


class _SimulatedNetwork:
    def __init__(self, client: int, brokers: dict[str, SimulatedBroker], run: Run) -> None:
        self._client = client
        self._brokers = brokers
        self._run = run

    async def attempt(self, queue: MessageQueue, share: float) -> MessageQueue:
        clock = asyncio.get_running_loop().time
        name, began = queue.broker_name, clock()
        outcome = self._brokers[name].ask(began, self._client)
        answered = await self._hear(outcome, share)
        self._run.attempts.append(Attempt(self._client, name, began, clock(), answered))
        if answered:
            return queue
        if outcome.at < began + share:
            raise RemotingClosed("connection refused or lost")
        raise RemotingTimeout("no answer in time")

    async def probe(self, address: str, timeout: float) -> bool:
        now = asyncio.get_running_loop().time()
        return await self._hear(self._brokers[address].probe(now, self._client), timeout)

    async def _hear(self, outcome: Outcome, timeout: float) -> bool:
        wait = outcome.at - asyncio.get_running_loop().time()
        await asyncio.sleep(min(wait, timeout))
        return outcome.answered and wait < timeout


def simulate(scenario: Scenario, contender: Contender, *, rate: float = 250, seed: int = 63) -> Run:
    """One run; `rate`: sends a second of each client, at random moments.

    The same scenario and seed give every contender the same moments and the same stalls.
    """
    return virtual_time.run(_simulate(scenario, contender, rate, seed))


async def _simulate(scenario: Scenario, contender: Contender, rate: float, seed: int) -> Run:
    clock = asyncio.get_running_loop().time
    run = Run(scenario, contender)
    brokers = {
        name: SimulatedBroker(
            name, scenario.troubles, random.Random(f"{seed} {name}"), scenario.length
        )
        for name in scenario.broker_names
    }
    queues = [MessageQueue(TOPIC, name, i) for name in brokers for i in range(QUEUES)]
    clients = [
        client(
            contender,
            queues,
            _SimulatedNetwork(index, brokers, run),
            clock,
            random.Random(f"{seed} client {index}"),
        )
        for index in range(CLIENTS)
    ]

    def savable(index: int) -> bool:
        return any(broker.could_answer(clock(), index, TIMEOUT) for broker in brokers.values())

    await drive(run, clients, rate=rate, seed=seed, clock=clock, savable=savable)
    return run
