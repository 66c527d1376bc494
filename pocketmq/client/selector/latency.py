"""What a client knows of its brokers: two states each (RIP-63), and their load.

| state | cleared by | set again by |
|---|---|---|
| available: not inside an isolation period | a slow or failed send | time, or the detector |
| reachable | a send that got no answer, while the detector runs | an answer, or the detector |

A broker is *available* here only when it is also reachable (the reference takes an unreachable
broker again as soon as its isolation ends). A broker that answered is reachable, whatever it
answered: an error answer isolates, it never marks unreachable.

Where the reference gives a broker its whole share back when its isolation ends, here it is *on
trial* first: it gets one send at a time until one is answered fast enough to cost no isolation.
So a broker that is still slow or dead costs one send for each isolation. This is also what lets an
answered probe end an isolation early.

Reference: client/latency/LatencyFaultToleranceImpl and the tables of MQFaultStrategy. A broker
nobody has recorded is available.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from math import exp

import msgspec

log = logging.getLogger(__name__)

#: Thresholds of the latency table of release 5.3.3, ms; a send at or above one costs the
#: isolation of the same place in NOT_AVAILABLE_DURATION_MS.
LATENCY_MAX_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
NOT_AVAILABLE_DURATION_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
#: A failed send counts as one of this latency, ms.
ISOLATION_LATENCY_MS = 10_000
#: The least latency a broker is credited with, and the one before its first answer, seconds: below
#: it brokers are alike, wherever they are, and only what they have in flight tells them apart.
IDLE_LATENCY = 0.02
#: Time constant in which a peak of a broker's latency is forgotten, seconds.
PEAK_MEMORY = 1.0


class FaultItem:
    """One broker.

    `latency`: of its last send, seconds; `isolated_until`, `check_at` (the next probe), `heard_at`
    (the last outcome): clock seconds; `on_trial`: isolated or unreachable, or one send at a time;
    `in_flight`: attempts under way, the first of them since `busy_since`; `peak`: an average of its
    latencies (s) that follows a rise at once and a fall within PEAK_MEMORY.
    """

    __slots__ = (
        "broker_name",
        "busy_since",
        "check_at",
        "heard_at",
        "in_flight",
        "isolated_until",
        "latency",
        "on_trial",
        "peak",
        "reachable",
    )

    def __init__(self, broker_name: str) -> None:
        self.broker_name = broker_name
        self.latency = 0.0
        self.isolated_until = float("-inf")
        self.check_at = float("-inf")
        self.heard_at = float("-inf")
        self.busy_since = float("-inf")
        self.reachable = True
        self.on_trial = False
        self.in_flight = 0
        self.peak = IDLE_LATENCY

    def penalty(self, now: float, messages: int = 1) -> float:
        """What a request with so many messages would wait at this broker, in seconds times
        messages: only the ratio of two penalties has a meaning.

        A broker that has said nothing for longer than its latency, with something in flight, is
        expected to need at least as long as that: a stall shows before the first late answer.
        """
        expected = self.peak
        if self.in_flight:
            expected = max(expected, now - max(self.heard_at, self.busy_since))
        return expected * (self.in_flight + messages)

    def observe(self, latency: float, now: float, stale_after: float) -> None:
        """Let one latency count; after `stale_after` seconds of silence it is the only one."""
        elapsed = now - self.heard_at
        self.heard_at = now
        if latency < IDLE_LATENCY and self.peak <= IDLE_LATENCY:
            return  # as most answers of a broker that is near
        if latency < self.peak and not self.on_trial and elapsed < stale_after:
            latency += (self.peak - latency) * exp(-elapsed / PEAK_MEMORY)
        # A third of the time of max(), for every answer.
        self.peak = latency if latency > IDLE_LATENCY else IDLE_LATENCY


class BrokerState(msgspec.Struct, frozen=True):
    """What a producer knows of one broker at some moment.

    Attributes:
        available: sends may choose it: it is neither isolated nor unreachable, and no trial send is
            under way.
        reachable: it answered last time, or a probe since.
        latency: of the last attempt, seconds.
        in_flight: attempts without an answer.
    """

    broker_name: str
    available: bool
    reachable: bool
    latency: float
    in_flight: int


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
        #: Brokers that are isolated, unreachable or on trial. While there are none, the selector
        #: need not ask about any.
        self.on_trial = 0

    def isolation_for(self, latency: float) -> float:
        """The isolation, in seconds, that a send of `latency` seconds costs."""
        return self._durations[bisect_right(self._latency_max, latency)]

    def item(self, broker_name: str) -> FaultItem:
        """What is known of a broker; known from now on."""
        item = self._items.get(broker_name)
        if item is None:
            item = self._items[broker_name] = FaultItem(broker_name)
        return item

    def began(self, broker_name: str, now: float, messages: int = 1) -> FaultItem:
        """An attempt begins at `now` in clock seconds; its maker takes its `messages` off
        `in_flight` when it ends."""
        item = self._items.get(broker_name) or self.item(broker_name)
        if not item.in_flight:
            item.busy_since = now
        item.in_flight += messages
        return item

    def record(
        self,
        broker_name: str,
        latency: float,
        *,
        isolate: bool = False,
        reachable: bool = True,
        stale_after: float = float("inf"),
    ) -> None:
        """Note the outcome of one send to a broker; `latency` in seconds.

        `isolate` counts the send as one of ISOLATION_LATENCY_MS. An isolation is only ever
        prolonged: a fast answer does not end it. `stale_after`: see FaultItem.observe.
        """
        item = self._items.get(broker_name) or self.item(broker_name)
        now = self._clock()
        item.latency = latency
        counted = ISOLATION_LATENCY_MS / 1000 if isolate else latency
        item.observe(counted, now, stale_after)
        if item.reachable is not reachable:
            self._set_reachable(item, reachable)
        duration = 0.0 if counted < self._latency_max[0] else self.isolation_for(counted)
        if duration > 0:
            until = now + duration
            if until > item.isolated_until:
                if item.isolated_until <= now:
                    log.info("broker %s is isolated for %.1f s", broker_name, duration)
                item.isolated_until = until
            self._try(item, True)
        elif item.on_trial and reachable and now >= item.isolated_until:
            self._try(item, False)

    def answered(self, broker_name: str, latency: float, now: float, stale_after: float) -> None:
        """Do what `record` does for an answer, `now` in clock seconds. Most say that the broker is
        as well as before."""
        item = self._items.get(broker_name)
        if item is None or item.on_trial or latency >= self._latency_max[0]:
            self.record(broker_name, latency, stale_after=stale_after)
            return
        item.latency = latency
        item.observe(latency, now, stale_after)

    def is_available(self, broker_name: str) -> bool:
        """Not isolated, and reachable; on trial: and without a send under way."""
        item = self._items.get(broker_name)
        return (
            item is None
            or not item.on_trial
            or (item.reachable and not item.in_flight and self._clock() >= item.isolated_until)
        )

    def is_reachable(self, broker_name: str) -> bool:
        item = self._items.get(broker_name)
        return item is None or item.reachable

    def states(self) -> tuple[BrokerState, ...]:
        """Every broker that is known, as it is now."""
        return tuple(
            BrokerState(
                item.broker_name,
                self.is_available(item.broker_name),
                item.reachable,
                item.latency,
                item.in_flight,
            )
            for item in self
        )

    def due_suspects(self, interval: float) -> list[str]:
        """Unreachable or isolated brokers whose check is due; their next is due `interval` seconds
        from now."""
        now = self._clock()
        due = [
            item
            for item in self._items.values()
            if item.on_trial
            and now >= item.check_at
            and (not item.reachable or now < item.isolated_until)
        ]
        for item in due:
            item.check_at = now + interval
        return [item.broker_name for item in due]

    def mark_reachable(self, broker_name: str) -> None:
        """What an answered probe does: the broker is reachable, and its trial begins now."""
        item = self._items.get(broker_name)
        if item is None or not item.on_trial:
            return
        item.isolated_until = min(item.isolated_until, self._clock())
        if not item.reachable:
            self._set_reachable(item, True)

    def mark_all_reachable(self) -> None:
        """For a detector that is switched off: nothing else would set these again."""
        for item in self._items.values():
            if not item.reachable:
                self._set_reachable(item, True)

    def retain(self, broker_names: Collection[str]) -> None:
        """Forget every broker that is not among `broker_names`."""
        for name in [name for name in self._items if name not in broker_names]:
            self._try(self._items.pop(name), False)

    def clear(self) -> None:
        """Forget every broker."""
        self._items.clear()
        self.on_trial = 0

    def __iter__(self) -> Iterator[FaultItem]:
        return iter(tuple(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def _set_reachable(self, item: FaultItem, reachable: bool) -> None:
        item.reachable = reachable
        if not reachable:
            self._try(item, True)
        log.info(
            "broker %s is %s", item.broker_name, "reachable again" if reachable else "unreachable"
        )

    def _try(self, item: FaultItem, on_trial: bool) -> None:
        if item.on_trial is not on_trial:
            item.on_trial = on_trial
            self.on_trial += 1 if on_trial else -1
