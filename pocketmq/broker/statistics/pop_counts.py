"""Records written to and read from POP's revive log, for the metrics of the broker.

Reference: PopMetricsManager.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

CHECK_POINT: Final = "CK"
ACK: Final = "ACK"


class PopCounts:
    """The counts of one broker since its start. The first two parts of each key are the topic and
    the group of the popped messages.

    Attributes:
        written: records, also by the kind of the record and the status of the put.
        read: records, also by the revive queue and the kind of the record.
        retried: messages put into a retry topic, also by the status of the put.
    """

    def __init__(self) -> None:
        self.written: Counter[tuple[str, str, str, str]] = Counter()
        self.read: Counter[tuple[str, str, int, str]] = Counter()
        self.retried: Counter[tuple[str, str, str]] = Counter()

    def forget_topic(self, topic: str) -> None:
        """Remove the counts of a deleted topic."""
        self._forget(0, topic)

    def forget_group(self, group: str) -> None:
        """Remove the counts of a deleted group."""
        self._forget(1, group)

    def _forget(self, place: int, name: str) -> None:
        tables: tuple[Counter[Any], ...] = (self.written, self.read, self.retried)
        for table in tables:
            for key in [key for key in table if key[place] == name]:
                del table[key]
