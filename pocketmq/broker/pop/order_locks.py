"""Wakes waiting pops of queues popped in order when the queues are no longer blocked."""

from __future__ import annotations

from collections.abc import Callable

from pocketmq.broker.background import Alarm, CallLater
from pocketmq.broker.pop.order_table import OrderTable


class OrderLocks:
    """The times at which queues stop being blocked. `clock` gives milliseconds.

    `wake(topic, group, queue_id)` executes pops of a queue again.
    """

    def __init__(
        self,
        orders: OrderTable,
        wake: Callable[[str, str, int], None],
        clock: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        self._orders = orders
        self._wake = wake
        self._clock = clock
        self._alarm = Alarm(clock, call_later, self._ring)
        self._free_at: dict[tuple[str, str, int], int] = {}

    def start(self) -> None:
        """Watch the entries of the table, and its changes."""
        self._orders.on_change = self._watch
        for group, topic, queue_id in self._orders.queues():
            self._watch(group, topic, queue_id)

    def stop(self) -> None:
        """Stop waking pops."""
        self._alarm.cancel()

    def _watch(self, group: str, topic: str, queue_id: int) -> None:
        key = (group, topic, queue_id)
        info = self._orders.get(group, topic, queue_id)
        until = None if info is None else info.blocked_until(self._clock())
        if until is None:
            self._free_at.pop(key, None)
        else:
            self._free_at[key] = until
            self._alarm.set(until)

    def _ring(self) -> None:
        now = self._clock()
        for key in [key for key, at in self._free_at.items() if at <= now]:
            del self._free_at[key]
            group, topic, queue_id = key
            self._watch(group, topic, queue_id)  # another message may still block it
            if key not in self._free_at:
                self._wake(topic, group, queue_id)
        if self._free_at:
            self._alarm.set(min(self._free_at.values()))
