"""The stores that a stream reads, by the names of their brokers, and where their queues end now."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pocketmq.spark.options import OptionError, Options
from pocketmq.store.scan.flushed import FlushedEnds
from pocketmq.store.scan.followed_store import FollowedStore
from pocketmq.store.scan.queue_listing import QueueChoice
from pocketmq.store.scan.segments import undisturbed
from pocketmq.store.scan.snapshot import StoreSnapshot
from pocketmq.store.scan.stream_offsets import StreamQueue
from pocketmq.store.scan.topic_table import broker_name
from pocketmq.store.store_lock import may_recover


class QueueEnds(NamedTuple):
    """Queue offsets between which a queue has records.

    Attributes:
        first: of the oldest record.
        offered: behind the last record that the stream may read.
        stored: behind the last record.
    """

    first: int
    offered: int
    stored: int


class StreamStores:
    """The stores of one stream. Each broker has one.

    Attributes:
        roots: by the broker's name.
        snapshots: by the broker's name, as of the last `look`.

    Raises:
        OptionError: two stores have the same broker.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self.roots: dict[str, Path] = {}
        self.snapshots: dict[str, StoreSnapshot] = {}
        for root in options.roots:
            name = broker_name(root)
            other = self.roots.setdefault(name, root)
            if other != root:
                raise OptionError(
                    "path",
                    str(root),
                    f"this is a store of the broker {name}, like {other}; a stream keeps offsets "
                    "by the broker's name, so name one of the two",
                )
        self._followed = {name: self._follow(name, root) for name, root in self.roots.items()}

    def _follow(self, broker: str, root: Path) -> FollowedStore:
        options = self._options
        choice = QueueChoice(
            lambda topic, queue_id: options.wants(broker, topic, queue_id), options.wants_topic
        )
        return FollowedStore(root, choice)

    def look(self) -> dict[StreamQueue, QueueEnds]:
        """Take a snapshot of every store; return the queues that the options ask for.

        Raises NoStore.
        """
        self.snapshots = {
            broker: undisturbed(store.look) for broker, store in self._followed.items()
        }
        return {
            queue: ends for broker in self.snapshots for queue, ends in self._ends(broker).items()
        }

    def _ends(self, broker: str) -> dict[StreamQueue, QueueEnds]:
        store = self.snapshots[broker]
        flushed = FlushedEnds(store)
        ends = {}
        for (topic, queue_id), queue in sorted(store.queues.items()):
            if self._options.wants(broker, topic, queue_id):
                stored = queue.max_offset
                offered = stored if self._options.read_unflushed else flushed.of(queue)
                found = QueueEnds(queue.min_offset, offered, stored)
                ends[StreamQueue(topic, broker, queue_id)] = found
        return ends

    def may_recover(self, broker: str) -> bool:
        """Return whether the broker may be building its queues at this moment."""
        root = self.roots.get(broker)
        return root is not None and may_recover(root)
