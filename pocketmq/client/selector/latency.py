"""The state of each broker as a client sees it: two flags (RIP-63), and its load.

| flag | cleared by | set again by |
|---|---|---|
| available: not in an isolation period | a slow or failed send | time, or the detector |
| reachable | a send without an answer, while the detector runs | an answer, or the detector |

A broker is *available* only if it is also reachable (the reference uses an unreachable broker again
as soon as its isolation ends). A broker that answered is reachable: an error answer isolates it,
but never marks it as unreachable.

In the reference, a broker gets its whole share again when its isolation ends. Here it is *on trial*
first: it gets one send at a time until one is answered fast enough to cause no isolation. So a
broker that is still slow or dead costs one send per isolation, and an answered probe may end an
isolation early.

Reference: client/latency/LatencyFaultToleranceImpl and the tables of MQFaultStrategy. A broker
without a record is available.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from math import exp

import msgspec

log = logging.getLogger(__name__)

#: Thresholds of the latency table of release 5.3.3, ms; a send at or above one causes the isolation
#: at the same index of NOT_AVAILABLE_DURATION_MS.
LATENCY_MAX_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
NOT_AVAILABLE_DURATION_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
#: A failed send counts as a send with this latency, ms.
ISOLATION_LATENCY_MS = 10_000
#: The lowest latency that counts, and the one before the first answer, seconds. Brokers below it
#: are compared only by their messages in flight, near and distant ones alike.
IDLE_LATENCY = 0.02
#: Time constant with which a peak of a broker's latency decays, seconds.
PEAK_MEMORY = 1.0


class FaultItem:
    """One broker.

    `latency`: of its last send, seconds. `isolated_until`, `check_at` (the next probe), `heard_at`
    (the last outcome): clock seconds. `on_trial`: isolated, unreachable, or limited to one send at
    a time. `in_flight`: messages without an answer, the first since `busy_since`. `peak`: moving
    average of the latencies (s) that follows a rise at once and a fall within PEAK_MEMORY.
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
        """Estimate the wait of a request with `messages` messages, in seconds times messages: only
        the ratio of two penalties has a meaning.

        If a broker with messages in flight has not answered for longer than its latency, that time
        counts as its latency: a stall is noticed before the first late answer.
        """
        expected = self.peak
        if self.in_flight:
            expected = max(expected, now - max(self.heard_at, self.busy_since))
        return expected * (self.in_flight + messages)

    def observe(self, latency: float, now: float, stale_after: float) -> None:
        """Add a latency to `peak`; after `stale_after` seconds without one, it replaces it."""
        elapsed = now - self.heard_at
        self.heard_at = now
        if latency < IDLE_LATENCY and self.peak <= IDLE_LATENCY:
            return  # most answers of a nearby broker
        if latency < self.peak and not self.on_trial and elapsed < stale_after:
            latency += (self.peak - latency) * exp(-elapsed / PEAK_MEMORY)
        # Takes a third of the time of max(); this runs for every answer.
        self.peak = latency if latency > IDLE_LATENCY else IDLE_LATENCY


class BrokerState(msgspec.Struct, frozen=True):
    """The state of one broker, as a producer sees it now.

    Attributes:
        available: sends may choose it: it is neither isolated nor unreachable, and no trial send is
            pending.
        reachable: it answered the last send, or a probe since.
        latency: of the last attempt, seconds.
        in_flight: messages that were sent and not answered yet.
    """

    broker_name: str
    available: bool
    reachable: bool
    latency: float
    in_flight: int


class LatencyFaultTolerance:
    """The table of fault items, by broker name.

    `clock` returns monotonic seconds. The two tables are in milliseconds; ValueError if their
    lengths differ or the thresholds do not rise.
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
        #: checks none.
        self.on_trial = 0

    def isolation_for(self, latency: float) -> float:
        """Return the isolation, in seconds, that a send of `latency` seconds causes."""
        return self._durations[bisect_right(self._latency_max, latency)]

    def item(self, broker_name: str) -> FaultItem:
        """Return a broker's item; create it if there is none."""
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
        """Record the outcome of one send to a broker; `latency` in seconds.

        `isolate` counts the send as one of ISOLATION_LATENCY_MS. An isolation is never shortened:
        a fast answer does not end it. `stale_after`: see FaultItem.observe.
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
        """Do as `record` for an answer, at `now` (clock seconds), with a fast path for the usual
        one, which does not change the broker's state."""
        item = self._items.get(broker_name)
        if item is None or item.on_trial or latency >= self._latency_max[0]:
            self.record(broker_name, latency, stale_after=stale_after)
            return
        item.latency = latency
        item.observe(latency, now, stale_after)

    def is_available(self, broker_name: str) -> bool:
        """Return whether a broker is reachable and not isolated and, if on trial, without a pending
        send."""
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
        """Return the current state of every known broker."""
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
        """Return unreachable or isolated brokers whose check is due; schedule their next one
        `interval` seconds from now."""
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
        """Record an answered probe: the broker is reachable, and its trial begins now."""
        item = self._items.get(broker_name)
        if item is None or not item.on_trial:
            return
        item.isolated_until = min(item.isolated_until, self._clock())
        if not item.reachable:
            self._set_reachable(item, True)

    def mark_all_reachable(self) -> None:
        """Mark all brokers as reachable when the detector is switched off: nothing else would."""
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
