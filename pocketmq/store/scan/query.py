"""The arguments of a read from Python: checks them, and makes a scan of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.message.limits import clusters_of, is_internal_topic
from pocketmq.message.tags import tag_hash
from pocketmq.store.scan.errors import NoTopic, RecordsLost, raise_loss
from pocketmq.store.scan.planning.offsets import EARLIEST, LATEST, OffsetBounds, wrong_ms
from pocketmq.store.scan.planning.partitioning import PartitionLimits
from pocketmq.store.scan.planning.plan import ScanRequest, plan
from pocketmq.store.scan.queues.queue_listing import QueueChoice
from pocketmq.store.scan.queues.queue_slice import QueueSlice
from pocketmq.store.scan.queues.segments import Unreadable, undisturbed
from pocketmq.store.scan.queues.selection import Range, Selection
from pocketmq.store.scan.reader import SliceReader
from pocketmq.store.scan.records.columns import ALL_COLUMNS, COLUMNS
from pocketmq.store.scan.records.topic_table import own_names
from pocketmq.store.scan.scanned_store import ScannedStore

log = logging.getLogger(__name__)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_NAMES: Final = 20

#: Topic → queue id → queue offset.
Offsets = Mapping[str, Mapping[int, int]]


#: Returns some stores as they are now, with the queues that are chosen. What is called with the
#: error of each part of them that cannot be read; when None, the error is raised.
TakeStores = Callable[[QueueChoice, Callable[[Unreadable], None] | None], Sequence[ScannedStore]]


#: What makes the reader of some slices, and these.
PlannedPart = tuple[Callable[[], SliceReader], list[QueueSlice]]


class QueryOptions(TypedDict, total=False):
    """The options of a query; `StoredMessages` explains them."""

    columns: Iterable[str] | None
    tags: str | Iterable[str] | None
    start_time: datetime | int | None
    end_time: datetime | int | None
    start_offsets: Offsets | None
    end_offsets: Offsets | None
    include_system_topics: bool
    decompress: bool
    fail_on_data_loss: bool


class Query:
    """Which messages to read, and which columns of them."""

    def __init__(
        self,
        topic: str | Iterable[str] | None = None,
        *,
        columns: Iterable[str] | None = None,
        tags: str | Iterable[str] | None = None,
        start_time: datetime | int | None = None,
        end_time: datetime | int | None = None,
        start_offsets: Offsets | None = None,
        end_offsets: Offsets | None = None,
        include_system_topics: bool = False,
        decompress: bool = True,
        fail_on_data_loss: bool = True,
    ) -> None:
        """Raises TypeError or ValueError for an argument that is wrong."""
        self._topics = _names("topic", topic)
        chosen = _names("columns", columns)
        self.columns = tuple(COLUMNS) if chosen is None else chosen
        for column in self.columns:
            if column not in ALL_COLUMNS:
                known = ", ".join(ALL_COLUMNS)
                raise ValueError(f"columns names {column!r}, which does not exist; known: {known}")
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"columns is {list(self.columns)!r}: need each column once")
        self._tags = _names("tags", tags)
        self._stored = Range(_millis("start_time", start_time), _millis("end_time", end_time))
        self._starting = OffsetBounds(EARLIEST, _offsets("start_offsets", start_offsets))
        self._ending = OffsetBounds(LATEST, _offsets("end_offsets", end_offsets))
        self._include_system_topics = include_system_topics
        self._decompress = decompress
        self._fail_on_data_loss = fail_on_data_loss

    def scan(self, take: TakeStores) -> Scan:
        """Plan the read against some stores.

        Args:
            take: returns the stores as they are now, with the queues that are chosen.

        Raises:
            NoTopic: none of the stores has such a topic.
            ValueError: an offset is given for a queue that does not exist or is not read.
            RecordsLost: an offset is given that the queue does not have.
        """
        return Scan(undisturbed(lambda: list(self._planned(take))), self.columns, self._tags)

    def _planned(self, take: TakeStores) -> Iterator[PlannedPart]:
        lose_part = None if self._fail_on_data_loss else _log_part
        stores = take(QueueChoice(self._wants, self._wants_topic), lose_part)
        for topic in sorted(set(self._topics or ()).difference(*map(topics_of, stores))):
            known: set[str] = set().union(*map(application_topics, stores))
            raise NoTopic(_names_of(stores), topic, listed(known))
        for name, bounds in (("start_offsets", self._starting), ("end_offsets", self._ending)):
            for topic, offsets in bounds.by_queue.items():
                for queue_id in offsets:
                    self._check_queue(stores, name, topic, queue_id)
        lose = raise_loss if self._fail_on_data_loss else _log_loss
        for store in stores:
            wants = self._wanted_of(clusters_of(store.configured))
            request = ScanRequest(wants, self._starting, self._ending, self._selection)
            for slices in plan(store, request, PartitionLimits(), lose):
                reader = partial(
                    SliceReader,
                    store.files.needed_for(slices),
                    self._read_columns,
                    selection=self._selection,
                    decompress=self._decompress,
                    fail_on_data_loss=self._fail_on_data_loss,
                )
                yield reader, slices

    def _check_queue(
        self, stores: Sequence[ScannedStore], name: str, topic: str, queue_id: int
    ) -> None:
        if not any((topic, queue_id) in store.listing for store in stores):
            queues = listed(
                f"{topic}/{number}" for store in stores for topic, number in store.listing
            )
            raise ValueError(
                f"{name} names the queue {topic}/{queue_id}, which has no messages in the store "
                f"{_names_of(stores)}; queues with messages: {queues}"
            )
        if not self._wants(topic, queue_id):
            raise ValueError(f"{name} names the queue {topic}/{queue_id}, which is not read")

    def _wanted_of(self, clusters: frozenset[str]) -> Callable[[str, int], bool]:
        """Return which queues are read of a broker of these clusters."""
        return lambda topic, queue_id: (
            self._wants(topic, queue_id)
            and (
                self._topics is not None
                or self._include_system_topics
                or not is_internal_topic(topic, clusters)
            )
        )

    def _wants(self, topic: str, queue_id: int) -> bool:
        return self._wants_topic(topic)

    def _wants_topic(self, topic: str) -> bool:
        if self._topics is not None:
            return topic in self._topics
        # Which reply topics are internal depends on the clusters of each broker: `_wanted_of`.
        return self._include_system_topics or not is_internal_topic(topic, ())

    @property
    def _selection(self) -> Selection:
        codes = None if self._tags is None else frozenset(map(tag_hash, self._tags))
        return Selection(store_timestamp=self._stored, tag_codes=codes)

    @property
    def _read_columns(self) -> tuple[str, ...]:
        # Different tags may share a hash, so the tags themselves are compared as well.
        hidden = self._tags is not None and "tags" not in self.columns
        return (*self.columns, "tags") if hidden else self.columns


class Scan:
    """The batches of one planned read; iterate over it once.

    Attributes:
        schema: the `pyarrow.Schema` of the batches.
    """

    def __init__(
        self,
        parts: Iterable[PlannedPart],
        columns: tuple[str, ...],
        tags: tuple[str, ...] | None,
    ) -> None:
        self.schema = pa.schema([(name, ALL_COLUMNS[name]) for name in columns])
        self._parts = parts
        self._tags = None if tags is None else pa.array(tags, pa.string())

    def __iter__(self) -> Iterator[Any]:
        for new_reader, slices in self._parts:
            # A reader keeps what it has read of an archive, and files open: only one at a time.
            reader = new_reader()
            for batch in reader.read_all(slices):
                if self._tags is not None:
                    batch = batch.filter(pc.is_in(batch.column("tags"), self._tags))
                    batch = batch.select(self.schema.names)
                if batch.num_rows:
                    yield batch


def _names_of(stores: Iterable[ScannedStore]) -> str:
    return ", ".join(str(store.files) for store in stores)


def topics_of(store: ScannedStore) -> set[str]:
    """Return the topics that have messages, and those that the broker has listed in its file."""
    return store.listing.topics() | store.configured.keys()


def application_topics(store: ScannedStore) -> list[str]:
    """Return the topics that applications use or may use, sorted: those that are read when none is
    named, and those without a message that the broker did not make for itself."""
    stored, listed = store.listing.topics(), store.configured.keys()
    known = stored | (listed - own_names(listed))
    clusters = clusters_of(listed)
    return sorted(topic for topic in known if not is_internal_topic(topic, clusters))


def _log_part(error: Unreadable) -> None:
    log.warning("left out a part: %s", error)


def _log_loss(count: int, error: RecordsLost) -> None:
    log.warning("left out %d records: %s", count, error)


def _names(name: str, value: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Return one or several names as a tuple."""
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else tuple(value)
    if not names or not all(isinstance(one, str) and one for one in names):
        raise ValueError(f"{name} is {value!r}: need a name, or at least one in a list")
    return names


def _millis(name: str, value: datetime | int | None) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        why = "" if value is None else wrong_ms(value)
        if why:
            raise ValueError(f"{name} is {value!r}: {why}")
        return value
    if not isinstance(value, datetime):
        raise TypeError(f"{name} is {value!r}: need a datetime, or ms since 1970 as an int")
    try:
        value = value.astimezone(UTC)  # without a zone: local time, as everywhere
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{name} is {value!r}, which is out of range: {error}") from None
    # Stored times are whole milliseconds, so both bounds are rounded up.
    return -((_EPOCH - value) // timedelta(milliseconds=1))


def _offsets(name: str, value: Offsets | None) -> dict[str, dict[int, int]]:
    wanted = 'offsets by topic and queue id, such as {"orders": {0: 23}}'
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is {value!r}: need {wanted}")
    found: dict[str, dict[int, int]] = {}
    for topic, queues in value.items():
        if not isinstance(queues, Mapping):
            raise TypeError(f"{name} is {value!r}: need {wanted}")
        for queue_id, offset in queues.items():
            if type(queue_id) is not int or type(offset) is not int or offset < EARLIEST:
                raise ValueError(f"{name} has {topic}/{queue_id} = {offset!r}: need {wanted}")
            found.setdefault(topic, {})[queue_id] = offset
    return found


def listed(names: Iterable[str]) -> str:
    """Return the first names in order, for an error text, and the number of the others."""
    ordered = sorted(names)
    more = len(ordered) - _SHOWN_NAMES
    listed = ", ".join(ordered[:_SHOWN_NAMES]) or "none"
    return f"{listed} and {more} more" if more > 0 else listed
