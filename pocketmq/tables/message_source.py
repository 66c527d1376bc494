"""Reads new messages of stores, from the position of a table's last commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow.compute as pc

from pocketmq.message.limits import clusters_of, is_internal_topic
from pocketmq.store.scan.continuity import newest_read
from pocketmq.store.scan.errors import NoTopic, QueueReplaced, RecordsLost, raise_loss
from pocketmq.store.scan.flushed import FlushedEnds
from pocketmq.store.scan.planning.offsets import EARLIEST, LATEST, OffsetBounds
from pocketmq.store.scan.planning.partitioning import PartitionLimits
from pocketmq.store.scan.planning.plan import ScanRequest, plan
from pocketmq.store.scan.planning.snapshot import StoreSnapshot
from pocketmq.store.scan.planning.tail import take_snapshot
from pocketmq.store.scan.query import application_topics, listed, topics_of
from pocketmq.store.scan.queues.queue_listing import QueueChoice
from pocketmq.store.scan.queues.queue_slice import QueueSlice
from pocketmq.store.scan.queues.segments import undisturbed
from pocketmq.store.scan.reader import SliceReader
from pocketmq.store.scan.records.topic_table import configured_queues, roots_by_broker
from pocketmq.store.scan.stream_offsets import Mark, Position, Positions, StreamQueue
from pocketmq.store.store_lock import may_recover
from pocketmq.tables.errors import TableError

log = logging.getLogger(__name__)

_PLACE: Final = ("topic", "queueId", "queueOffset", "physicalOffset")
"""Columns that tell which positions a batch reaches."""


class Progress(NamedTuple):
    """A batch of messages, and the positions of its queues once they are in the table.

    Attributes:
        reached: None for a queue that no longer exists.
        batch: a `pyarrow.RecordBatch`; None when only positions have changed.
    """

    reached: Mapping[StreamQueue, Position | None]
    batch: Any


@dataclass(slots=True)
class Plan:
    """The plan for reading one store.

    Attributes:
        parts: in the order of the log.
        moved: where to continue queues that have lost messages, if that is accepted; None for those
            that no longer exist.
        ends: where to stop in each queue.
        lost, replaced: counts of lost messages, and of queues that were recreated or deleted.
    """

    store: StoreSnapshot
    broker: str
    parts: list[QueueSlice] = field(default_factory=list)
    moved: dict[StreamQueue, Position | None] = field(default_factory=dict)
    ends: Positions = field(default_factory=dict)
    lost: int = 0
    replaced: int = 0


class NewMessages:
    """The messages after `position` that the stores have now and that survive a power failure.

    Args:
        roots: the stores, each of a different broker.
        topics: None reads all topics of applications.
        columns: to read; `queueOffset` must be among them.
        is_first: whether no messages were read before; then `position` is empty.
        skip_lost: skip messages that expired or are corrupt instead of raising, and count them in
            `lost`. Queues that were recreated or deleted are counted in `replaced`, and read from
            the first newer message.

    Raises:
        TableError: two stores have the same broker, or a store is missing.
        NoStore, NoTopic: a store or a topic does not exist.
        RecordsLost: messages that are not in the table yet are lost.
        QueueReplaced: a queue was recreated or deleted.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        topics: Sequence[str] | None,
        columns: Sequence[str],
        position: Mapping[StreamQueue, Position],
        *,
        is_first: bool,
        skip_lost: bool = False,
    ) -> None:
        self._topics = None if topics is None else frozenset(topics)
        self._clusters = clusters_of(topic for root in roots for topic in configured_queues(root))
        self._columns = columns
        self._position = position
        self._is_first = is_first
        self._skip_lost = skip_lost
        self._known: set[str] = set()
        self._shown: set[str] = set()
        self._plans = {
            broker: undisturbed(lambda broker=broker, root=root: self._plan(broker, root))  # type: ignore[misc]
            for broker, root in roots_by_broker(roots, _clash).items()
        }
        self.lost = sum(found.lost for found in self._plans.values())
        self.replaced = sum(found.replaced for found in self._plans.values())
        for topic in sorted((self._topics or frozenset()) - self._known):
            raise NoTopic(roots[0], topic, listed(self._shown))
        missing = {queue.broker for queue in position} - self._plans.keys()
        if missing and not skip_lost:
            raise TableError(
                f"the table has messages of the broker {listed(missing)}, and none of the stores "
                "is its; add it with --store, or go on without it with --skip-lost"
            )

    @property
    def count(self) -> int:
        """Messages to come."""
        return sum(len(part) for found in self._plans.values() for part in found.parts)

    def __iter__(self) -> Iterator[Progress]:
        columns = list(dict.fromkeys((*self._columns, *_PLACE)))
        for broker, found in self._plans.items():
            yield Progress(found.moved, None)
            reader = SliceReader(found.store.files, columns, fail_on_data_loss=not self._skip_lost)
            for batch in reader.read_all(found.parts):
                yield Progress(_reached(found, batch), batch.select(self._columns))
            self.lost += reader.skipped
            queues = {StreamQueue(part.topic, broker, part.queue_id) for part in found.parts}
            # Their last messages may be lost.
            yield Progress({queue: found.ends[queue] for queue in queues}, None)

    def _wants(self, topic: str, queue_id: int) -> bool:
        return self._wants_topic(topic)

    def _wants_topic(self, topic: str) -> bool:
        if self._topics is None:
            return not is_internal_topic(topic, self._clusters)
        return topic in self._topics

    def _plan(self, broker: str, root: Path) -> Plan:
        store = take_snapshot(root, QueueChoice(self._wants, self._wants_topic))
        self._known |= topics_of(store)
        self._shown.update(application_topics(store))
        found = Plan(store, broker)
        flushed = FlushedEnds(store)
        newest = newest_read(self._position)
        # Of a broker without a position it is not known whether it was read before.
        unread = store.log.begin if self._position or self._is_first else -1
        starting: dict[str, dict[int, int]] = {}
        ending: dict[str, dict[int, int]] = {}
        self._compare(found)
        for (topic, queue_id), queue in store.queues.items():
            if self._wants(topic, queue_id):
                name = StreamQueue(topic, broker, queue_id)
                moved = found.moved.get(name) or self._position.get(name)
                if moved is None and newest.get(broker, unread) < store.log.begin:
                    moved = Position(0)  # its first messages may have come and expired since
                begin = EARLIEST if moved is None else moved.offset
                if begin != EARLIEST and not queue.min_offset <= begin <= queue.max_offset:
                    at = min(max(begin, queue.min_offset), queue.max_offset)
                    found.moved[name] = Position(at, store.mark(queue, at))
                # After the end of the queue it is lost; before the end, it may just not be flushed
                # yet.
                end = max(flushed.of(queue), min(begin, queue.max_offset))
                starting.setdefault(topic, {})[queue_id] = begin
                ending.setdefault(topic, {})[queue_id] = end
                found.ends[name] = Position(end, store.mark(queue, end))
        request = ScanRequest(
            self._wants, OffsetBounds(LATEST, starting), OffsetBounds(LATEST, ending)
        )

        def lose(count: int, error: RecordsLost) -> None:
            if not self._skip_lost or may_recover(root):
                raise_loss(count, error)
            found.lost += count
            log.warning("left out %d messages of the broker %s: %s", count, broker, error)

        for parts in plan(store, request, PartitionLimits(), lose):
            found.parts += parts
        return found

    def _compare(self, found: Plan) -> None:
        """Find the queues that were recreated or deleted, and where to continue in them."""
        store, broker = found.store, found.broker
        for name, (offset, mark) in self._position.items():
            if name.broker != broker or mark is None or not self._wants_topic(name.topic):
                continue
            other = store.replaced(name.topic, name.queue_id, offset, mark)
            if other is None:
                continue
            reason = f"broker {broker} ({store.root}): {other.reason}"
            error = QueueReplaced(name.topic, name.queue_id, offset, reason)
            if not self._skip_lost or may_recover(store.root):
                raise _with_advice(error)
            log.warning("export continues with newer messages, others may be missing: %s", error)
            found.replaced += 1
            found.moved[name] = None
            if other.exists:
                queue = store.queues[name.topic, name.queue_id]
                at = other.newer_from
                if at is None:
                    at = store.first_stored_from(queue, mark.stored + 1)
                found.moved[name] = Position(at, store.mark(queue, at))


def _reached(found: Plan, batch: Any) -> dict[StreamQueue, Position | None]:
    """Return the positions of the queues of a batch after it. Raises QueueReplaced if one of them
    was recreated after the export began."""
    last = batch.select(_PLACE).take(_last_rows(batch)).to_pydict()
    reached: dict[StreamQueue, Position | None] = {}
    for topic, queue_id, offset, physical in zip(*last.values(), strict=True):
        queue = StreamQueue(topic, found.broker, queue_id)
        place = found.store.place(physical)
        end = found.ends[queue].mark
        # Records stored after the export began have higher physical offsets than all before.
        if end is not None and physical > end.physical:
            reason = f"the message {offset} is at the physical offset {physical}, and came later"
            raise _with_advice(QueueReplaced(topic, queue_id, offset, reason))
        mark = None if place is None else Mark(offset, physical, place.store_timestamp)
        reached[queue] = Position(offset + 1, mark)
    return reached


def _last_rows(batch: Any) -> Any:
    """Return the numbers of the last rows of each slice in a batch, in which slices follow one
    another."""
    differs = [
        pc.not_equal(column[:-1], column[1:])
        for column in (batch.column("topic"), batch.column("queueId"))
    ]
    ends = np.flatnonzero(pc.or_(*differs).to_numpy(zero_copy_only=False))
    return np.append(ends, batch.num_rows - 1)


def _with_advice(error: QueueReplaced) -> QueueReplaced:
    error.args = (
        f"{error}. Export to another directory, or continue with the newer messages with "
        "--skip-lost",
    )
    return error


def _clash(broker: str, root: Path, other: Path) -> TableError:
    return TableError(
        f"{root} is a store of the broker {broker}, like {other}; the table keeps offsets by the "
        "broker's name, so name one of the two"
    )
