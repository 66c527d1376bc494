"""Reads what is new in the stores of brokers, from where a table's last commit ended."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pocketmq.message.limits import is_internal_topic
from pocketmq.store.scan.errors import NoTopic, RecordsLost, raise_loss
from pocketmq.store.scan.flushed import FlushedEnds
from pocketmq.store.scan.offsets import EARLIEST, LATEST, OffsetBounds
from pocketmq.store.scan.partitioning import PartitionLimits
from pocketmq.store.scan.plan import ScanRequest, plan
from pocketmq.store.scan.query import application_topics, listed, topics_of
from pocketmq.store.scan.queue_listing import QueueChoice
from pocketmq.store.scan.queue_slice import QueueSlice
from pocketmq.store.scan.reader import SliceReader
from pocketmq.store.scan.segments import undisturbed
from pocketmq.store.scan.store_files import LocalFiles
from pocketmq.store.scan.stream_offsets import Offsets, StreamQueue
from pocketmq.store.scan.tail import take_snapshot
from pocketmq.store.scan.topic_table import roots_by_broker
from pocketmq.store.store_lock import may_recover
from pocketmq.tables.errors import TableError

log = logging.getLogger(__name__)


class Progress(NamedTuple):
    """A batch of messages, and where its queue is to be read from once they are in the table.

    Attributes:
        batch: a `pyarrow.RecordBatch`; None when only the position has changed.
    """

    queue: StreamQueue
    offset: int
    batch: Any


class Plan(NamedTuple):
    """What to read from one store.

    Attributes:
        moved: where queues go on that have lost messages, if that is accepted.
    """

    root: Path
    parts: list[QueueSlice]
    moved: Offsets


class NewMessages:
    """The messages behind `position` that the stores have now, and that a power failure would not
    take from them.

    Args:
        roots: the stores; each of another broker.
        topics: None reads all topics of applications.
        columns: to read; `queueOffset` must be among them.
        skip_lost: go on behind messages that expired or are corrupt, instead of raising; they are
            counted in `lost`.

    Raises:
        TableError: two stores have the same broker, or a store is missing.
        NoStore, NoTopic: there is none.
        RecordsLost: messages are gone that are not in the table yet.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        topics: Sequence[str] | None,
        columns: Sequence[str],
        position: Mapping[StreamQueue, int],
        *,
        skip_lost: bool = False,
    ) -> None:
        self._topics = None if topics is None else frozenset(topics)
        self._columns = columns
        self._position = position
        self._skip_lost = skip_lost
        self.lost = 0
        self._known: set[str] = set()
        self._shown: set[str] = set()
        self._plans = {
            broker: undisturbed(lambda broker=broker, root=root: self._plan(broker, root))  # type: ignore[misc]
            for broker, root in roots_by_broker(roots, _clash).items()
        }
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
        return sum(len(part) for plan in self._plans.values() for part in plan.parts)

    def __iter__(self) -> Iterator[Progress]:
        for broker, (root, parts, moved) in self._plans.items():
            for queue, offset in moved.items():
                yield Progress(queue, offset, None)
            reader = SliceReader(
                LocalFiles(root, broker), self._columns, fail_on_data_loss=not self._skip_lost
            )
            for part in parts:
                queue = StreamQueue(part.topic, broker, part.queue_id)
                for batch in reader.read(part):
                    last = batch.column("queueOffset")[batch.num_rows - 1].as_py()
                    yield Progress(queue, last + 1, batch)
                yield Progress(queue, part.stop, None)
            self.lost += reader.skipped

    def _wants(self, topic: str, queue_id: int) -> bool:
        return self._wants_topic(topic)

    def _wants_topic(self, topic: str) -> bool:
        return not is_internal_topic(topic) if self._topics is None else topic in self._topics

    def _plan(self, broker: str, root: Path) -> Plan:
        store = take_snapshot(root, QueueChoice(self._wants, self._wants_topic))
        self._known |= topics_of(store)
        self._shown.update(application_topics(store))
        moved: Offsets = {}
        flushed = FlushedEnds(store)
        starting: dict[str, dict[int, int]] = {}
        ending: dict[str, dict[int, int]] = {}
        for (topic, queue_id), queue in store.queues.items():
            if self._wants(topic, queue_id):
                known = StreamQueue(topic, broker, queue_id)
                begin = self._position.get(known, EARLIEST)
                if begin != EARLIEST and not queue.min_offset <= begin <= queue.max_offset:
                    moved[known] = min(max(begin, queue.min_offset), queue.max_offset)
                # Behind the end of the queue it is lost; before, it may only not be flushed yet.
                end = max(flushed.of(queue), min(begin, queue.max_offset))
                starting.setdefault(topic, {})[queue_id] = begin
                ending.setdefault(topic, {})[queue_id] = end
        request = ScanRequest(
            self._wants, OffsetBounds(LATEST, starting), OffsetBounds(LATEST, ending)
        )

        def lose(count: int, error: RecordsLost) -> None:
            if not self._skip_lost or may_recover(root):
                raise_loss(count, error)
            self.lost += count
            log.warning("left out %d messages of the broker %s: %s", count, broker, error)

        parts = [part for each in plan(store, request, PartitionLimits(), lose) for part in each]
        return Plan(root, parts, moved)


def _clash(broker: str, root: Path, other: Path) -> TableError:
    return TableError(
        f"{root} is a store of the broker {broker}, like {other}; the table keeps offsets by the "
        "broker's name, so name one of the two"
    )
