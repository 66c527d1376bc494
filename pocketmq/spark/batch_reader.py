"""Plans the reads of batches on the driver. Executors load `partition_reading`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pocketmq.archive.archives import brokers_under
from pocketmq.spark.by_broker import ALL_BROKERS, ByBroker
from pocketmq.spark.options.option_error import OptionError, two_of_one
from pocketmq.spark.options.options import Options
from pocketmq.spark.partition_reading import TaskReader, handed_over
from pocketmq.spark.pushed import Pushed
from pocketmq.spark.schema import arrow_schema
from pocketmq.spark.slice_partition import NotedPartition, SlicePartition
from pocketmq.spark.store_plans import limits_per_store, task_reader
from pocketmq.store.scan.errors import RecordsLost
from pocketmq.store.scan.planning.noted_plan import plan_noted
from pocketmq.store.scan.planning.partitioning import PartitionLimits
from pocketmq.store.scan.planning.plan import ScanRequest, plan
from pocketmq.store.scan.planning.snapshot import StoreSnapshot
from pocketmq.store.scan.planning.tail import take_snapshot
from pocketmq.store.scan.query import application_topics, listed
from pocketmq.store.scan.queues.queue_listing import QueueChoice
from pocketmq.store.scan.queues.segments import Unreadable, undisturbed
from pocketmq.store.scan.queues.selection import EVERYTHING, Range, Selection
from pocketmq.store.scan.records.topic_table import broker_name
from pocketmq.store.scan.replicas import Diverged, parts_to_read, read_twice
from pocketmq.store.scan.scanned_store import ScannedStore

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from pocketmq.spark.options.live_options import LiveOptions

log = logging.getLogger(__name__)

READ_TWICE: Final = "each message that both have would be read twice"
DIVERGED: Final = "they were copies, but end with different messages at the same offsets"


class RocketMQReader(DataSourceReader):
    """Reads the records that the options select, as of the time when the partitions are planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        """Take a snapshot of every store, and split the selected records.

        Raises:
            NoStore: a path is not the root of a store.
            OptionError: no store has a named topic or queue; an archive is of the same broker as a
                store or another archive.
            RecordsLost: a requested offset does not exist (failOnDataLoss).
        """
        if self._options.live is not None:
            return self._live_partitions(self._options.live)
        return undisturbed(self._planned)

    def _live_partitions(self, live: LiveOptions) -> Sequence[InputPartition]:
        # Imported on use: reading files needs no package of the client.
        from pocketmq.spark.live.hybrid import hybrid_partitions
        from pocketmq.spark.live.planning import live_ranges
        from pocketmq.spark.live.splitting import split

        if self._options.reads_stores:
            return hybrid_partitions(
                self._options,
                live,
                undisturbed(self._stores),
                self._wants,
                self._selection(),
                self._lose,
            )
        ranges = live_ranges(self._options, live, self._wants, self._selection(), self._lose)
        return split(ranges, limits_per_store(self._options, 1))

    def _planned(self) -> Sequence[InputPartition]:
        options, stores = self._options, self._stores()
        check_names(stores, options, self._lose)
        limits = limits_per_store(options, len(stores), self._schema.names)
        local = [store for store in stores if isinstance(store, StoreSnapshot)]
        try:
            parts = dict(zip(map(id, local), parts_to_read(local), strict=True))
        except Diverged as error:
            store, other = error.store, error.other
            raise two_of_one(store.broker_name, store.root, other.root, DIVERGED) from None
        return [
            each
            for store in stores
            for each in self._partitions(store, parts.get(id(store), EVERYTHING), limits)
        ]

    def _partitions(
        self, store: ScannedStore, physical: Range, limits: PartitionLimits
    ) -> Iterator[InputPartition]:
        """Split the selected records of one store, between two physical offsets."""
        request = self._request(store.broker_name)
        if physical.stop == 0:
            return
        if isinstance(store, StoreSnapshot) and physical == EVERYTHING:
            noted = plan_noted(store, request, limits)
            if noted is not None:
                yield from (NotedPartition(store.files, queues) for queues in noted)
                return
        for slices in plan(store, request, limits, self._lose):
            yield SlicePartition(store.files, slices, physical)

    def _stores(self) -> list[ScannedStore]:
        """Return all stores and archives with the requested queues."""
        places: list[list[ScannedStore]] = [[self._snapshot(root)] for root in self._options.roots]
        for location in self._options.archives:
            brokers = brokers_under(location)
            places.append([broker.look(self._choice, self._left_out) for broker in brokers])
        both = read_twice(places)
        if both is not None:
            archive, other = (str(store.files) for store in both)
            raise two_of_one(both[0].broker_name, archive, other, READ_TWICE)
        return [store for stores in places for store in stores]

    def _snapshot(self, root: Path) -> StoreSnapshot:
        """Return a store with the requested queues."""
        return take_snapshot(root, self._choice(broker_name(root)))

    def _choice(self, broker: str) -> QueueChoice:
        """Return the requested queues of a broker."""
        return QueueChoice(self._request(broker).wants, self._options.wants_topic)

    @property
    def _left_out(self) -> Callable[[Unreadable], None] | None:
        return None if self._options.fail_on_data_loss else leave_out

    def _request(self, broker: str) -> ScanRequest:
        """Return the selection for the store of one broker."""
        options = self._options
        return ScanRequest(
            wants=lambda topic, queue_id: self._wants(broker, topic, queue_id),
            starting=options.starting.of(broker),
            ending=options.ending.of(broker),
            selection=self._selection(),
        )

    def _wants(self, broker: str, topic: str, queue_id: int) -> bool:
        return self._options.wants(broker, topic, queue_id) and self._pushed.wants(
            broker, topic, queue_id
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the records of one partition as `pyarrow.RecordBatch`es.

        Raises:
            NotVisible: the store is not at its path on this machine.
            StoreCorrupt, RecordsLost: a record is corrupt or gone (failOnDataLoss).
            QueueNotRead: a broker did not answer within the timeout, or refused.
        """
        return self._task_reader().read(partition)

    def __reduce__(self) -> tuple[Callable[[TaskReader], TaskReader], tuple[TaskReader]]:
        # Spark pickles its reader for the tasks, which do not need the planning.
        return handed_over, (self._task_reader(),)

    def _task_reader(self) -> TaskReader:
        return task_reader(self._options, self._schema, self._selection())

    def _selection(self) -> Selection:
        return self._pushed.selection & Selection(store_timestamp=self._options.stored)

    def _lose(self, count: int, error: RecordsLost) -> None:
        if self._options.fail_on_data_loss:
            raise error
        log.warning("left out %d offsets: %s", count, error)


class PushdownReader(RocketMQReader):
    """The reader if `spark.sql.python.filterPushdown.enabled` is on, from PySpark 4.1 on. (If it is
    off, Spark refuses readers that have `pushFilters`.)"""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Apply filters to the read; return those that Spark must still apply."""
        from pocketmq.spark.filters import push  # PySpark 4.0 has no filters

        self._pushed, rest = push(filters)
        return rest


def leave_out(error: Unreadable) -> None:
    """Log that a part of an archive cannot be read."""
    log.warning("left out a part of an archive: %s", error)


def check_names(
    stores: Sequence[ScannedStore], options: Options, lose: Callable[[int, RecordsLost], None]
) -> None:
    """Raise OptionError for brokers, topics and queues that are named but do not exist; call `lose`
    for requested records in queues without messages."""
    # A queue without messages has no files: only the broker's table shows that it exists.
    configured = [store.configured for store in stores]
    option = "subscribe" if options.topics is not None else "assign"
    for topic in sorted(options.named_topics().difference(*configured)):
        if any(store.listing.ids(topic) for store in stores):
            continue
        known: set[str] = set().union(*map(application_topics, stores))
        raise OptionError(option, topic, f"no such topic; the topics are: {listed(known)}")

    def has_messages(option: str, broker: str, topic: str, queue_id: int) -> bool:
        its = [number for number, store in enumerate(stores) if _is_of(store, broker)]
        if any((topic, queue_id) in stores[number].listing for number in its):
            return True
        if not any(0 <= queue_id < configured[number].get(topic, 0) for number in its):
            raise OptionError(option, _name(broker, topic, queue_id), "there is no such queue")
        return False

    assigned: ByBroker[frozenset[int]] = options.queues or ByBroker()
    brokers = {store.broker_name for store in stores}
    for option, named in (
        ("assign", assigned.brokers()),
        ("startingOffsets", options.starting.offsets.brokers()),
        ("endingOffsets", options.ending.offsets.brokers()),
    ):
        for broker in sorted(named - brokers):
            reason = f"no store of this broker is read; the brokers are: {listed(brokers)}"
            raise OptionError(option, broker, reason)
    for topic, broker, queue_ids in assigned:
        for queue_id in sorted(queue_ids):
            has_messages("assign", broker, topic, queue_id)
    for option, bounds in (
        ("startingOffsets", options.starting),
        ("endingOffsets", options.ending),
    ):
        for topic, broker, offsets in bounds.offsets:
            wanted = {broker} if broker else brokers
            for queue_id, offset in offsets.items():
                is_empty = not has_messages(option, broker, topic, queue_id)
                if not any(options.wants(name, topic, queue_id) for name in wanted):
                    queue = _name(broker, topic, queue_id)
                    raise OptionError(option, queue, "the queue is not read")
                if is_empty and offset > 0:
                    reason = "the queue has no message"
                    lose(offset, RecordsLost(topic, queue_id, 0, offset - 1, reason))


def _is_of(store: ScannedStore, broker: str) -> bool:
    return broker in (ALL_BROKERS, store.broker_name)


def _name(broker: str, topic: str, queue_id: int) -> str:
    return f"{topic}/{broker}/{queue_id}" if broker else f"{topic}/{queue_id}"
