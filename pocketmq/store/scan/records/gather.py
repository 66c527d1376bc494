"""Collects byte ranges scattered over mapped files into Arrow arrays without a loop over them.

The ranges are described as the 16-byte views of Arrow's `binary_view` type, built as one numpy
array over the mapped files; casting that to `binary` copies them in C++ at the speed of memory.
Values of up to 12 bytes are in the view itself, so numpy copies those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pocketmq.store.scan.queues.segments import ByteArray, Int64Array

_VIEW: Final = np.dtype([("length", "<i4"), ("inline", "V12")])
# The same 16 bytes of a value that does not fit: the first four bytes of the value (which a cast
# does not look at), then where it lies.
_VIEW_APART: Final = np.dtype(
    [("length", "<i4"), ("prefix", "<i4"), ("buffer", "<i4"), ("offset", "<i4")]
)
_INLINE: Final = 12


class Places:
    """Ranges of bytes in several buffers: row i is `length[i]` bytes at `offset[i]` of the buffer
    number `buffer[i]`. Offsets are below 2^31, as the files of a store are."""

    def __init__(
        self,
        buffers: Sequence[ByteArray],
        buffer: npt.NDArray[np.intp],
        offset: Int64Array,
        length: Int64Array,
    ) -> None:
        self.buffers = buffers
        self.buffer = buffer
        self.offset = offset
        self.length = length

    def rows(self, rows: npt.NDArray[np.intp]) -> Places:
        """Return the ranges with these numbers."""
        return Places(self.buffers, self.buffer[rows], self.offset[rows], self.length[rows])

    def replaced(self, rows: npt.NDArray[np.intp], values: Sequence[bytes]) -> Places:
        """Return the same ranges, but `rows` have `values`."""
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        extra = np.frombuffer(b"".join(values), np.uint8)
        buffer, offset, length = self.buffer.copy(), self.offset.copy(), self.length.copy()
        buffer[rows] = len(self.buffers)
        offset[rows] = np.cumsum(lengths) - lengths
        length[rows] = lengths
        return Places((*self.buffers, extra), buffer, offset, length)

    def bytes_at(self, distance: Int64Array | int) -> ByteArray:
        """For each range the one byte `distance` after its begin (within the same buffer)."""
        at = self.offset + distance
        found: ByteArray
        if len(self.buffers) == 1:
            found = self.buffers[0][at]
            return found
        found = np.empty(len(at), np.uint8)
        for number, source in enumerate(self.buffers):
            rows = self.buffer == number
            found[rows] = source[at[rows]]
        return found

    def gather(self) -> Any:
        """Return the ranges as a pyarrow `binary` array. Together they must be below 2 GiB."""
        views = np.empty(len(self.offset), _VIEW_APART)
        views["length"] = self.length
        views["prefix"] = 0
        views["buffer"] = self.buffer
        views["offset"] = self.offset
        short = np.flatnonzero(self.length <= _INLINE)
        if len(short):
            self._put_inline(views.view(_VIEW), short)
        array = pa.Array.from_buffers(
            pa.binary_view(),
            len(views),
            [None, pa.py_buffer(views), *(pa.py_buffer(source) for source in self.buffers)],
        )
        return array.cast(pa.binary())

    def _put_inline(self, views: npt.NDArray[Any], short: npt.NDArray[np.intp]) -> None:
        for number, source in enumerate(self.buffers):
            rows = short[self.buffer[short] == number]
            if not len(rows):
                continue
            columns = np.arange(_INLINE)
            # Reading past a value is harmless, reading past the buffer is not.
            at = np.minimum(self.offset[rows, None] + columns, max(len(source) - 1, 0))
            inline = source[at] if len(source) else np.zeros(at.shape, np.uint8)
            inline[columns >= self.length[rows, None]] = 0
            views["inline"][rows] = inline.view("V12")[:, 0]


NO_PLACES: Final = Places((), np.empty(0, np.intp), np.empty(0, np.int64), np.empty(0, np.int64))


def fixed_rows(places: Places, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Ranges of one length (> 12) as an array of a structured dtype of that length."""
    data = places.gather().buffers()[2]
    return np.frombuffer(data, dtype, len(places.offset))


def content(array: Any) -> tuple[ByteArray, npt.NDArray[np.int32]]:
    """Return the bytes of all values of a `binary` or `string` array that begins at 0, and the
    offsets of the values within them (one more than there are values)."""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(array) + 1)
    if data is None:
        return np.empty(0, np.uint8), bounds
    return np.frombuffer(data, np.uint8, int(bounds[-1])), bounds
