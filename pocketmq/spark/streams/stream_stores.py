"""The stores that a stream reads, by broker name, and the current ends of their queues."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from pocketmq.archive.archives import BrokerArchive, brokers_under
from pocketmq.spark.batch_reader import check_names, leave_out
from pocketmq.spark.options.option_error import OptionError, two_of_one
from pocketmq.spark.options.options import Options
from pocketmq.spark.slice_partition import SlicePartition
from pocketmq.spark.store_plans import limits_per_store, request_of
from pocketmq.spark.streams.stream_queues import Lose, LoseBetween, QueueEnds, Span, lose_of
from pocketmq.store.scan.continuity import Replaced
from pocketmq.store.scan.flushed import FlushedEnds
from pocketmq.store.scan.followed_store import FollowedStore
from pocketmq.store.scan.planning.plan import plan
from pocketmq.store.scan.planning.snapshot import StoreSnapshot
from pocketmq.store.scan.queues.queue_listing import QueueChoice
from pocketmq.store.scan.queues.segments import Unreadable, undisturbed
from pocketmq.store.scan.records.topic_table import roots_by_broker
from pocketmq.store.scan.scanned_store import ScannedStore
from pocketmq.store.scan.stream_offsets import Mark, Position, StreamQueue
from pocketmq.store.store_lock import Recovery, recovery_of


class StreamStores:
    """The stores and archives of one stream. Each broker has one.

    Attributes:
        snapshots: by the broker's name, as of the last `look`.

    Raises:
        OptionError: two have the same broker.
        NoArchive: there is no archive under a URL.
        ArchiveError: an archive cannot be read.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self.roots = roots_by_broker(options.roots, two_of_one)
        self._places = {name: str(root) for name, root in self.roots.items()}
        self._looks: dict[str, Callable[[], ScannedStore]] = {
            name: FollowedStore(root, self._choice(name)).look for name, root in self.roots.items()
        }
        self.snapshots: dict[str, ScannedStore] = {}
        for location in options.archives:
            for archive in brokers_under(location):
                self._add(archive, archive.look(self._choice, self._left_out).broker_name)

    def _add(self, archive: BrokerArchive, name: str) -> None:
        if name in self._places:
            raise two_of_one(name, archive.shown, self._places[name])
        self._places[name] = archive.shown
        self._looks[name] = lambda: archive.look(self._choice, self._left_out)

    def _choice(self, broker: str) -> QueueChoice:
        options = self._options
        return QueueChoice(
            lambda topic, queue_id: options.wants(broker, topic, queue_id), options.wants_topic
        )

    @property
    def _left_out(self) -> Callable[[Unreadable], None] | None:
        return None if self._options.fail_on_data_loss else leave_out

    @property
    def brokers(self) -> Collection[str]:
        """The brokers of these stores."""
        return self._places.keys()

    def where(self, broker: str) -> str:
        """Return the description of a broker for an error."""
        place = self._places.get(broker)
        return f"broker {broker}" if place is None else f"broker {broker} ({place})"

    def missing(self, broker: str) -> OptionError:
        """Return the error for a broker without a store here."""
        return OptionError(
            "path",
            ",".join(map(str, (*self._options.roots, *self._options.archives))),
            f"the stream has read from the broker {broker}, and none of the stores is its; add its "
            "store, or set failOnDataLoss to false",
        )

    def check_names(self, lose: Lose) -> None:
        """Raise OptionError for brokers, topics and queues that are named but do not exist."""
        check_names(list(self.snapshots.values()), self._options, lose)

    def look(self, expected: Collection[str] = ()) -> dict[StreamQueue, QueueEnds]:
        """Take a snapshot of every store; return the requested queues.

        Ignores `expected`: stores are not waited for. Raises NoStore, ArchiveError.
        """
        self.snapshots = {broker: undisturbed(look) for broker, look in self._looks.items()}
        return {
            queue: ends for broker in self.snapshots for queue, ends in self._ends(broker).items()
        }

    def _ends(self, broker: str) -> dict[StreamQueue, QueueEnds]:
        store = self.snapshots[broker]
        offered = {name: queue.max_offset for name, queue in store.queues.items()}
        # Archived messages were flushed before.
        if isinstance(store, StoreSnapshot) and not self._options.read_unflushed:
            flushed = FlushedEnds(store)
            offered = {
                name: flushed.of(queue)
                for name, queue in store.queues.items()
                if self._options.wants(broker, *name)
            }
        ends = {}
        for (topic, queue_id), queue in sorted(store.queues.items()):
            if self._options.wants(broker, topic, queue_id):
                end = offered[topic, queue_id]
                found = QueueEnds(queue.min_offset, end, queue.max_offset)
                ends[StreamQueue(topic, broker, queue_id)] = found
        return ends

    def recovery(self, broker: str) -> Recovery:
        """Return whether the broker is rebuilding its queues now."""
        root = self.roots.get(broker)
        return Recovery.NONE if root is None else recovery_of(root)

    def stored_from(self, queues: Iterable[StreamQueue], time: int) -> dict[StreamQueue, int]:
        """Return for each queue the offset of the first record stored at a time (ms) or later."""
        found = {}
        for queue in queues:
            store = self.snapshots[queue.broker]
            snapshot = store.queues[queue.topic, queue.queue_id]
            found[queue] = store.first_stored_from(snapshot, time)
        return found

    def log_begins(self, queues: Collection[StreamQueue]) -> dict[StreamQueue, int | None]:
        """Return where the log of each queue begins, as `ScannedStore` does."""
        found = {}
        for queue in queues:
            store = self.snapshots[queue.broker]
            found[queue] = store.log_begin(store.queues[queue.topic, queue.queue_id])
        return found

    def marks(self, offsets: Mapping[StreamQueue, int]) -> dict[StreamQueue, Mark]:
        """Return the known marks of messages before some offsets."""
        found = {}
        for queue, offset in offsets.items():
            store = self.snapshots.get(queue.broker)
            its = None if store is None else store.queues.get((queue.topic, queue.queue_id))
            mark = store.mark(its, offset) if store is not None and its is not None else None
            if mark is not None:
                found[queue] = mark
        return found

    def replaced(self, read: Mapping[StreamQueue, Position]) -> dict[StreamQueue, Replaced]:
        """Return the queues that do not match the marks of positions."""
        found = {}
        for queue, (offset, mark) in read.items():
            store = self.snapshots.get(queue.broker)
            if store is None or mark is None:
                continue
            other = store.replaced(queue.topic, queue.queue_id, offset, mark)
            if other is not None:
                found[queue] = other
        return found

    def partitions(
        self, wanted: Mapping[StreamQueue, Span], lose: LoseBetween
    ) -> Iterator[SlicePartition]:
        """Split the ranges to read from queues that the last `look` found."""
        by_broker: dict[str, dict[StreamQueue, Span]] = {}
        for queue, span in wanted.items():
            by_broker.setdefault(queue.broker, {})[queue] = span
        limits = limits_per_store(self._options, max(len(by_broker), 1))
        for broker, spans in by_broker.items():
            store = self.snapshots[broker]
            for slices in plan(store, request_of(spans), limits, lose_of(broker, lose)):
                yield SlicePartition(store.files, slices)
