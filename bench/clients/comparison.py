"""The loads of the comparison, its targets, and how it is run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.clean_slate import clean_slate
from bench.clients.peer import ClientProcess, java_client, our_client
from bench.contenders import SEGMENT
from bench.measures import Better, Measure
from pocketmq.client.admin import Admin
from tests.interop.harness import official, ours

__all__ = ["MEASURES", "compare"]

IN_FLIGHT = 64
#: Messages before anything counts, by load. A just-in-time compiler needs some ten thousand sends;
#: the official broker's pulls go on getting quicker up to about a million (seen: 31, 15 and 8 µs of
#: its CPU per message in the first three runs of 300 thousand), its batches likewise.
WARM_UP = {"one": 10_000, "many": 100_000, "linger": 500_000, "consume": 500_000}


#: By command, what the table calls it.
LOADS = {
    "one": "one at a time",
    "many": f"{IN_FLIGHT} in flight",
    "each": f"{IN_FLIGHT} in flight, a request each",
    "linger": "lingered",
    "consume": "consumed",
}
#: By key in figures, what the table calls them.
BROKERS = {"official": "official broker", "ours": "our broker"}
#: The aims: against the Java client, or in messages a second.
RATIO = 1.0
SPEED = 100_000.0
AIMS = {"one": RATIO, "many": RATIO, "linger": SPEED, "consume": SPEED}


@dataclass(frozen=True)
class Target:
    """A broker that the clients use: its `key` in BROKERS, its name server's address."""

    key: str
    namesrv: str

    @property
    def title(self) -> str:
        """What the table calls it."""
        return BROKERS[self.key]


def _measures() -> tuple[Measure, ...]:
    found = []
    for key, broker in BROKERS.items():
        for load, title in LOADS.items():
            aim = AIMS.get(load)
            title = f"{title}, {broker}"
            measure = Measure(f"{load}_{key}", title, "msg/s", Better.HIGHER, aim, aim == RATIO)
            found.append(measure)
    # On a busy machine these hold, while the others tell how many others there are.
    for load, title in LOADS.items():
        found.append(Measure(f"{load}_cpu", f"{title}, client's CPU", "µs", Better.LOWER))
    return tuple(found)


MEASURES = _measures()


def compare(
    directory: Path, console: Console, *, rounds: int, scale: float
) -> tuple[ClientProcess, ClientProcess]:
    """Measure both clients; returns ours and the official one with their figures.

    `scale` multiplies the message counts. Raises Unavailable where Java is missing.
    """
    with ExitStack() as stack:
        our = stack.enter_context(our_client(directory))
        java = stack.enter_context(java_client(directory))
        targets = _brokers(directory, stack)
        for target in targets:
            console.print(f"{target.title}: warming up")
            _create(target, "warm")
            for load, client in (
                ("one", java), ("one", our), ("many", java), ("many", our), ("linger", our),
                ("consume", java), ("consume", our), ("consume", java), ("consume", our),
            ):  # fmt: skip
                client.run(load, target.namesrv, "warm", int(WARM_UP[load] * scale), IN_FLIGHT)
        for turn in range(rounds):
            for target in targets:
                console.print(f"{target.title}: round {turn + 1} of {rounds}")
                _measure(target, turn, scale, directory, (java, our))
        return our, java


def _brokers(directory: Path, stack: ExitStack) -> Sequence[Target]:
    settings = {"mappedFileSizeCommitLog": SEGMENT}
    targets = []
    for key, make in ("official", official), ("ours", ours):
        namesrv = make.start_name_server(directory)
        stack.callback(namesrv.process.kill)
        broker = make.start_broker(directory, namesrv.address, settings=settings)
        stack.callback(broker.process.kill)
        targets.append(Target(key, namesrv.address))
    return targets


def _create(target: Target, topic: str) -> None:
    async def create() -> None:
        async with Admin(namesrv=target.namesrv) as admin:
            await admin.create_topic(topic, queues=4)

    asyncio.run(create())


def _measure(
    target: Target, turn: int, scale: float, directory: Path, clients: Sequence[ClientProcess]
) -> None:
    """Every load once, the clients in turn; what one lingered load has stored all consume."""
    sent, stored = f"sent-{turn}", f"stored-{turn}"
    _create(target, sent)
    _create(target, stored)

    def run(client: ClientProcess, load: str, topic: str, messages: int, *more: int) -> None:
        clean_slate(scale, directory)
        speed, cpu = client.run(load, target.namesrv, topic, int(messages * scale), *more)
        client.add(f"{load}_{target.key}", speed)
        client.add(f"{load}_cpu", cpu)

    java, our = clients
    for client in clients:
        run(client, "one", sent, 10_000)
    for client in clients:
        run(client, "many", sent, 100_000, IN_FLIGHT)
    run(our, "each", sent, 100_000, IN_FLIGHT)
    before = our.failed
    run(our, "linger", stored, 300_000)
    if our.failed != before:
        raise RuntimeError(f"{our.failed - before} lingered sends failed: fewer could be consumed")
    for client in java, our:
        run(client, "consume", stored, 300_000)
