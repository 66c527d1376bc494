"""Records written to and read from POP's revive log, for the metrics of the broker.

Reference: PopMetricsManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

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
        self._forget(lambda of_topic, _: of_topic == topic)

    def forget_group(self, group: str) -> None:
        """Remove the counts of a deleted group."""
        self._forget(lambda _, of_group: of_group == group)

    def _forget(self, concerned: Callable[[str, str], bool]) -> None:
        for written in [key for key in self.written if concerned(key[0], key[1])]:
            del self.written[written]
        for read in [key for key in self.read if concerned(key[0], key[1])]:
            del self.read[read]
        for retried in [key for key in self.retried if concerned(key[0], key[1])]:
            del self.retried[retried]
