"""Reads streams: says how far there is something to read, and plans what lies between two offsets.

Spark calls the methods in this order: `initialOffset` for a new query, then for each trigger
`latestOffset` and `partitions`; after a restart `partitions` once more for the last batch that was
not finished. What a batch reads depends only on its two offsets, so that it is the same again. For
this reason a queue that appears while a query runs joins it in two steps: one batch names its
earliest offset, the next reads from there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pocketmq.spark.admission import Admission, TriggerLimits
from pocketmq.spark.batch_reader import check_names
from pocketmq.spark.options import OptionError, Options
from pocketmq.spark.schema import arrow_schema
from pocketmq.spark.slice_partition import SlicePartition, limits_per_store, read_slices
from pocketmq.spark.stream_offsets import Offsets, StreamQueue, from_json, to_json
from pocketmq.spark.stream_stores import QueueEnds, StreamStores
from pocketmq.store.scan.errors import RecordsLost
from pocketmq.store.scan.offsets import LATEST, OffsetBounds
from pocketmq.store.scan.plan import ScanRequest, plan
from pocketmq.store.scan.selection import ALL_RECORDS

log = logging.getLogger(__name__)

RECOVERY_SECONDS: Final = 60.0
"""How long a stream waits for a broker that builds its queues after a crash."""
_LOOK_AGAIN_SECONDS: Final = 0.2


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what the options ask for as it is stored.

    Args:
        clock: seconds that never run backwards.
        sleep: waits that long, in seconds.

    Raises:
        OptionError: two stores have the same broker.
        SchemaError: no such column, or not of that type.
    """

    def __init__(
        self,
        options: Options,
        schema: StructType,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._stores = StreamStores(options)
        self._clock = clock
        self._sleep = sleep
        self._admission = Admission(
            TriggerLimits(
                options.max_offsets_per_trigger,
                options.min_offsets_per_trigger,
                options.max_trigger_delay,
            ),
            clock,
        )
        self._ends: dict[StreamQueue, QueueEnds] = {}
        self._target: Offsets | None = None
        self._missing: set[str] = set()

    # --- where there is something to read -----------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins.

        Raises:
            OptionError: a topic or queue is named that no store has.
            RecordsLost: startingOffsets has an offset that is not there (failOnDataLoss).
        """
        self._ends = self._stores.look()
        stores = list(self._stores.snapshots.values())
        check_names(stores, self._options, self._lose)
        return to_json({queue: self._beginning(queue, ends) for queue, ends in self._ends.items()})

    def _beginning(self, queue: StreamQueue, ends: QueueEnds) -> int:
        options, store = self._options, self._stores.snapshots[queue.broker]
        found = store.queues[queue.topic, queue.queue_id]
        if options.stored.start is not None:
            return min(store.first_stored_from(found, options.stored.start), ends.offered)
        starting = options.starting.of(queue.broker)
        asked = starting.by_queue.get(queue.topic, {}).get(queue.queue_id, starting.otherwise)
        if asked == LATEST:
            return ends.offered
        offset = starting.of(found)
        if offset < ends.first:
            self._lose_between(queue, offset, ends.first, f"the queue begins at {ends.first}")
        elif offset > ends.stored:
            self._lose_between(queue, ends.stored, offset, f"the queue ends at {ends.stored}")
        return min(max(offset, ends.first), ends.stored)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a trigger; Spark hands it to `latestOffset`."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run: what is there now."""
        self._target = {queue: ends.offered for queue, ends in self._stores.look().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next trigger ends; `start` if there is nothing to read for it.

        Raises:
            OffsetsError: `start` is none of our offsets.
            RecordsLost: the stream has read more than a queue has now (failOnDataLoss).
        """
        position = from_json(start)
        self._check_brokers(position)
        known = self._ends
        self._ends = self._settled(position)
        position |= {
            queue: self._continued(queue, offset, known) for queue, offset in position.items()
        }
        bounds = {queue: ends.offered for queue, ends in self._ends.items()}
        if self._target is not None:
            bounds = {
                queue: min(bound, self._target[queue])
                for queue, bound in bounds.items()
                if queue in self._target
            }
        joining = {
            queue: min(self._ends[queue].first, bound)
            for queue, bound in bounds.items()
            if queue not in position
        }
        lags = {
            queue: max(bounds.get(queue, offset) - offset, 0)
            for queue, offset in sorted(position.items())
        }
        # Spark asks for everything in spite of the default limit with Trigger.Once.
        if isinstance(limit, ReadAllAvailable):
            shares = lags
        else:
            backlog = sum(lags.values()) + sum(bounds[q] - offset for q, offset in joining.items())
            # A run that ends with what is there cannot wait for more.
            if self._target is None and self._admission.waits(backlog):
                return start
            shares = self._admission.share(lags)
        end = {queue: offset + shares[queue] for queue, offset in position.items()}
        return to_json(end | joining)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the queues when they were last looked at, for the query's progress."""
        return to_json({queue: ends.offered for queue, ends in self._ends.items()})

    def _settled(self, position: Mapping[StreamQueue, int]) -> dict[StreamQueue, QueueEnds]:
        """Return the ends of all queues. Where the stream has read more than a queue has, and its
        broker may be recovering from a crash, wait until the queue is there again."""
        deadline = self._clock() + RECOVERY_SECONDS
        while True:
            found = self._stores.look()
            behind = {
                queue.broker
                for queue, offset in position.items()
                if queue in found and found[queue].stored < offset
            }
            if not any(map(self._stores.may_recover, behind)) or self._clock() >= deadline:
                return found
            self._sleep(_LOOK_AGAIN_SECONDS)

    def _continued(
        self, queue: StreamQueue, offset: int, known: Mapping[StreamQueue, QueueEnds]
    ) -> int:
        """Return where a queue goes on that is to be read from `offset`."""
        ends = self._ends.get(queue)
        if ends is None:
            # When all records have expired, an official broker removes the queue, which may come
            # back. What is known to be unread is lost: `partitions` says so.
            return max(offset, known[queue].offered) if queue in known else offset
        if offset <= ends.stored:
            return offset
        self._lose_between(
            queue,
            ends.stored,
            offset,
            f"the queue ends at {ends.stored}, but the stream has read up to {offset}; the broker "
            "lost its newest messages, or began anew under the same name. The stream can go on at "
            f"{ends.offered}",
        )
        return ends.offered

    # --- reading ------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Split what lies between two offsets. Queues that `start` does not have begin at `end`.

        Raises RecordsLost (failOnDataLoss).
        """
        begins, stops = from_json(start), from_json(end)
        ranges = {
            queue: (begins[queue], stop)
            for queue, stop in stops.items()
            if begins.get(queue, stop) < stop
        }
        if not all(self._has(queue, stop) for queue, (_, stop) in ranges.items()):
            self._ends = self._settled({queue: stop for queue, (_, stop) in ranges.items()})
        by_broker: dict[str, dict[StreamQueue, tuple[int, int]]] = {}
        for queue, bounds in sorted(ranges.items()):
            if queue in self._ends:
                by_broker.setdefault(queue.broker, {})[queue] = bounds
            else:
                self._lose_between(queue, *bounds, "there is no such queue any more")
        return [
            partition
            for broker, wanted in by_broker.items()
            for partition in self._partitions(broker, wanted, len(by_broker))
        ]

    def _partitions(
        self, broker: str, wanted: Mapping[StreamQueue, tuple[int, int]], stores: int
    ) -> Iterator[SlicePartition]:
        starting: dict[str, dict[int, int]] = {}
        ending: dict[str, dict[int, int]] = {}
        for queue, (begin, stop) in wanted.items():
            starting.setdefault(queue.topic, {})[queue.queue_id] = begin
            ending.setdefault(queue.topic, {})[queue.queue_id] = stop
        request = ScanRequest(
            wants=lambda topic, queue_id: queue_id in starting.get(topic, {}),
            starting=OffsetBounds(LATEST, starting),
            ending=OffsetBounds(LATEST, ending),
        )

        def lose(count: int, error: RecordsLost) -> None:
            queue = StreamQueue(error.topic, broker, error.queue_id)
            self._lose_between(queue, error.first, error.last + 1, error.reason)

        store = self._stores.snapshots[broker]
        limits = limits_per_store(self._options, stores)
        for slices in plan(store, request, limits, lose):
            yield SlicePartition(store.files, slices)

    def _check_brokers(self, position: Offsets) -> None:
        """Raise OptionError when a store is missing whose broker the stream has read from."""
        missing = {queue.broker for queue in position} - set(self._stores.places)
        for broker in sorted(missing - self._missing):
            self._missing.add(broker)
            reason = f"the stream has read from the broker {broker}, and none of the stores is its"
            if self._options.fail_on_data_loss:
                raise OptionError(
                    "path",
                    ",".join(map(str, (*self._options.roots, *self._options.archives))),
                    f"{reason}; add its store, or set failOnDataLoss to false",
                )
            log.warning("%s; the stream goes on with the others", reason)

    def _has(self, queue: StreamQueue, stop: int) -> bool:
        ends = self._ends.get(queue)
        return ends is not None and stop <= ends.stored

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the records of one partition as `pyarrow.RecordBatch`es; see `read_slices`."""
        return read_slices(partition, self._options, self._schema, ALL_RECORDS)

    # --- loss ---------------------------------------------------------------------------------

    def _lose_between(self, queue: StreamQueue, first: int, stop: int, reason: str) -> None:
        root = self._stores.places.get(queue.broker)
        where = f"broker {queue.broker}" if root is None else f"broker {queue.broker} ({root})"
        text = f"{where}: {reason}"
        if self._options.fail_on_data_loss:
            text = f"{text}. Set failOnDataLoss to false to go on without them"
        self._lose(stop - first, RecordsLost(queue.topic, queue.queue_id, first, stop - 1, text))

    def _lose(self, count: int, error: RecordsLost) -> None:
        if self._options.fail_on_data_loss:
            raise error
        log.warning("left out %d offsets: %s", count, error)
