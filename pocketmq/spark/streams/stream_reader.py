"""Reads streams: determines the end of a trigger, and plans the reads between two offsets.

Spark calls the methods in this order: `initialOffset` for a new query, then for each trigger
`latestOffset` and `partitions`; after a restart `partitions` again for the last unfinished batch. A
batch is determined by its two offsets alone, so a repeated batch is the same. Therefore a queue
that appears while a query runs joins in two steps: one batch records its earliest offset, and the
next one reads from there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pocketmq.spark.options.options import Options
from pocketmq.spark.partition_reading import TaskReader, handed_over
from pocketmq.spark.schema import arrow_schema
from pocketmq.spark.store_plans import task_reader
from pocketmq.spark.streams.admission import Admission, TriggerLimits
from pocketmq.spark.streams.stream_queues import QueueEnds, StreamQueues
from pocketmq.spark.streams.stream_stores import StreamStores
from pocketmq.store.scan.continuity import Replaced, newest_read
from pocketmq.store.scan.errors import QueueReplaced, RecordsLost, StoreRecovering
from pocketmq.store.scan.patience import RECOVERY_SECONDS, Patience
from pocketmq.store.scan.planning.offsets import EARLIEST, LATEST
from pocketmq.store.scan.queues.selection import ALL_RECORDS
from pocketmq.store.scan.stream_offsets import (
    Mark,
    Offsets,
    Position,
    Positions,
    StreamQueue,
    from_json,
    to_json,
)
from pocketmq.store.store_lock import Recovery

log = logging.getLogger(__name__)


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the messages that the options select as they are stored.

    Args:
        clock: monotonic seconds.
        sleep: waits for a number of seconds.

    Raises:
        OptionError: two stores have the same broker.
        SchemaError: a column does not exist, or has another type.
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
        self._queues = _queues(options)
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
        self._replaced: Mapping[StreamQueue, Replaced] = {}
        self._away: set[StreamQueue] = set()
        self._compared: dict[str, Any] | None = None

    # --- where there is something to read -----------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins.

        Raises:
            OptionError: no store has a named topic or queue.
            RecordsLost: startingOffsets has an offset that does not exist (failOnDataLoss).
        """
        self._ends = self._queues.look()
        self._queues.check_names(self._lose)
        time = self._options.stored.start
        if time is not None:
            offsets = self._queues.stored_from(self._ends, time)
            begins = {
                queue: min(offsets[queue], ends.offered) for queue, ends in self._ends.items()
            }
        else:
            begins = {name: self._beginning(name, ends) for name, ends in self._ends.items()}
        return to_json(self._positions(begins, {}))

    def _beginning(self, queue: StreamQueue, ends: QueueEnds) -> int:
        starting = self._options.starting.of(queue.broker)
        offset = starting.by_queue.get(queue.topic, {}).get(queue.queue_id, starting.otherwise)
        if offset == LATEST:
            return ends.offered
        if offset == EARLIEST:
            return ends.first
        if offset < ends.first:
            self._lose_between(queue, offset, ends.first, f"the queue begins at {ends.first}")
        elif offset > ends.stored:
            self._lose_between(queue, ends.stored, offset, f"the queue ends at {ends.stored}")
        return min(max(offset, ends.first), ends.stored)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a trigger; Spark passes it to `latestOffset`."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run at the current end."""
        self._target = {queue: ends.offered for queue, ends in self._queues.look().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next trigger ends; `start` if it has nothing to read.

        Raises:
            OffsetsError: `start` is not an offset of this source.
            RecordsLost: the stream has read more than a queue has now (failOnDataLoss).
            QueueReplaced: a queue was deleted or recreated (failOnDataLoss).
        """
        before = from_json(start)
        known = self._ends
        self._ends = self._settled({queue: at.offset for queue, at in before.items()})
        self._check_brokers(before)
        idle = {
            queue
            for queue, at in before.items()
            if start == self._compared
            and queue in known
            and known[queue] == self._ends.get(queue)
            and known[queue].offered == at.offset
        }
        anew = self._begun_anew(before, idle)
        self._away = {queue for queue, other in self._replaced.items() if other.may_return}
        position = anew | {
            queue: self._continued(queue, at.offset, known)
            for queue, at in before.items()
            if queue not in self._replaced
        }
        position |= {queue: before[queue].offset for queue in self._away}
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
            if queue not in position and queue not in self._replaced
        }
        lags = {
            # A recreated queue is read from the next trigger on, like a new queue.
            queue: 0 if queue in anew else max(bounds.get(queue, offset) - offset, 0)
            for queue, offset in sorted(position.items())
        }
        # With Trigger.Once, Spark requests everything in spite of the default limit.
        if isinstance(limit, ReadAllAvailable):
            shares = lags
        else:
            backlog = sum(lags.values()) + sum(bounds[q] - offset for q, offset in joining.items())
            # A run that ends at the current end cannot wait for more.
            if self._target is None and self._admission.waits(backlog):
                return start
            shares = self._admission.share(lags)
        self._check_joining(joining, before)
        end = {queue: offset + shares[queue] for queue, offset in position.items()}
        # A recreated queue gets a new mark, even if it continues at the same offset.
        unchanged = {queue: at for queue, at in before.items() if queue not in anew}
        self._compared = to_json(self._positions(end | joining, unchanged))
        return self._compared

    def _check_joining(self, joining: Iterable[StreamQueue], before: Positions) -> None:
        """Report the messages of new queues that may have come and expired since `before`."""
        newest = newest_read(before)
        late = [
            queue
            for queue in joining
            if self._ends[queue].first and (not before or queue.broker in newest)
        ]
        for queue, begin in self._queues.log_begins(late).items():
            if begin is not None and newest.get(queue.broker, -1) < begin:
                first = self._ends[queue].first
                reason = f"the queue is new to the stream, and begins at {first}"
                self._lose_between(queue, 0, first, reason)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the queues at the last `look`, for the query's progress."""
        return to_json({queue: Position(ends.offered) for queue, ends in self._ends.items()})

    def _positions(
        self, offsets: Offsets, before: Mapping[StreamQueue, Position] = {}
    ) -> Positions:
        """Return offsets with marks that later show whether their queues are still the same. Those
        of `before` that have not moved stay as they are."""
        moved = {
            queue: offset
            for queue, offset in offsets.items()
            if queue not in before or before[queue].offset != offset
        }
        marks = self._queues.marks(moved)
        return {
            queue: Position(offset, marks.get(queue)) if queue in moved else before[queue]
            for queue, offset in offsets.items()
        }

    def _begun_anew(
        self, positions: Mapping[StreamQueue, Position], idle: Collection[StreamQueue] = ()
    ) -> Offsets:
        """Return where to continue in recreated queues. The others in `_replaced` no longer exist.
        `idle` queues are not compared, because asking a broker for a message of each of ten
        thousand queues takes long. A recreated queue can have as many messages as were read, so
        after a restart none is idle."""
        self._replaced = self._queues.replaced(
            {
                queue: at
                for queue, at in positions.items()
                if at.mark is not None
                and queue not in idle
                and queue.broker in self._queues.brokers
            }
        )
        found = {}
        for queue, other in self._replaced.items():
            mark = positions[queue].mark
            assert mark is not None
            if queue not in self._away:
                self._lose_queue(queue, positions[queue].offset, other)
            if other.exists:
                found[queue] = self._newer_from(queue, mark, other)
        return found

    def _newer_from(self, queue: StreamQueue, mark: Mark, other: Replaced) -> int:
        """Return the first offset in a queue whose message is newer than a mark."""
        if other.newer_from is not None:
            return other.newer_from
        return self._queues.stored_from([queue], mark.stored + 1)[queue]

    def _lose_queue(self, queue: StreamQueue, offset: int, other: Replaced) -> None:
        reason = f"{self._queues.where(queue.broker)}: {other.reason}"
        error = QueueReplaced(queue.topic, queue.queue_id, offset, reason)
        if self._options.fail_on_data_loss:
            error.args = (
                f"{error}. Begin with a new checkpoint, or set failOnDataLoss to false to "
                "continue with the newer messages",
            )
            raise error
        log.warning("stream continues with newer messages, others may be missing: %s", error)

    def _settled(self, position: Offsets) -> dict[StreamQueue, QueueEnds]:
        """Return the ends of all queues. If a queue ends before the stream's offset, and its broker
        may be recovering from a crash, wait until the queue is complete again."""
        patience = Patience(self._clock, self._sleep)
        expected = {queue.broker for queue in position} - self._missing
        while True:
            found = self._queues.look(expected)
            behind = {
                queue.broker
                for queue, offset in position.items()
                if queue in found and found[queue].stored < offset
            }
            recoveries = {self._queues.recovery(broker): broker for broker in behind}
            if recoveries.keys().isdisjoint((Recovery.UNDER_WAY, Recovery.PERHAPS)):
                return found
            if not patience.wait():
                if Recovery.UNDER_WAY in recoveries:  # not known to be lost
                    broker = recoveries[Recovery.UNDER_WAY]
                    raise StoreRecovering(self._queues.where(broker), RECOVERY_SECONDS)
                return found

    def _continued(
        self, queue: StreamQueue, offset: int, known: Mapping[StreamQueue, QueueEnds]
    ) -> int:
        """Return where to continue a queue that was read up to `offset`."""
        ends = self._ends.get(queue)
        if ends is None and queue.broker not in self._queues.brokers:
            return offset  # nothing is lost if the queue comes back
        if ends is None:
            # When all records have expired, an official broker removes the queue, which may come
            # back. Records known to be unread are lost: `partitions` reports that.
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
        """Split the range between two offsets. Queues that are not in `start` begin at `end`.

        Raises RecordsLost, QueueReplaced (failOnDataLoss).
        """
        begins, stops = from_json(start), from_json(end)
        ranges = {
            queue: (begins[queue].offset, stop.offset)
            for queue, stop in stops.items()
            if queue in begins and begins[queue].offset < stop.offset
        }
        if not all(self._has(queue, stop) for queue, (_, stop) in ranges.items()):
            self._ends = self._settled({queue: stop for queue, (_, stop) in ranges.items()})
        self._check_brokers(ranges)
        if end != self._compared:  # a batch planned before a restart
            self._begun_anew({queue: begins[queue] for queue in ranges})
            ranges = {queue: span for queue, span in ranges.items() if queue not in self._replaced}
            anew = self._begun_anew({queue: stops[queue] for queue in ranges})
            for queue in self._replaced:
                # The queue has the same beginning but lost its end: the rest is read.
                begin, stop = ranges.pop(queue)
                stop = min(stop, anew.get(queue, begin))
                if begins[queue].mark is not None and begin < stop:
                    ranges[queue] = begin, stop
        wanted = {}
        for queue, span in sorted(ranges.items()):
            if queue in self._ends:
                wanted[queue] = span
            elif queue.broker in self._queues.brokers:
                self._lose_between(queue, *span, "there is no such queue any more")
            else:
                self._lose_between(queue, *span, "the broker is not there any more")
        return list(self._queues.partitions(wanted, self._lose_between))

    def _check_brokers(self, queues: Iterable[StreamQueue]) -> None:
        """Raise an error if a broker that the stream has read from is missing."""
        missing = {queue.broker for queue in queues} - set(self._queues.brokers)
        for broker in sorted(missing - self._missing):
            error = self._queues.missing(broker)
            if self._options.fail_on_data_loss:
                raise error
            log.warning("%s; the stream goes on with the others", error)
        self._missing = missing

    def _has(self, queue: StreamQueue, stop: int) -> bool:
        ends = self._ends.get(queue)
        return ends is not None and stop <= ends.stored

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the records of one partition as `pyarrow.RecordBatch`es; see `FileReader.read` and
        `LiveReader.read`."""
        return self._task_reader().read(partition)

    def __reduce__(self) -> tuple[Callable[[TaskReader], TaskReader], tuple[TaskReader]]:
        # As `RocketMQReader` does.
        return handed_over, (self._task_reader(),)

    def _task_reader(self) -> TaskReader:
        return task_reader(self._options, self._schema, ALL_RECORDS)

    # --- loss ---------------------------------------------------------------------------------

    def _lose_between(self, queue: StreamQueue, first: int, stop: int, reason: str) -> None:
        text = f"{self._queues.where(queue.broker)}: {reason}"
        if self._options.fail_on_data_loss:
            text = f"{text}. Set failOnDataLoss to false to go on without them"
        self._lose(stop - first, RecordsLost(queue.topic, queue.queue_id, first, stop - 1, text))

    def _lose(self, count: int, error: RecordsLost) -> None:
        if self._options.fail_on_data_loss:
            raise error
        log.warning("left out %d offsets: %s", count, error)


def _queues(options: Options) -> StreamQueues:
    if options.live is None:
        return StreamStores(options)
    # Imported on use: reading files needs no package of the client.
    if options.reads_stores:
        from pocketmq.spark.streams.stream_hybrid import StreamHybrid

        return StreamHybrid(options, options.live)
    from pocketmq.spark.streams.stream_brokers import StreamBrokers

    return StreamBrokers(options, options.live)
