"""The stores that a stream reads, by the names of their brokers, and where their queues end now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from pocketmq.spark.batch_reader import check_names
from pocketmq.spark.option_error import OptionError, two_of_one
from pocketmq.spark.options import Options
from pocketmq.spark.slice_partition import SlicePartition, limits_per_store, request_of
from pocketmq.spark.stream_queues import Lose, LoseBetween, QueueEnds, Span, lose_of
from pocketmq.store.scan.flushed import FlushedEnds
from pocketmq.store.scan.followed_store import FollowedStore
from pocketmq.store.scan.offsets import first_stored_from
from pocketmq.store.scan.plan import plan
from pocketmq.store.scan.queue_listing import QueueChoice
from pocketmq.store.scan.segments import undisturbed
from pocketmq.store.scan.snapshot import StoreSnapshot
from pocketmq.store.scan.stream_offsets import StreamQueue
from pocketmq.store.scan.topic_table import roots_by_broker
from pocketmq.store.store_lock import may_recover


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
        self.roots = roots_by_broker(options.roots, two_of_one)
        self.snapshots: dict[str, StoreSnapshot] = {}
        self._followed = {name: self._follow(name, root) for name, root in self.roots.items()}

    def _follow(self, broker: str, root: Path) -> FollowedStore:
        options = self._options
        choice = QueueChoice(
            lambda topic, queue_id: options.wants(broker, topic, queue_id), options.wants_topic
        )
        return FollowedStore(root, choice)

    @property
    def brokers(self) -> Collection[str]:
        """The brokers whose stores these are."""
        return self.roots.keys()

    def where(self, broker: str) -> str:
        """Return what to call a broker in an error."""
        root = self.roots.get(broker)
        return f"broker {broker}" if root is None else f"broker {broker} ({root})"

    def missing(self, broker: str) -> OptionError:
        """Return the error for a broker whose store is none of these."""
        return OptionError(
            "path",
            ",".join(map(str, self._options.roots)),
            f"the stream has read from the broker {broker}, and none of the stores is its; add its "
            "store, or set failOnDataLoss to false",
        )

    def check_names(self, lose: Lose) -> None:
        """Raise OptionError for what is named but does not exist."""
        check_names(list(self.snapshots.values()), self._options, lose)

    def look(self, expected: Collection[str] = ()) -> dict[StreamQueue, QueueEnds]:
        """Take a snapshot of every store; return the queues that the options ask for.

        `expected` makes no difference: a store is there, or not. Raises NoStore.
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

    def stored_from(self, queues: Iterable[StreamQueue], time: int) -> dict[StreamQueue, int]:
        """Return for each queue the offset of the first record stored at a time (ms) or later."""
        found = {}
        for queue in queues:
            store = self.snapshots[queue.broker]
            snapshot = store.queues[queue.topic, queue.queue_id]
            found[queue] = first_stored_from(store, snapshot, time)
        return found

    def partitions(
        self, wanted: Mapping[StreamQueue, Span], lose: LoseBetween
    ) -> Iterator[SlicePartition]:
        """Split what is to be read, of queues that the last `look` found."""
        by_broker: dict[str, dict[StreamQueue, Span]] = {}
        for queue, span in wanted.items():
            by_broker.setdefault(queue.broker, {})[queue] = span
        limits = limits_per_store(self._options, max(len(by_broker), 1))
        for broker, spans in by_broker.items():
            store = self.snapshots[broker]
            for slices in plan(store, request_of(spans), limits, lose_of(broker, lose)):
                yield SlicePartition(store.root, slices)
