"""Reads slices of queues into Arrow record batches.

How a block is read: entries of the consume queue give the positions of records; their heads are
gathered and checked; unwanted records are dropped; bodies are checked against their CRC and
decompressed; then the requested columns are made, and nothing else is read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.message.limits import LIGHT_QUEUE_PREFIX
from pocketmq.message.record_layout import RecordError, decode_parts
from pocketmq.store.errors import StoreCorrupt, StoreError
from pocketmq.store.scan.errors import RecordsLost, StoreRecovering
from pocketmq.store.scan.freed_memory import keep_freed_memory
from pocketmq.store.scan.patience import RECOVERY_SECONDS, Patience
from pocketmq.store.scan.queues.queue_slice import FILLER_SIZE, QueueSlice, Rows, joined
from pocketmq.store.scan.queues.segments import NO_SEGMENTS, Int64Array
from pocketmq.store.scan.queues.selection import ALL_RECORDS, Selection
from pocketmq.store.scan.records.bodies import MAX_INFLATED, TooLarge, read_bodies
from pocketmq.store.scan.records.columns import ALL_COLUMNS, ENTRY_COLUMNS, Block
from pocketmq.store.scan.records.gather import NO_PLACES, Places
from pocketmq.store.scan.records.heads import Heads, locate
from pocketmq.store.scan.store_files import StoreFiles, entry_place

log = logging.getLogger(__name__)

BLOCK_BYTES: Final = 4 * 1024 * 1024
_BLOCK_ROWS: Final = 16_384
_FIRST_ROWS: Final = 256
"""The first block is small: a LIMIT is often done with it."""

_SHORT: Final = 1024
"""Slices of so many records or fewer share blocks."""

_AHEAD: Final = 4
"""Blocks that are being read while an earlier one is taken apart."""

_READ_SHARE: Final = 8
"""How many times the bytes of its records a block may have to read. Records of many queues are
interleaved, and small blocks are slow to take apart."""

_NO_REASONS: Final[Mapping[int, str]] = MappingProxyType({})

# What the columns of `ENTRY_COLUMNS` are made of.
_OF_ENTRIES: Final = np.dtype([("physical_offset", np.int64), ("size", np.int32)])

_NO_QUEUE: Final = np.empty(0, np.intp)

_Mask = npt.NDArray[np.bool_]


class _Part(NamedTuple):
    """Rows that make a block: of one queue, or of several, one after another."""

    queues: Sequence[QueueSlice]
    rows: Rows
    queue: npt.NDArray[np.intp]
    """For each row the number of its queue; empty if there is only one."""

    def queue_ids(self) -> npt.NDArray[np.int64]:
        """Return the id of each row's queue."""
        return np.array([wanted.queue_id for wanted in self.queues], np.int64)[self.queue]

    def have_topics(self, topics: Places) -> bool:
        """Return whether the topics at these places are those of the rows."""
        names = [wanted.topic.encode() for wanted in self.queues]
        lengths = np.array([len(name) for name in names], np.int64)
        if not np.array_equal(topics.length, lengths[self.queue]):
            return False
        expected = pa.array(names, pa.binary()).take(pa.array(self.queue))
        return bool(topics.gather().equals(expected))


class SliceReader:
    """Reads slices of the store in `files`.

    Args:
        columns: names of columns, in the order wanted.
        selection: which records.
        decompress: whether bodies are given decompressed.
        most_inflated: bytes of decompressed bodies in one block, unless a single body has more.
        patience: how long to wait for entries that a broker's recovery has emptied.
        fail_on_data_loss: raise at the first record that is gone or corrupt; else leave such
            records out, count them in `skipped`, and log each slice that has any. Offsets that have
            no message, because a repair found it lost, are counted and logged in either case.

    Raises (while iterating):
        StoreCorrupt: a record is invalid; names the file and the byte.
        RecordsLost: files that existed at planning time are gone.
        StoreRecovering: entries are missing since a broker was killed, and it has not put them back
            in time.
    """

    def __init__(
        self,
        files: StoreFiles,
        columns: Sequence[str],
        *,
        selection: Selection = ALL_RECORDS,
        decompress: bool = True,
        fail_on_data_loss: bool = True,
        most_inflated: int = MAX_INFLATED,
        patience: Patience | None = None,
    ) -> None:
        keep_freed_memory()
        self.skipped = 0
        self._columns = list(columns)
        self._schema = pa.schema([(name, ALL_COLUMNS[name]) for name in columns])
        self._files = files
        self._log = NO_SEGMENTS
        self._broker_name = files.broker_name if "brokerName" in columns else ""
        self._selection = selection
        self._decompress = decompress
        self._strict = fail_on_data_loss
        self._most_inflated = most_inflated
        self._with_bodies = "body" in self._columns
        self._with_heads = selection.needs_heads or not ENTRY_COLUMNS.issuperset(columns)
        self._first_loss: StoreError | None = None
        self._patience = patience or Patience()

    def read_all(self, slices: Iterable[QueueSlice]) -> Iterator[Any]:
        """Return the records of several slices, in their order, as `read` does. Short slices share
        batches: most of what a batch costs does not depend on how many records it has."""
        for group in _groups(slices):
            if len(group) == 1 or self._files.has_log_per_queue:
                for wanted in group:
                    yield from self.read(wanted)
            else:
                yield from self._read_together(group)

    def read(self, wanted: QueueSlice) -> Iterator[Any]:
        """Return the records of a slice as `pyarrow.RecordBatch`es of a few MiB."""
        self._open_log(wanted)
        skipped = self._begin()
        for part in self._ahead(self._parts(wanted)):
            for block in self._blocks(part.queues[0], part.rows):
                yield self._batch(block)
        self._tell(wanted, skipped)

    def _read_together(self, group: Sequence[QueueSlice]) -> Iterator[Any]:
        """Return the records of short slices. A slice of which something is missing is read by
        itself, which tells what."""
        self._open_log(group[0])
        skipped = self._begin()
        try:
            chosen = [(wanted, rows) for wanted in group for rows in self._chosen(wanted)]
        except RecordsLost:
            chosen = None
        if chosen is None or self.skipped > skipped:
            self.skipped = skipped
            for wanted in group:
                yield from self.read(wanted)
            return
        for part in self._ahead(self._joined(chosen) if chosen else iter(())):
            block = self._common_block(part)
            if block is not None:
                if len(block):
                    yield self._batch(block)
                continue
            for number, wanted in enumerate(part.queues):
                skipped = self._begin()
                for block in self._blocks(wanted, part.rows.take(part.queue == number)):
                    yield self._batch(block)
                self._tell(wanted, skipped)

    def _open_log(self, wanted: QueueSlice) -> None:
        if self._log is NO_SEGMENTS or self._files.has_log_per_queue:
            self._log = self._files.log(wanted.topic, wanted.queue_id)

    def _begin(self) -> int:
        """Return how many records were left out before a slice."""
        self._first_loss = None
        return self.skipped

    def _tell(self, wanted: QueueSlice, skipped: int) -> None:
        """Log that records of a slice were left out."""
        if self.skipped > skipped:
            log.warning(
                "%s/%d: left out %d records; the first: %s",
                wanted.topic,
                wanted.queue_id,
                self.skipped - skipped,
                self._first_loss,
            )

    def _parts(self, wanted: QueueSlice) -> Iterator[_Part]:
        """Return the wanted rows, as many together as make a block."""
        limit = _FIRST_ROWS
        for rows in self._chosen(wanted):
            for cut in _cuts(self._cost(rows), limit):
                yield _Part([wanted], rows.take(cut), _NO_QUEUE)
                limit = _BLOCK_ROWS

    def _joined(self, chosen: Sequence[tuple[QueueSlice, Rows]]) -> Iterator[_Part]:
        """Return rows of several queues, as many together as make a block."""
        queues = [wanted for wanted, _ in chosen]
        rows = joined([rows for _, rows in chosen])
        queue = np.repeat(np.arange(len(chosen)), [len(rows.offset) for _, rows in chosen])
        for cut in _cuts(self._cost(rows), _BLOCK_ROWS):
            first, last = queue[cut][[0, -1]].tolist()
            yield _Part(queues[first : last + 1], rows.take(cut), queue[cut] - first)

    def _chosen(self, wanted: QueueSlice) -> Iterator[Rows]:
        """Return the rows that may be wanted, as far as the consume queue tells."""
        return (self._selection.rows(rows, wanted.topic) for rows in self._rows(wanted))

    def _cost(self, rows: Rows) -> Int64Array:
        """Return what each row counts towards the bytes of a block."""
        if not self._with_heads:
            return rows.size
        read = self._log.source.cost(rows.physical, rows.size)
        return np.maximum(rows.size, read // _READ_SHARE)

    def _rows(self, wanted: QueueSlice) -> Iterator[Rows]:
        """Return the wanted rows. A broker that recovers from a crash empties the ends of its
        queues and fills them again, and may replace their files: wait until the planned records
        exist again."""
        left = wanted
        is_final = False  # no recovery was under way before this look

        def lose(count: int, error: RecordsLost) -> None:
            nonlocal left
            if not is_final:
                raise _NotThere
            self._lose(count, error)
            left = left.cut(error.last + 1, left.stop)

        while True:
            segments = self._files.queue(wanted.topic, wanted.queue_id)
            try:
                for rows in left.rows(segments, lose):
                    found = self._filled(wanted, rows, is_final=is_final)
                    # Only records that no queue has an entry of have gaps between them.
                    last = int(rows.offset[-1])
                    holes = last + 1 - left.start - len(rows.offset)
                    self._pass_over(wanted, left.start, last, holes)
                    left = left.cut(int(rows.offset[-1]) + 1, left.stop)
                    is_final = False
                    yield found
                self._pass_over(wanted, left.start, left.stop - 1, left.stop - left.start)
                return
            except _NotThere:
                is_final = self._is_final()

    def _filled(self, wanted: QueueSlice, rows: Rows, *, is_final: bool) -> Rows:
        """Return the rows whose entries are not empty. Raises _NotThere, unless it `is_final`."""
        holes = rows.size == FILLER_SIZE
        if holes.any():
            first, last = rows.offset[holes][[0, -1]].tolist()
            self._pass_over(wanted, first, last, int(holes.sum()))
        empty = (rows.size == 0) & (rows.physical == 0)
        if not empty.any():
            return rows
        if not is_final:
            raise _NotThere
        first, last = rows.offset[empty][[0, -1]].tolist()
        reason = (
            "their entries are empty: the broker lost them in a crash, or the queue was recreated"
        )
        lost = RecordsLost(wanted.topic, wanted.queue_id, first, last, reason)
        self._lose(int(empty.sum()), lost)
        return rows.take(~empty)

    def _pass_over(self, wanted: QueueSlice, first: int, last: int, holes: int) -> None:
        """Count offsets from `first` to `last` that have no message. The repair of the store, or
        the recovery from a crash, has told of them: no reason to fail."""
        if holes > 0:
            reason = (
                "some of these offsets have no message: it was lost in a damaged log or a crash"
            )
            self.skipped += holes
            self._first_loss = self._first_loss or RecordsLost(
                wanted.topic, wanted.queue_id, first, last, reason
            )

    def _is_final(self) -> bool:
        """Return whether no recovery is to put entries back; else wait a little."""
        recovery = self._files.recovery()
        if recovery is None:
            self._patience.end()
            return True
        if self._patience.wait():
            return False
        if recovery == "PERHAPS":  # unknown whether one runs: take it as over
            return True
        raise StoreRecovering(str(self._files), RECOVERY_SECONDS)

    def _ahead(self, parts: Iterator[_Part]) -> Iterator[_Part]:
        """Return the same parts, but begin to read some of them early."""
        coming: deque[_Part] = deque()
        for part in parts:
            if self._with_heads:
                self._log.source.expect(part.rows.physical, part.rows.size)
            coming.append(part)
            if len(coming) > _AHEAD:
                yield coming.popleft()
        yield from coming

    def _batch(self, block: Block) -> Any:
        return pa.RecordBatch.from_arrays(
            [block.column(name) for name in self._columns], schema=self._schema
        )

    def _blocks(self, wanted: QueueSlice, rows: Rows) -> Iterator[Block]:
        """Return the records of `rows` in one block, or in several when they inflate to a lot."""
        skipped = self.skipped
        try:
            block = self._block(wanted, rows)
        except TooLarge:
            self.skipped = skipped
            half = len(rows.offset) // 2
            yield from self._blocks(wanted, rows.take(slice(0, half)))
            yield from self._blocks(wanted, rows.take(slice(half, None)))
        else:
            if len(block):
                yield block

    def _block(self, wanted: QueueSlice, rows: Rows) -> Block:
        records, rows = self._locate(wanted, rows)
        if not self._with_heads:
            return self._of_entries(wanted, rows)
        unread = self._log.source.fetch(rows.physical, rows.size)
        if unread is not None:
            self._lose(int(unread.rows.sum()), unread.error)
            rows, records = rows.take(~unread.rows), records.rows(np.flatnonzero(~unread.rows))
        heads = Heads(records)
        fields, bodies, texts = heads.fields, heads.body, heads.properties
        good = heads.good & (fields["physical_offset"] == rows.physical)
        # Light queues hold records that name the queue they were sent to.
        if not wanted.topic.startswith(LIGHT_QUEUE_PREFIX):
            good &= fields["queue_id"] == wanted.queue_id
            good &= fields["queue_offset"] == rows.offset
            good = _have(heads.topic, wanted.topic.encode(), good)
        if not good.all():
            self._report(wanted, rows, ~good)
        chosen = self._selection.heads(fields)
        kept = good if chosen is None else good & chosen
        if not kept.all():
            number = np.flatnonzero(kept)
            rows, fields = rows.take(kept), fields[number]
            bodies, texts = bodies.rows(number), texts.rows(number)
        block = Block(
            self._broker_name,
            wanted.topic,
            wanted.queue_id,
            rows.offset,
            fields,
            texts,
            decompress=self._decompress,
        )
        if self._with_bodies:
            read = read_bodies(
                bodies, fields, inflate=self._decompress, most_inflated=self._most_inflated
            )
            block.bodies = read.values
            if read.broken.any():
                self._report(wanted, rows, read.broken, read.reasons)
                block = block.without(read.broken)
        return block

    def _common_block(self, part: _Part) -> Block | None:
        """Return records of several queues in one block; None if some are not as they should be, or
        inflate to a lot."""
        rows = part.rows
        try:
            records, inside = locate(self._log, rows.physical, rows.size)
        except FileNotFoundError:
            return None
        if not inside.all():
            return None
        if not self._with_heads:
            return self._block_of(part, slice(None), _fields_of(rows), NO_PLACES)
        if self._log.source.fetch(rows.physical, rows.size) is not None:
            return None
        heads = Heads(records)
        fields, bodies, texts = heads.fields, heads.body, heads.properties
        good = heads.good & (fields["physical_offset"] == rows.physical)
        good &= (fields["queue_id"] == part.queue_ids()) & (fields["queue_offset"] == rows.offset)
        if not good.all() or not part.have_topics(heads.topic):
            return None
        number: slice | npt.NDArray[np.intp] = slice(None)
        chosen = self._selection.heads(fields)
        if chosen is not None and not chosen.all():
            number = np.flatnonzero(chosen)
            fields, bodies, texts = fields[number], bodies.rows(number), texts.rows(number)
        block = self._block_of(part, number, fields, texts)
        if self._with_bodies:
            try:
                read = read_bodies(
                    bodies, fields, inflate=self._decompress, most_inflated=self._most_inflated
                )
            except TooLarge:
                return None
            if read.broken.any():
                return None
            block.bodies = read.values
        return block

    def _block_of(
        self,
        part: _Part,
        row: slice | npt.NDArray[np.intp],
        fields: npt.NDArray[Any],
        texts: Places,
    ) -> Block:
        """Return some rows of several queues as a block."""
        queue = part.queue[row]
        topics = pa.array([wanted.topic for wanted in part.queues], pa.string())
        return Block(
            self._broker_name,
            topics.take(pa.array(queue)),
            part.queue_ids()[row],
            part.rows.offset[row],
            fields,
            texts,
            decompress=self._decompress,
        )

    def _of_entries(self, wanted: QueueSlice, rows: Rows) -> Block:
        """Return the records as the consume queue has them. The log is not read: a page of it for
        each record would come from the disk."""
        return Block(
            self._broker_name,
            wanted.topic,
            wanted.queue_id,
            rows.offset,
            _fields_of(rows),
            NO_PLACES,
            decompress=self._decompress,
        )

    def _locate(self, wanted: QueueSlice, rows: Rows) -> tuple[Places, Rows]:
        """Return the positions of records in the mapped files, and the rows found in any."""
        while True:
            gone = (self._log.indexes(rows.physical) < 0) & (rows.physical >= 0)
            left = rows.take(~gone) if gone.any() else rows
            try:
                records, inside = locate(self._log, left.physical, left.size)
                break
            except FileNotFoundError:  # removed since it was listed
                self._log = self._files.log(wanted.topic, wanted.queue_id)
        if gone.any():
            first, last = rows.offset[gone][[0, -1]].tolist()
            reason = f"the commit log begins at {self._log.begin}"
            lost = RecordsLost(wanted.topic, wanted.queue_id, first, last, reason)
            self._lose(int(gone.sum()), lost)
        rows = left
        if not inside.all():
            self._lose(int((~inside).sum()), self._outside(wanted, rows.take(~inside)))
            rows = rows.take(inside)
        return records, rows

    def _outside(self, wanted: QueueSlice, rows: Rows) -> StoreError:
        """Return the error for rows outside of the log's files."""
        offset, physical, size = (int(column[0]) for column in rows[:3])
        if self._log.begin <= physical < self._log.end and self._log.find(physical) is None:
            last = int(rows.offset[-1])
            reason = f"no file in {self._log.where} has the physical offset {physical}"
            return RecordsLost(wanted.topic, wanted.queue_id, offset, last, reason)
        path, at = entry_place(self._files, wanted, offset)
        reason = f"an entry for {size} bytes at {physical}, outside the commit log"
        return StoreCorrupt(path, at, reason)

    def _report(
        self, wanted: QueueSlice, rows: Rows, bad: _Mask, reasons: Mapping[int, str] = _NO_REASONS
    ) -> None:
        """Drop the `bad` rows. If the first has no reason, the codec is asked for one."""
        row = int(np.argmax(bad))
        physical, offset = int(rows.physical[row]), int(rows.offset[row])
        segment = self._log.find(physical)
        assert segment is not None, "the record was located"
        at = physical - segment.base
        reason = reasons.get(row) or _why(segment.view[: at + int(rows.size[row])], at)
        error = StoreCorrupt(
            segment.path,
            at,
            f"{wanted.topic}/{wanted.queue_id} has its record {offset} here (physical offset "
            f"{physical}), but found: {reason}",
        )
        self._lose(int(bad.sum()), error)

    def _lose(self, count: int, error: StoreError) -> None:
        if self._strict:
            raise error
        self.skipped += count
        self._first_loss = self._first_loss or error


def _have(values: Places, value: bytes, rows: _Mask) -> _Mask:
    """Return which of these rows have a value; the places of the others may be anywhere."""
    number = np.flatnonzero(rows & (values.length == len(value)))
    same = pc.equal(values.rows(number).gather(), pa.scalar(value))
    found = np.zeros(len(rows), np.bool_)
    found[number] = same.to_numpy(zero_copy_only=False)
    return found


def _fields_of(rows: Rows) -> npt.NDArray[Any]:
    """Return what entries of a consume queue say of records, as heads say it."""
    fields = np.empty(len(rows.offset), _OF_ENTRIES)
    fields["physical_offset"] = rows.physical
    fields["size"] = rows.size
    return fields


class _NotThere(Exception):
    """Entries that were there at planning time are missing."""


def _why(view: memoryview, at: int) -> str:
    """Return what is wrong with the record at the end of `view`, which is not the expected one."""
    try:
        (_, _, _, queue_id, _, offset, *_), _, topic, _ = decode_parts(view, at)
    except RecordError as error:
        return error.reason
    return f"the record of {topic}/{queue_id} offset {offset}"


def _groups(slices: Iterable[QueueSlice]) -> Iterator[list[QueueSlice]]:
    """Return the slices in their order: short ones together, as many as have the records of a
    block, and others alone."""
    group: list[QueueSlice] = []
    records, limit = 0, _FIRST_ROWS
    for wanted in slices:
        is_short = len(wanted) <= _SHORT and not wanted.topic.startswith(LIGHT_QUEUE_PREFIX)
        if group and (not is_short or records >= limit):
            yield group
            group, records, limit = [], 0, _BLOCK_ROWS
        if is_short:
            group.append(wanted)
            records += len(wanted)
        else:
            yield [wanted]
    if group:
        yield group


def _cuts(cost: Int64Array, limit: int) -> Iterator[slice]:
    """Return the rows of these costs in pieces of at most `BLOCK_BYTES` (or one record); the first
    has `limit` rows."""
    before = np.cumsum(cost) - cost
    start = 0
    while start < len(cost):
        stop = int(np.searchsorted(before, before[start] + BLOCK_BYTES, side="left"))
        stop = min(max(stop, start + 1), start + limit)
        yield slice(start, stop)
        start = stop
        limit = _BLOCK_ROWS
