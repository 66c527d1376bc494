"""Our client beside Java's on our broker, and what a message costs it without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bench import consumes, sends
from bench.clients.comparison import compare
from bench.contenders import Figures
from bench.measures import Better, Measure

from .workload import Session, Workload


def _clients(session: Session) -> Sequence[Figures]:
    if not session.with_official:
        raise RuntimeError("Java's client is not there to compare with")
    our, java = compare(
        session.directory, session.console, rounds=session.rounds, scale=session.scale
    )
    # Java's has no other way than a request for each message.
    for what in "ours", "cpu":
        java.figures[f"each_{what}"] = java.figures[f"many_{what}"]
    if our.failed or java.failed:
        session.note(f"clients: {our.failed} sends of ours failed, {java.failed} of Java's")
    return our, java


def _cpu(session: Session) -> Sequence[Figures]:
    found = Figures("pocketmq")
    way, options = sends.WAYS["send, 1000 tasks, not sharing"]
    for _ in range(session.rounds):
        found.add("sent_cpu", asyncio.run(sends.least(way, options, 1024)))
        found.add("batch_cpu", asyncio.run(sends.least(*sends.WAYS["send_batch of 1000"], 1024)))
        found.add("handled_cpu", asyncio.run(consumes.handled(orderly=False)))
    return (found,)


CLIENT = Workload(
    "client",
    (
        Measure(
            "each_ours",
            "our client: a request per message, 64 in flight",
            "msg/s",
            Better.HIGHER,
            1.0,
        ),
        Measure("consume_ours", "our client: consumed", "msg/s", Better.HIGHER, 1.0),
        Measure("each_cpu", "our client: CPU per message sent by itself", "µs", Better.LOWER),
        Measure("consume_cpu", "our client: CPU per message consumed", "µs", Better.LOWER),
    ),
    _clients,
)
CLIENT_CPU = Workload(
    "client-cpu",
    (
        # The aim is a quarter less than before, which only a comparison with an older commit tells.
        Measure("sent_cpu", "client alone: CPU per message, a request each", "µs", Better.LOWER),
        Measure("batch_cpu", "client alone: CPU per message of send_batch", "µs", Better.LOWER),
        Measure("handled_cpu", "client alone: CPU per message handled", "µs", Better.LOWER),
    ),
    _cpu,
)
