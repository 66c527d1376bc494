"""The per-record work of a scan, by compiled code where the accelerator is installed.

Each function returns None without it, or for records that numpy and Arrow have to read.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pocketmq._accelerator import accelerator_wanted
from pocketmq.message.checksum import crc32
from pocketmq.store.scan.records.gather import Places

if TYPE_CHECKING:
    from pocketmq.store.scan.records import _compiled_records
    from pocketmq.store.scan.records._compiled_records import CompiledTexts


class CopiedBodies(NamedTuple):
    """Bodies as a pyarrow `binary` array, and their checksums, all 32 bits of each."""

    values: Any
    checksums: npt.NDArray[np.uint32]


def compiled_bodies(places: Places) -> CopiedBodies | None:
    """Return the bodies at `places`. Together they must be below 2 GiB."""
    if _compiled is None:
        return None
    count = len(places.offset)
    values = pa.allocate_buffer(int(places.length.sum()))
    offsets = np.empty(count + 1, np.int32)
    checksums = np.empty(count, np.uint32)
    _compiled.copy_bodies(
        _places(places), crc32, np.frombuffer(values, np.uint8), offsets, checksums
    )
    array = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), values])
    return CopiedBodies(array, checksums)


class CompiledEntries:
    """The entries of properties texts."""

    def __init__(self, texts: CompiledTexts) -> None:
        self._texts = texts

    def column(self, name: str) -> Any:
        """Return the values of one property, null in records without it."""
        rows = self._texts.rows
        found, valid, offsets, values = self._texts.column(name.encode())
        if not found:
            return pa.nulls(rows, pa.string())
        bits = pa.py_buffer(valid) if found < rows else None
        return pa.Array.from_buffers(
            pa.string(), rows, [bits, pa.py_buffer(offsets), pa.py_buffer(values)], rows - found
        )

    def maps(self, kind: Any) -> Any:
        """All properties as an array of the Arrow map type `kind` (string to string)."""
        begins, *strings = map(pa.py_buffer, self._texts.maps())
        names, values = (
            pa.Array.from_buffers(pa.string(), offsets.size // 4 - 1, [None, offsets, content])
            for offsets, content in (strings[:2], strings[2:])
        )
        offsets = pa.Array.from_buffers(pa.int32(), self._texts.rows + 1, [None, begins])
        return pa.MapArray.from_arrays(offsets, names, values, type=kind)


def compiled_entries(places: Places) -> CompiledEntries | None:
    """Return the entries of the properties texts at `places`."""
    if _compiled is None:
        return None
    texts = _compiled.take_apart(_places(places))
    return None if texts is None else CompiledEntries(texts)


def _places(places: Places) -> _compiled_records.Places:
    assert _compiled is not None
    found: _compiled_records.Places = _compiled.Places(
        tuple(places.buffers),
        np.ascontiguousarray(places.buffer),
        np.ascontiguousarray(places.offset),
        np.ascontiguousarray(places.length),
    )
    return found


def _find() -> ModuleType | None:
    if not accelerator_wanted():
        return None
    try:
        from pocketmq.store.scan.records import _compiled_records
    except ImportError:
        return None
    return _compiled_records


_compiled = _find()
