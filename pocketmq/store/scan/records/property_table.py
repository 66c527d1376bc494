"""The properties texts of many records, taken apart by numpy and Arrow kernels.

All texts lie one after another in one buffer. The places of the two separators in it say where
every name and every value begins; what is left without the separators is an Arrow string array of
name, value, name, value … over all records. Texts that break that pattern (without the closing
separator, as old clients write them, or with 0x01 within a value) take a way with a few more steps,
and those that all name the same properties a shorter one (`alike_texts`).

A table (record × distinct name → number of the entry) then gives single properties as columns, and
tells which of equal names is the last one, which wins. The rules are those of
`pocketmq.message.properties.decode`. With the accelerator, compiled code reads the texts where they
lie (`compiled_records`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.message.properties import KEY_SEPARATOR
from pocketmq.store.scan.queues.segments import ByteArray
from pocketmq.store.scan.records.alike_texts import AlikeTexts, alike
from pocketmq.store.scan.records.compiled_records import compiled_entries
from pocketmq.store.scan.records.gather import Places, content

_IntArray = npt.NDArray[np.int64]


class PropertyTable:
    """The properties of the records whose texts lie at `places`."""

    def __init__(self, places: Places) -> None:
        self.rows = len(places.offset)
        self._entries = compiled_entries(places) or gathered_entries(places)

    def column(self, name: str) -> Any:
        """Return the values of one property, null in records without it."""
        return self._entries.column(name)

    def maps(self, kind: Any) -> Any:
        """All properties as an array of the Arrow map type `kind` (string to string)."""
        return self._entries.maps(kind)


def gathered_entries(places: Places) -> Entries | AlikeTexts:
    """Return the entries of the texts at `places`, by numpy and Arrow."""
    texts = places.gather()
    if not _is_utf8(texts):
        # Rare, and no kernel replaces invalid bytes: the only loop over records here.
        texts = pa.array(
            [str(text, "utf-8", "replace").encode() for text in texts.to_pylist()], pa.binary()
        )
    return _split(*content(texts))


class Entries:
    """Names and values (string arrays) of all entries in order, and the record of each."""

    def __init__(self, names: Any, values: Any, row: _IntArray, rows: int) -> None:
        self.names = names
        self.values = values
        self.row = row
        self.rows = rows

    def column(self, name: str) -> Any:
        """As of the table."""
        code = self._codes.get(name)
        if code is None:
            return pa.nulls(self.rows, pa.string())
        entry = self._last[:, code]
        return self.values.take(pa.array(entry, mask=entry < 0))

    def maps(self, kind: Any) -> Any:
        """As of the table."""
        names, values, row = self.names, self.values, self.row
        kept = self._last[row, self._name_codes]
        number = np.arange(len(row))
        if not np.array_equal(kept, number):  # of equal names the last one wins
            chosen = np.flatnonzero(kept == number)
            names, values, row = names.take(chosen), values.take(chosen), row[chosen]
        offsets = np.zeros(self.rows + 1, np.int32)
        np.cumsum(np.bincount(row, minlength=self.rows), out=offsets[1:])
        return pa.MapArray.from_arrays(pa.array(offsets), names, values, type=kind)

    @cached_property
    def _dictionary(self) -> Any:
        return self.names.dictionary_encode()

    @cached_property
    def _name_codes(self) -> npt.NDArray[np.int32]:
        codes: npt.NDArray[np.int32] = self._dictionary.indices.to_numpy()
        return codes

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(self._dictionary.dictionary.to_pylist())}

    @cached_property
    def _last(self) -> npt.NDArray[np.int32]:
        """Record × name → number of the last entry of that name; -1 without one."""
        table = np.full((self.rows, max(len(self._codes), 1)), -1, np.int32)
        row = self.row
        # Of several values for one cell numpy keeps the last.
        table[row, self._name_codes] = np.arange(len(row), dtype=np.int32)
        return table


def _split(data: ByteArray, bounds: npt.NDArray[np.int32]) -> Entries | AlikeTexts:
    """Return the entries of all texts, which lie in `data` between consecutive `bounds`."""
    is_text = data > 2
    separators = np.flatnonzero(~is_text)
    kinds = data[separators]
    ends = bounds[1:][np.diff(bounds) > 0]
    if (
        len(kinds) % 2 == 0
        and (kinds[0::2] == 1).all()
        and (kinds[1::2] == 2).all()
        and (data[ends - 1] == 2).all()
    ):
        return alike(data, bounds, separators) or _alternating(data, bounds, separators, is_text)
    return _irregular(data, bounds, ends.astype(np.int64))


def _alternating(
    data: ByteArray,
    bounds: npt.NDArray[np.int32],
    separators: _IntArray,
    is_text: npt.NDArray[np.bool_],
) -> Entries:
    """Entries where 0x01 and 0x02 take turns: one copy without them has all strings."""
    offsets = np.zeros(len(separators) + 1, np.int32)
    # String k ends k bytes earlier than before.
    np.subtract(separators, np.arange(len(separators)), out=offsets[1:], casting="same_kind")
    strings = pa.Array.from_buffers(
        pa.string(),
        len(separators),
        [None, pa.py_buffer(offsets), pa.py_buffer(data[is_text])],
    )
    closing = separators[1::2]
    row = np.repeat(np.arange(len(bounds) - 1), np.diff(np.searchsorted(closing, bounds)))
    number = np.arange(0, len(separators), 2)
    # Entries without name or value do not count.
    length = np.diff(offsets)
    if not length.all():
        whole = (length[0::2] > 0) & (length[1::2] > 0)
        number, row = number[whole], row[whole]
    names, values = strings.take(pa.array(number)), strings.take(pa.array(number + 1))
    return Entries(names, values, row, len(bounds) - 1)


def _irregular(data: ByteArray, bounds: npt.NDArray[np.int32], ends: _IntArray) -> Entries:
    """Entries of any texts: each ends at a 0x02 or with its text (`ends` has those that are not
    empty), its name at its first 0x01."""
    separators, closing = np.flatnonzero(data == 1), np.flatnonzero(data == 2)
    unclosed = ends[data[ends - 1] != 2]
    end = np.sort(np.concatenate([closing, unclosed]))
    # After a 0x02 the next entry begins one byte later, after a text at once.
    begin = np.zeros(len(end), np.int64)
    begin[1:] = end[:-1] + np.isin(end[:-1], closing, assume_unique=True)
    at = np.searchsorted(separators, begin)
    separator = np.append(separators, len(data))[at]
    row = np.searchsorted(bounds, begin, side="right") - 1
    whole = (separator > begin) & (separator + 1 < end)
    begin, separator, end, row = begin[whole], separator[whole], end[whole], row[whole]
    source = np.zeros(len(begin), np.intp)
    names = Places((data,), source, begin, separator - begin)
    values = Places((data,), source, separator + 1, end - separator - 1)
    strings = [places.gather().cast(pa.string()) for places in (names, values)]
    return Entries(strings[0], strings[1], row, len(bounds) - 1)


def _is_utf8(texts: Any) -> bool:
    data, _ = content(texts)
    if len(data) == 0 or data.max() < 0x80:
        return True
    try:
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def split_keys(keys: Any, kind: Any) -> Any:
    """Return the index keys from values of KEYS: lists (of Arrow type `kind`) of the parts between
    blanks; an empty list where the value is null."""
    data, _ = content(keys)
    offsets = np.zeros(len(keys) + 1, np.int32)
    if not (data == ord(KEY_SEPARATOR)).any():  # one key each, as nearly always
        filled = keys.drop_null() if keys.null_count else keys
        np.cumsum(keys.is_valid().to_numpy(zero_copy_only=False), out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), filled, type=kind)
    lists = pc.split_pattern(pc.fill_null(keys, ""), KEY_SEPARATOR)
    parts = lists.flatten()
    filled = pc.greater(pc.binary_length(parts), 0)
    before = np.zeros(len(parts) + 1, np.int32)
    np.cumsum(filled.to_numpy(zero_copy_only=False), out=before[1:])
    offsets = before[lists.offsets.to_numpy()]
    return pa.ListArray.from_arrays(pa.array(offsets), parts.filter(filled), type=kind)
