"""What a client knows of its brokers: two states each (RIP-63).

| state | cleared by | set again by |
|---|---|---|
| available: not inside an isolation period | a slow or failed send | time |
| reachable | a send that got no answer, while the detector runs | an answer, or the detector |

A broker is *available* here only when it is also reachable (the reference takes an unreachable
broker again as soon as its isolation ends). A broker that answered is reachable, whatever it
answered: an error answer isolates, it never marks unreachable.

Reference: client/latency/LatencyFaultToleranceImpl and the tables of MQFaultStrategy. A broker
nobody has recorded is available.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence

__all__ = [
    "ISOLATION_LATENCY_MS",
    "LATENCY_MAX_MS",
    "NOT_AVAILABLE_DURATION_MS",
    "FaultItem",
    "LatencyFaultTolerance",
]

log = logging.getLogger(__name__)

#: Thresholds of the latency table of release 5.3.3, ms; a send at or above one costs the
#: isolation of the same place in NOT_AVAILABLE_DURATION_MS.
LATENCY_MAX_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
NOT_AVAILABLE_DURATION_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
#: A failed send counts as one of this latency, ms.
ISOLATION_LATENCY_MS = 10_000


class FaultItem:
    """One broker: its last latency (s), its isolation's end and its next check (clock seconds)."""

    __slots__ = ("broker_name", "check_at", "isolated_until", "latency", "reachable")

    def __init__(self, broker_name: str) -> None:
        self.broker_name = broker_name
        self.latency = 0.0
        self.isolated_until = float("-inf")
        self.check_at = float("-inf")
        self.reachable = True


class LatencyFaultTolerance:
    """The table of fault items, by broker name.

    `clock` gives seconds and never goes back. The two tables are in milliseconds, of equal
    length, thresholds rising; ValueError otherwise.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        latency_max_ms: Sequence[float] = LATENCY_MAX_MS,
        not_available_duration_ms: Sequence[float] = NOT_AVAILABLE_DURATION_MS,
    ) -> None:
        if len(latency_max_ms) != len(not_available_duration_ms):
            raise ValueError("latency_max_ms and not_available_duration_ms differ in length")
        if list(latency_max_ms) != sorted(latency_max_ms):
            raise ValueError(f"latency_max_ms must rise: {list(latency_max_ms)}")
        self._clock = clock
        self._latency_max = [ms / 1000 for ms in latency_max_ms]
        self._durations = [0.0, *(ms / 1000 for ms in not_available_duration_ms)]
        self._items: dict[str, FaultItem] = {}
        # While no broker is isolated or unreachable, the selector need not ask about any.
        self._clear_at = float("-inf")
        self._unreachable = 0

    def isolation_for(self, latency: float) -> float:
        """The isolation, in seconds, that a send of `latency` seconds costs."""
        return self._durations[bisect_right(self._latency_max, latency)]

    def record(
        self, broker_name: str, latency: float, *, isolate: bool = False, reachable: bool = True
    ) -> None:
        """Note the outcome of one send to a broker; `latency` in seconds.

        `isolate` counts the send as one of ISOLATION_LATENCY_MS. An isolation is only ever
        prolonged: a fast answer does not end it.
        """
        item = self._items.get(broker_name)
        if item is None:
            item = self._items[broker_name] = FaultItem(broker_name)
        item.latency = latency
        if item.reachable is not reachable:
            self._set_reachable(item, reachable)
        if not isolate and latency < self._latency_max[0]:
            return
        duration = self.isolation_for(ISOLATION_LATENCY_MS / 1000 if isolate else latency)
        if duration <= 0:
            return
        until = self._clock() + duration
        if until > item.isolated_until:
            if item.isolated_until <= until - duration:
                log.info("broker %s is isolated for %.1f s", broker_name, duration)
            item.isolated_until = until
            self._clear_at = max(self._clear_at, until)

    def is_available(self, broker_name: str) -> bool:
        """Not isolated, and reachable."""
        item = self._items.get(broker_name)
        return item is None or (item.reachable and self._clock() >= item.isolated_until)

    def is_reachable(self, broker_name: str) -> bool:
        item = self._items.get(broker_name)
        return item is None or item.reachable

    def all_available(self) -> bool:
        """Whether no known broker is isolated or unreachable; O(1), for the usual send."""
        return not self._unreachable and self._clock() >= self._clear_at

    def due_suspects(self, interval: float) -> list[str]:
        """Unreachable brokers whose check is due; the next is due `interval` seconds from now.

        Reachable brokers are not suspects: a check only ever sets reachable.
        """
        now = self._clock()
        due = [i for i in self._items.values() if not i.reachable and now >= i.check_at]
        for item in due:
            item.check_at = now + interval
        return [item.broker_name for item in due]

    def mark_reachable(self, broker_name: str) -> None:
        """What a successful check does; the isolation period stays."""
        item = self._items.get(broker_name)
        if item is not None and not item.reachable:
            self._set_reachable(item, True)

    def mark_all_reachable(self) -> None:
        """For a detector that is switched off: nothing else would set these again."""
        for item in self._items.values():
            if not item.reachable:
                self._set_reachable(item, True)

    def retain(self, broker_names: Collection[str]) -> None:
        """Forget every broker that is not among `broker_names`."""
        for name in [name for name in self._items if name not in broker_names]:
            if not self._items.pop(name).reachable:
                self._unreachable -= 1

    def clear(self) -> None:
        """Forget every broker."""
        self._items.clear()
        self._unreachable = 0
        self._clear_at = float("-inf")

    def __iter__(self) -> Iterator[FaultItem]:
        return iter(tuple(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def _set_reachable(self, item: FaultItem, reachable: bool) -> None:
        item.reachable = reachable
        self._unreachable += -1 if reachable else 1
        log.info(
            "broker %s is %s", item.broker_name, "reachable again" if reachable else "unreachable"
        )
