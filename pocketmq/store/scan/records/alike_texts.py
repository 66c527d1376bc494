"""Properties texts that name the same properties in the same order, as neighbours in a queue nearly
always do.

Then one record gives the names for all. Only the values are copied, and every n-th of them makes a
column of n properties.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pocketmq.store.scan.queues.segments import ByteArray

_IntArray = npt.NDArray[np.int64]

_WORD: Final = np.dtype("<u8")
_SIZE: Final = _WORD.itemsize


class AlikeTexts:
    """The entries of all texts: `names` are those of each, `values` a string array of all."""

    def __init__(self, names: tuple[bytes, ...], values: Any) -> None:
        self._names = names
        self._values = values
        self._rows = len(values) // len(names)

    def column(self, name: str) -> Any:
        """Return the values of one property, null in all records if none has it."""
        if (encoded := name.encode()) not in self._names:
            return pa.nulls(self._rows, pa.string())
        numbers = np.arange(self._names.index(encoded), len(self._values), len(self._names))
        return self._values.take(pa.array(numbers))

    def maps(self, kind: Any) -> Any:
        """All properties as an array of the Arrow map type `kind` (string to string)."""
        lengths = np.tile(np.array([len(name) for name in self._names], np.int32), self._rows)
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        content = np.tile(np.frombuffer(b"".join(self._names), np.uint8), self._rows)
        names = pa.Array.from_buffers(
            pa.string(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(content)]
        )
        begins = np.arange(0, len(lengths) + 1, len(self._names), dtype=np.int32)
        return pa.MapArray.from_arrays(pa.array(begins), names, self._values, type=kind)


def alike(
    data: ByteArray, bounds: npt.NDArray[np.int32], separators: _IntArray
) -> AlikeTexts | None:
    """Return the entries of all texts, which lie in `data` between consecutive `bounds`; None if
    they are not alike. The `separators` are the places of all 0x01 and 0x02, which take turns."""
    rows = len(bounds) - 1
    each, rest = divmod(len(separators), 2 * max(rows, 1))
    if rest or not each or bounds[1] < _SIZE:
        return None
    places = separators.reshape(rows, 2 * each)
    # Each text ends with its last separator, so all have as many.
    if not np.array_equal(places[:, -1], bounds[1:] - 1):
        return None
    name_ends = places[:, 0::2]
    name_begins = np.empty((rows, each), np.int64)
    name_begins[:, 0] = bounds[:-1]
    name_begins[:, 1:] = places[:, 1:-1:2] + 1
    name_lengths = name_ends - name_begins
    lengths = name_lengths[0]
    value_lengths = places[:, 1::2] - name_ends - 1
    # Entries without a name or a value do not count.
    if not (lengths.all() and (name_lengths == lengths).all() and value_lengths.all()):
        return None
    names = tuple(
        data[begin:end].tobytes()
        for begin, end in zip(name_begins[0].tolist(), name_ends[0].tolist(), strict=True)
    )
    # Of equal names the last one would win.
    if len(set(names)) < each or not _same(data, name_ends[1:], names):
        return None
    return AlikeTexts(names, _values(data, value_lengths, lengths))


def _same(data: ByteArray, ends: _IntArray, names: tuple[bytes, ...]) -> bool:
    """Return whether the `names` end at `ends` in all texts but the first, which is not shorter
    than a word."""
    # The words that begin at each byte: a word for up to eight bytes is the quickest comparison.
    words = np.ndarray(len(data) - _SIZE + 1, _WORD, data.data, strides=(1,))
    last = [name[-_SIZE:] for name in names]
    # If a name is shorter than a word, the rest of the word is before it.
    before = np.array([8 * (_SIZE - len(part)) for part in last], np.uint64)
    wanted = np.array([int.from_bytes(part, "little") for part in last], np.uint64)
    if (words[ends - _SIZE] >> before != wanted).any():
        return False
    for number, name in enumerate(names):
        for at in range(0, len(name) - _SIZE, _SIZE):
            found = words[ends[:, number] - len(name) + at]
            if (found != int.from_bytes(name[at : at + _SIZE], "little")).any():
                return False
    return True


def _values(data: ByteArray, value_lengths: _IntArray, name_lengths: _IntArray) -> Any:
    """Return all values of texts as a string array. The lengths of each text's values are known,
    and those of the names, which are the same in all."""
    # Between two values are a 0x02, a name and a 0x01; before the first one there is no 0x02.
    runs = np.empty((*value_lengths.shape, 2), np.int64)
    runs[:, :, 0] = name_lengths + 2
    runs[:, :, 1] = value_lengths
    runs[0, 0, 0] -= 1
    is_value = np.repeat(np.tile(np.array([False, True]), value_lengths.size), runs.ravel())
    offsets = np.zeros(value_lengths.size + 1, np.int32)
    np.cumsum(value_lengths, out=offsets[1:])
    content = data[:-1][is_value]
    return pa.Array.from_buffers(
        pa.string(), value_lengths.size, [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    )
