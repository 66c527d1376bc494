"""Values of options by topic: for all brokers, or for each broker by its name.

The JSON of an option has, for each topic, either the value itself (`{"orders": {"0": 23}}`) or the
values by broker (`{"orders": {"broker-a": {"0": 23}}}`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from pocketmq.store.scan.planning.offsets import OffsetBounds

T = TypeVar("T")

ALL_BROKERS: Final = ""
"""Stands for the name of every broker."""


@dataclass(frozen=True, slots=True)
class ByBroker(Generic[T]):
    """Values by topic and broker.

    Attributes:
        table: topic → name of a broker, or `ALL_BROKERS` → value.
    """

    table: dict[str, dict[str, T]] = field(default_factory=dict)

    def of(self, broker: str) -> dict[str, T]:
        """Return the values for one broker by topic."""
        return {topic: value for topic, name, value in self if name in (broker, ALL_BROKERS)}

    def get(self, topic: str, broker: str) -> T | None:
        """Return the value for a topic of one broker; None if there is none."""
        values = self.table.get(topic, {})
        return values.get(broker, values.get(ALL_BROKERS))

    def brokers(self) -> set[str]:
        """Return the brokers that are named."""
        return {broker for values in self.table.values() for broker in values} - {ALL_BROKERS}

    def __iter__(self) -> Iterator[tuple[str, str, T]]:
        for topic, values in self.table.items():
            for broker, value in values.items():
                yield topic, broker, value


@dataclass(frozen=True, slots=True)
class BrokerBounds:
    """`OffsetBounds` that may differ from broker to broker.

    Attributes:
        otherwise: `EARLIEST` or `LATEST`, for queues that are not named.
        offsets: queue id → a queue offset, `EARLIEST` or `LATEST`.
    """

    otherwise: int
    offsets: ByBroker[dict[int, int]] = field(default_factory=ByBroker)

    def of(self, broker: str) -> OffsetBounds:
        """Return the bounds for the queues of one broker."""
        return OffsetBounds(self.otherwise, self.offsets.of(broker))
