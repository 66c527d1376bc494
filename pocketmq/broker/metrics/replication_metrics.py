"""The progress of the copies of a broker's log: pocketmq_replication_*."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pocketmq.monitoring.families import GAUGE, Family

#: By name in brokerStatus: the metric, its unit and its help text.
_METRICS: Final = {
    "haSlaves": ("slaves", "", "Slaves that are connected"),
    "haSlavesInSync": ("slaves_in_sync", "", "Slaves that keep up"),
    "haLargestLag": ("lag", "bytes", "Log that the furthest slave does not have yet"),
    "haSendsWaiting": ("sends_waiting", "", "Sends that wait for slaves"),
    "haMasterConnected": ("master_connected", "", "1 while this slave copies its master"),
    "haReceivedUnchecked": ("unchecked", "bytes", "Log that this slave has not entered yet"),
}


def replication_metrics(figures: Mapping[str, object]) -> Iterator[Family]:
    """Return the figures of replication; those of a master have no series on a slave."""
    for key, (name, unit, text) in _METRICS.items():
        value = figures.get(key)
        points = [((), int(value))] if isinstance(value, int) else []
        yield Family(f"pocketmq_replication_{name}", GAUGE, text, (), points, unit)
