"""The queues and records that pushed filters select."""

from __future__ import annotations

from dataclasses import dataclass

from pocketmq.store.scan.queues.selection import ALL_RECORDS, EVERYTHING, Range, Selection


@dataclass(frozen=True, slots=True)
class Pushed:
    """The selection of pushed filters: None stands for all brokers, topics or queue ids."""

    brokers: frozenset[str] | None = None
    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    queue_range: Range = EVERYTHING
    selection: Selection = ALL_RECORDS

    def wants(self, broker: str, topic: str, queue_id: int) -> bool:
        """Return whether records of a queue may be selected."""
        return (
            (self.brokers is None or broker in self.brokers)
            and (self.topics is None or topic in self.topics)
            and (self.queue_ids is None or queue_id in self.queue_ids)
            and queue_id in self.queue_range
        )
