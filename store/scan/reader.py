"""Reads slices of queues into Arrow record batches.

The way of a block: entries of the consume queue say where records lie; their heads are gathered
and checked; what the selection does not want is left out; bodies are checked against their CRC and
decompressed; then each column that was asked for is made, and nothing else is read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from message.checksum import CRC_MASK, crc32
from message.compression import CompressionError, decompress
from message.record import RecordError, decode
from message.sysflag import COMPRESSED
from store.errors import StoreCorrupt, StoreError
from store.scan.columns import ALL_COLUMNS, Block
from store.scan.errors import RecordsLost
from store.scan.gather import Places
from store.scan.heads import Heads, locate
from store.scan.queue_slice import QueueSlice, Rows
from store.scan.segments import Int64Array, Segments
from store.scan.selection import ALL_RECORDS, Selection
from store.scan.snapshot import LIGHT_QUEUE_PREFIX

log = logging.getLogger(__name__)

BLOCK_BYTES: Final = 4 * 1024 * 1024
_BLOCK_ROWS: Final = 16_384
_FIRST_ROWS: Final = 256
"""The first block is small: a LIMIT is often done with it."""

_MAX_INFLATED: Final = 128 * 1024 * 1024
"""Bytes of decompressed bodies in one block, unless a single body has more."""

_Mask = npt.NDArray[np.bool_]


class _TooLargeError(Exception):
    """The bodies of a block inflate to more than a block should have."""


class SliceReader:
    """Reads slices of the store at `root`.

    Args:
        columns: names of columns, in the order wanted.
        selection: which records.
        decompress: whether bodies are given decompressed.
        fail_on_data_loss: raise at the first record that is gone or corrupt; else leave such
            records out, count them in `skipped`, and log each slice that has any.

    Raises (while iterating):
        StoreCorrupt: a record is not what it should be; names the file and the byte.
        RecordsLost: files that were there at planning time are gone.
    """

    def __init__(
        self,
        root: Path,
        columns: Sequence[str],
        *,
        selection: Selection = ALL_RECORDS,
        decompress: bool = True,
        fail_on_data_loss: bool = True,
    ) -> None:
        self.skipped = 0
        self._columns = list(columns)
        self._schema = pa.schema([(name, ALL_COLUMNS[name]) for name in columns])
        self._log = Segments(root / "commitlog")
        self._selection = selection
        self._decompress = decompress
        self._strict = fail_on_data_loss
        self._with_bodies = "body" in self._columns
        self._first_loss: StoreError | None = None

    def read(self, wanted: QueueSlice) -> Iterator[Any]:
        """The records of a slice as `pyarrow.RecordBatch`es of a few MiB."""
        skipped = self.skipped
        self._first_loss = None
        limit = _FIRST_ROWS
        try:
            for rows in wanted.rows():
                chosen = self._selection.rows(rows, wanted.topic)
                for part in _parts(chosen, limit):
                    for block in self._blocks(wanted, part):
                        yield self._batch(block)
                    limit = _BLOCK_ROWS
        except RecordsLost as error:
            self._lose(error.last - error.first + 1, error)
        if self.skipped > skipped:
            log.warning(
                "%s/%d: left out %d records; the first: %s",
                wanted.topic,
                wanted.queue_id,
                self.skipped - skipped,
                self._first_loss,
            )

    def _batch(self, block: Block) -> Any:
        return pa.RecordBatch.from_arrays(
            [block.column(name) for name in self._columns], schema=self._schema
        )

    def _blocks(self, wanted: QueueSlice, rows: Rows) -> Iterator[Block]:
        """The records of `rows` in one block, or in several where they inflate to very much."""
        skipped = self.skipped
        try:
            block = self._block(wanted, rows)
        except _TooLargeError:
            self.skipped = skipped
            half = len(rows.offset) // 2
            yield from self._blocks(wanted, rows.take(slice(0, half)))
            yield from self._blocks(wanted, rows.take(slice(half, None)))
        else:
            if len(block):
                yield block

    def _block(self, wanted: QueueSlice, rows: Rows) -> Block:
        records, rows = self._locate(wanted, rows)
        heads = Heads(records)
        fields = heads.fields
        good = heads.good & (fields["physical_offset"] == rows.physical)
        if not wanted.topic.startswith(
            LIGHT_QUEUE_PREFIX
        ):  # light queues hold records of other queues
            good &= fields["queue_id"] == wanted.queue_id
            good &= fields["queue_offset"] == rows.offset
        if not good.all():
            self._report(wanted, rows, ~good)
        chosen = self._selection.heads(fields)
        kept = good if chosen is None else good & chosen
        bodies = heads.body
        plain = np.zeros(len(fields), np.bool_)
        if self._with_bodies:
            bodies, kept, plain = self._bodies(wanted, rows, heads, kept)
        if kept.all():
            return Block(
                wanted.topic, wanted.queue_id, rows.offset, fields, bodies, heads.properties, plain
            )
        number = np.flatnonzero(kept)
        return Block(
            wanted.topic,
            wanted.queue_id,
            rows.offset[number],
            fields[number],
            bodies.rows(number),
            heads.properties.rows(number),
            plain[number],
        )

    def _locate(self, wanted: QueueSlice, rows: Rows) -> tuple[Places, Rows]:
        """Where the records lie in the mapped files, and the rows that lie in any."""
        gone = (self._log.indexes(rows.physical) < 0) & (rows.physical >= 0)
        if gone.any():
            first, last = rows.offset[gone][[0, -1]].tolist()
            reason = f"the commit log begins at {self._log.begin}"
            lost = RecordsLost(wanted.topic, wanted.queue_id, first, last, reason)
            self._lose(int(gone.sum()), lost)
            rows = rows.take(~gone)
        records, inside = locate(self._log, rows.physical, rows.size)
        if not inside.all():
            row = int(np.argmin(inside))
            physical, size = int(rows.physical[row]), int(rows.size[row])
            reason = f"an entry for {size} bytes at {physical}, where no record can be"
            path, at = wanted.entry_place(int(rows.offset[row]))
            self._lose(int((~inside).sum()), StoreCorrupt(path, at, reason))
            rows = rows.take(inside)
        return records, rows

    def _bodies(
        self, wanted: QueueSlice, rows: Rows, heads: Heads, kept: _Mask
    ) -> tuple[Places, _Mask, _Mask]:
        """Check bodies, and decompress them: where they lie then, which rows are left, and which
        were decompressed."""
        bodies = heads.body
        number = np.flatnonzero(kept)
        if len(number) < len(kept):
            crc = np.zeros(len(kept), np.int64)
            crc[number] = _checksums(bodies.rows(number))
        else:
            crc = _checksums(bodies)
        # The reference takes a record without body as it is.
        broken = kept & (crc != heads.fields["body_crc"]) & (bodies.length > 0)
        if broken.any():
            self._report(wanted, rows, broken)
            kept = kept & ~broken
        plain = np.zeros(len(kept), np.bool_)
        compressed = np.flatnonzero(kept & ((heads.fields["sys_flag"] & COMPRESSED) != 0))
        if self._decompress and len(compressed):
            kept = kept.copy()
            texts = bodies.rows(compressed).gather().to_pylist()
            values: list[bytes] = []
            inflated = 0
            for row, text in zip(compressed.tolist(), texts, strict=True):
                try:
                    values.append(decompress(text, int(heads.fields["sys_flag"][row])))
                except CompressionError as error:
                    self._lose(1, self._corrupt(wanted, rows, row, str(error)))
                    values.append(b"")
                    kept[row] = False
                inflated += len(values[-1])
                if inflated > _MAX_INFLATED and len(rows.offset) > 1:
                    raise _TooLargeError
            bodies = bodies.replaced(compressed, values)
            plain[compressed] = True
        return bodies, kept, plain

    def _report(self, wanted: QueueSlice, rows: Rows, bad: _Mask) -> None:
        first = int(np.argmax(bad))
        self._lose(int(bad.sum()), self._corrupt(wanted, rows, first, None))

    def _corrupt(
        self, wanted: QueueSlice, rows: Rows, row: int, reason: str | None
    ) -> StoreCorrupt:
        """The error for one record. Without `reason`, the record's codec is asked for one."""
        physical, offset = int(rows.physical[row]), int(rows.offset[row])
        segment = self._log.find(physical)
        assert segment is not None, "the record was located"
        at = physical - segment.base
        if reason is None:
            try:
                record = decode(segment.view[: at + int(rows.size[row])], at)
            except RecordError as error:
                reason = error.reason
            else:
                reason = (
                    f"the record of {record.topic}/{record.queue_id} offset {record.queue_offset}"
                )
        return StoreCorrupt(
            segment.path,
            at,
            f"{wanted.topic}/{wanted.queue_id} has its record {offset} here (physical offset "
            f"{physical}), but found: {reason}",
        )

    def _lose(self, count: int, error: StoreError) -> None:
        if self._strict:
            raise error
        self.skipped += count
        self._first_loss = self._first_loss or error


def _parts(rows: Rows, limit: int) -> Iterator[Rows]:
    """`rows` in pieces of at most `BLOCK_BYTES` (or one record); the first has `limit` rows."""
    before = np.cumsum(rows.size) - rows.size
    start = 0
    while start < len(rows.offset):
        stop = int(np.searchsorted(before, before[start] + BLOCK_BYTES, side="left"))
        stop = min(max(stop, start + 1), start + limit)
        yield rows.take(slice(start, stop))
        start = stop
        limit = _BLOCK_ROWS


def _checksums(bodies: Places) -> Int64Array:
    """The CRCs of bodies. The loop over them runs in C: map, slice and crc32 are all builtins."""
    found = np.zeros(len(bodies.offset), np.int64)
    end = bodies.offset + bodies.length
    for number, source in enumerate(bodies.buffers):
        rows = np.flatnonzero(bodies.buffer == number)
        slices = map(slice, bodies.offset[rows].tolist(), end[rows].tolist())
        found[rows] = np.fromiter(
            map(crc32, map(source.data.__getitem__, slices)), np.int64, len(rows)
        )
    return found & CRC_MASK
