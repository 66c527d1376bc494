"""The stores that a stream reads, by the names of their brokers, and where their queues end now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pocketmq.archive.archived_store import ArchivedBroker, brokers_under
from pocketmq.spark.batch_reader import leave_out
from pocketmq.spark.options import OptionError, Options
from pocketmq.spark.stream_offsets import StreamQueue
from pocketmq.store.scan.flushed import FlushedEnds
from pocketmq.store.scan.followed_store import FollowedStore
from pocketmq.store.scan.queue_listing import QueueChoice
from pocketmq.store.scan.scanned_store import ScannedStore
from pocketmq.store.scan.segments import undisturbed
from pocketmq.store.scan.snapshot import StoreSnapshot
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
        places: directories and URLs, by the broker's name.
        snapshots: by the broker's name, as of the last `look`.

    Raises:
        OptionError: two stores have the same broker.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self.places: dict[str, str] = {}
        self.snapshots: dict[str, ScannedStore] = {}
        self._roots: dict[str, Path] = {}
        self._looks: dict[str, Callable[[], ScannedStore]] = {}
        for root in options.roots:
            name = broker_name(root)
            self._add(name, str(root), FollowedStore(root, self._choice(name)).look)
            self._roots[name] = root
        for location in options.archives:
            for broker in brokers_under(location):
                name = broker.look().broker_name
                self._add(name, str(location), self._look_of(broker))

    def _add(self, name: str, place: str, look: Callable[[], ScannedStore]) -> None:
        other = self.places.setdefault(name, place)
        if other != place:
            raise OptionError(
                "path",
                place,
                f"this is a store of the broker {name}, like {other}; a stream keeps offsets "
                "by the broker's name, so name one of the two",
            )
        self._looks[name] = look

    def _choice(self, broker: str) -> QueueChoice:
        options = self._options
        return QueueChoice(
            lambda topic, queue_id: options.wants(broker, topic, queue_id), options.wants_topic
        )

    def _look_of(self, broker: ArchivedBroker) -> Callable[[], ScannedStore]:
        lose = None if self._options.fail_on_data_loss else leave_out
        return lambda: broker.look(self._choice, lose)

    def look(self) -> dict[StreamQueue, QueueEnds]:
        """Take a snapshot of every store; return the queues that the options ask for.

        Raises NoStore.
        """
        self.snapshots = {broker: undisturbed(look) for broker, look in self._looks.items()}
        return {
            queue: ends for broker in self.snapshots for queue, ends in self._ends(broker).items()
        }

    def _ends(self, broker: str) -> dict[StreamQueue, QueueEnds]:
        store = self.snapshots[broker]
        # What was archived was flushed before.
        flushed = FlushedEnds(store) if isinstance(store, StoreSnapshot) else None
        ends = {}
        for (topic, queue_id), queue in sorted(store.queues.items()):
            if self._options.wants(broker, topic, queue_id):
                offered = stored = queue.max_offset
                if flushed is not None and not self._options.read_unflushed:
                    offered = flushed.of(queue)
                found = QueueEnds(queue.min_offset, offered, stored)
                ends[StreamQueue(topic, broker, queue_id)] = found
        return ends

    def may_recover(self, broker: str) -> bool:
        """Return whether the broker may be building its queues at this moment."""
        root = self._roots.get(broker)
        return root is not None and may_recover(root)
