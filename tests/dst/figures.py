"""What brokers say of themselves once nothing happens any more: whether they are ready, and their
metrics."""

from __future__ import annotations

from typing import NamedTuple

from pocketmq.broker.broker import Broker


class Figures(NamedTuple):
    """Attributes:
    machine: the one that a broker runs on.
    problems: what /ready shows; empty if it is ready.
    metrics: those of one value, by name, and with the value of its label, if it has one.
    """

    machine: str
    problems: tuple[str, ...]
    metrics: dict[str, float]


async def figures_of(machine: str, broker: Broker) -> Figures:
    """Ask a broker, in its event loop."""
    collect = broker.monitoring.collect
    assert collect is not None
    metrics: dict[str, float] = {}
    for family in await collect():
        for labels, value in family.points:
            if isinstance(value, int | float):
                metrics[" ".join((family.name, *labels))] = value
    return Figures(machine, broker.monitoring.health.ready().reasons, metrics)
