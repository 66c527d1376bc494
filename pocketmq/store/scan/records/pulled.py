"""Makes Arrow record batches of records that a broker has sent, as it stores them.

They are taken apart as those of files are (`reader`), so they give the same rows. The difference is
how records are found: they follow one another, and no consume queue says what to expect.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.message import properties as names
from pocketmq.message.buffers import ReadableBuffer
from pocketmq.message.record_layout import MIN_RECORD
from pocketmq.store.encoding.index_keys import alike_from
from pocketmq.store.scan.errors import PulledCorrupt
from pocketmq.store.scan.freed_memory import keep_freed_memory
from pocketmq.store.scan.queues.queue_slice import Rows
from pocketmq.store.scan.queues.queue_snapshot import placed_by
from pocketmq.store.scan.queues.segments import ByteArray, Int64Array
from pocketmq.store.scan.queues.selection import ALL_RECORDS, Selection
from pocketmq.store.scan.records.bodies import MAX_INFLATED, TooLarge, read_bodies
from pocketmq.store.scan.records.columns import ALL_COLUMNS, Block
from pocketmq.store.scan.records.gather import Places
from pocketmq.store.scan.records.heads import Heads
from pocketmq.store.scan.stream_offsets import Mark

_SIZE: Final = struct.Struct(">i")
_ALIKE: Final = 8
"""Records of one size after which it is worth while to ask for more of them."""


def mark_of(records: ReadableBuffer) -> Mark:
    """Return the mark of the first of some records."""
    _, offset, physical, stored = placed_by(memoryview(records))
    return Mark(offset, physical, stored)


class PulledQueue(NamedTuple):
    """The queue that records come from."""

    broker: str
    topic: str
    queue_id: int


class PulledReader:
    """Makes record batches of records.

    Args:
        columns: names of columns, in the order wanted.
        lose: called with a number and an error for records that are corrupt; may raise.
        selection: which records.
        tags: those that are wanted, None for all. (Brokers compare hashes of tags.)
        decompress: whether bodies are given decompressed.
        most_inflated: bytes of decompressed bodies in one batch, unless a single body has more.

    Attributes:
        seen: how many of the offsets that were asked for have brought a record.
    """

    def __init__(
        self,
        columns: Sequence[str],
        lose: Callable[[int, PulledCorrupt], None],
        *,
        selection: Selection = ALL_RECORDS,
        tags: frozenset[str] | None = None,
        decompress: bool = True,
        most_inflated: int = MAX_INFLATED,
    ) -> None:
        keep_freed_memory()
        self.seen = 0
        self._columns = list(columns)
        self._schema = pa.schema([(name, ALL_COLUMNS[name]) for name in columns])
        self._lose = lose
        self._selection = selection
        self._tags = None if tags is None else pa.array(sorted(tags), pa.string())
        self._decompress = decompress
        self._most_inflated = most_inflated
        self._with_bodies = "body" in self._columns

    def read(
        self, queue: PulledQueue, answers: Sequence[ReadableBuffer], start: int, stop: int
    ) -> Iterator[Any]:
        """Return the records with queue offsets in [start, stop) as `pyarrow.RecordBatch`es.

        Args:
            answers: records of the queue, one after another and in order.
        """
        buffers: list[ByteArray] = [np.frombuffer(answer, np.uint8) for answer in answers]
        offsets: list[Int64Array] = []
        lengths: list[Int64Array] = []
        for answer in answers:
            found, end = _split(memoryview(answer))
            begins = np.array(found, np.int64)
            offsets.append(begins)
            lengths.append(np.diff(begins, append=end))
            if end != len(answer):
                reason = "an answer of the broker does not consist of records"
                self._lose(1, PulledCorrupt(*queue, start, reason))
        if not any(map(len, offsets)):
            return
        places = Places(
            buffers,
            np.repeat(np.arange(len(offsets)), list(map(len, offsets))),
            np.concatenate(offsets),
            np.concatenate(lengths),
        )
        for block in self._blocks(queue, places, start, stop):
            yield pa.RecordBatch.from_arrays(
                [block.column(name) for name in self._columns], schema=self._schema
            )

    def _blocks(
        self, queue: PulledQueue, records: Places, start: int, stop: int
    ) -> Iterator[Block]:
        """Return the records in one block, or in several when they inflate to a lot."""
        try:
            block = self._block(queue, records, start, stop)
        except TooLarge:
            half = len(records.offset) // 2
            yield from self._blocks(queue, records.rows(np.arange(half)), start, stop)
            rest = np.arange(half, len(records.offset))
            yield from self._blocks(queue, records.rows(rest), start, stop)
        else:
            if len(block):
                yield block

    def _block(self, queue: PulledQueue, records: Places, start: int, stop: int) -> Block:
        heads = Heads(records)
        fields, bodies, texts = heads.fields, heads.body, heads.properties
        losses: list[tuple[int, PulledCorrupt]] = []
        good = heads.good & (fields["queue_id"] == queue.queue_id)
        offset = fields["queue_offset"].astype(np.int64)
        # An official broker that reads ahead in its files may begin before the requested offset.
        wanted = (offset >= start) & (offset < stop)
        if not good.all():
            first = int(offset[good][0]) if good.any() else start
            reason = "the broker sent something that is no record of this queue"
            losses.append((int((~good).sum()), PulledCorrupt(*queue, first, reason)))
        wanted &= good
        seen = int(wanted.sum())
        rows = Rows(
            offset,
            fields["physical_offset"].astype(np.int64),
            fields["size"].astype(np.int64),
            None,
        )
        for mask in (self._selection.offsets(rows), self._selection.heads(fields)):
            if mask is not None:
                wanted &= mask
        if not wanted.all():
            fields, bodies, texts, offset = _chosen(wanted, fields, bodies, texts, offset)
        block = self._of(queue, offset, fields, texts)
        if self._tags is not None:
            tagged = pc.is_in(block.properties.column(names.TAGS), value_set=self._tags)
            mask = tagged.to_numpy(zero_copy_only=False)
            if not mask.all():
                fields, bodies, texts, offset = _chosen(mask, fields, bodies, texts, offset)
                block = self._of(queue, offset, fields, texts)
        if self._with_bodies:
            read = read_bodies(
                bodies, fields, inflate=self._decompress, most_inflated=self._most_inflated
            )
            block.bodies = read.values
            if read.broken.any():
                row = int(np.argmax(read.broken))
                reason = read.reasons.get(row, "the body does not fit its CRC")
                error = PulledCorrupt(*queue, int(offset[row]), reason)
                losses.append((int(read.broken.sum()), error))
                block = block.without(read.broken)
        # Only now: a block that is too large is made again in halves.
        self.seen += seen
        for loss in losses:
            self._lose(*loss)
        return block

    def _of(
        self, queue: PulledQueue, offset: npt.NDArray[np.int64], fields: Any, texts: Places
    ) -> Block:
        return Block(
            queue.broker,
            queue.topic,
            queue.queue_id,
            offset,
            fields,
            texts,
            decompress=self._decompress,
        )


def _split(answer: memoryview) -> tuple[list[int], int]:
    """Return where the records of an answer begin, and where the last whole one ends.

    A record says how long it is. Those of a producer are often of one length, and are then stepped
    over many at a time.
    """
    begins: list[int] = []
    at, size, end = 0, 0, len(answer)
    alike = 0  # records of one size before `at`
    while end - at >= MIN_RECORD:
        before, size = size, _SIZE.unpack_from(answer, at)[0]
        if size < MIN_RECORD or size > end - at:
            break
        begins.append(at)
        at += size
        alike = alike + 1 if size == before else 0
        if alike == _ALIKE:
            alike = 0
            count = alike_from(answer, at, size, (end - at) // size)
            begins += range(at, at + count * size, size)
            at += count * size
    return begins, at


def _chosen(
    mask: npt.NDArray[np.bool_],
    fields: npt.NDArray[Any],
    bodies: Places,
    texts: Places,
    offset: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[Any], Places, Places, npt.NDArray[np.int64]]:
    number = np.flatnonzero(mask)
    return fields[number], bodies.rows(number), texts.rows(number), offset[number]
