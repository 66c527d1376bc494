"""Reads slices of queues into Arrow record batches.

The way of a block: entries of the consume queue say where records lie; their heads are gathered
and checked; what the selection does not want is left out; bodies are checked against their CRC and
decompressed; then each column that was asked for is made, and nothing else is read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

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
from pocketmq.store.scan.queues.queue_slice import FILLER_SIZE, QueueSlice, Rows
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

_AHEAD: Final = 4
"""Blocks that are being read while an earlier one is taken apart."""

_READ_SHARE: Final = 8
"""How many times the bytes of its records a block may have to read. Records of many queues lie
between each other, and small blocks are slow to take apart."""

_NO_REASONS: Final[Mapping[int, str]] = MappingProxyType({})

# What the columns of `ENTRY_COLUMNS` are made of.
_OF_ENTRIES: Final = np.dtype([("physical_offset", np.int64), ("size", np.int32)])

_Mask = npt.NDArray[np.bool_]


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
        StoreCorrupt: a record is not what it should be; names the file and the byte.
        RecordsLost: files that were there at planning time are gone.
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

    def read(self, wanted: QueueSlice) -> Iterator[Any]:
        """Return the records of a slice as `pyarrow.RecordBatch`es of a few MiB."""
        skipped = self.skipped
        self._first_loss = None
        if self._log is NO_SEGMENTS or self._files.has_log_per_queue:
            self._log = self._files.log(wanted.topic, wanted.queue_id)
        for part in self._ahead(self._parts(wanted)):
            for block in self._blocks(wanted, part):
                yield self._batch(block)
        if self.skipped > skipped:
            log.warning(
                "%s/%d: left out %d records; the first: %s",
                wanted.topic,
                wanted.queue_id,
                self.skipped - skipped,
                self._first_loss,
            )

    def _parts(self, wanted: QueueSlice) -> Iterator[Rows]:
        """Return the wanted rows, as many together as make a block."""
        limit = _FIRST_ROWS
        for rows in self._rows(wanted):
            chosen = self._selection.rows(rows, wanted.topic)
            cost: Int64Array = chosen.size
            if self._with_heads:
                read = self._log.source.cost(chosen.physical, chosen.size)
                cost = np.maximum(cost, read // _READ_SHARE)
            for part in _parts(chosen, cost, limit):
                yield part
                limit = _BLOCK_ROWS

    def _rows(self, wanted: QueueSlice) -> Iterator[Rows]:
        """Return the wanted rows. A broker that recovers from a crash empties the ends of its
        queues and fills them again, and may replace their files: wait until what was planned is
        there again."""
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
        if recovery == "PERHAPS":  # where nobody can tell, it may as well be over
            return True
        raise StoreRecovering(str(self._files), RECOVERY_SECONDS)

    def _ahead(self, parts: Iterator[Rows]) -> Iterator[Rows]:
        """Return the same parts, but begin to read some of them early."""
        coming: deque[Rows] = deque()
        for part in parts:
            if self._with_heads:
                self._log.source.expect(part.physical, part.size)
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

    def _of_entries(self, wanted: QueueSlice, rows: Rows) -> Block:
        """Return the records as the consume queue has them. The log is not read: a page of it for
        each record would come from the disk."""
        fields = np.empty(len(rows.offset), _OF_ENTRIES)
        fields["physical_offset"] = rows.physical
        fields["size"] = rows.size
        return Block(
            self._broker_name,
            wanted.topic,
            wanted.queue_id,
            rows.offset,
            fields,
            NO_PLACES,
            decompress=self._decompress,
        )

    def _locate(self, wanted: QueueSlice, rows: Rows) -> tuple[Places, Rows]:
        """Return where the records lie in the mapped files, and the rows that lie in any."""
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
        """Return the error for rows that lie in no file of the log."""
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
        """Lose the `bad` rows. Where there is no reason for the first, the codec is asked."""
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


class _NotThere(Exception):
    """Entries that were there at planning time are missing."""


def _why(view: memoryview, at: int) -> str:
    """Return what is wrong with the record at the end of `view`, which is not the expected one."""
    try:
        (_, _, _, queue_id, _, offset, *_), _, topic, _ = decode_parts(view, at)
    except RecordError as error:
        return error.reason
    return f"the record of {topic}/{queue_id} offset {offset}"


def _parts(rows: Rows, cost: Int64Array, limit: int) -> Iterator[Rows]:
    """`rows` in pieces that cost at most `BLOCK_BYTES` (or one record); the first has `limit`
    rows."""
    before = np.cumsum(cost) - cost
    start = 0
    while start < len(rows.offset):
        stop = int(np.searchsorted(before, before[start] + BLOCK_BYTES, side="left"))
        stop = min(max(stop, start + 1), start + limit)
        yield rows.take(slice(start, stop))
        start = stop
        limit = _BLOCK_ROWS
