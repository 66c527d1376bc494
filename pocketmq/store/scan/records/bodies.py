"""The bodies of a block: gathered, checked against the CRC of their heads, and decompressed."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.message.checksum import CRC_MASK, crc32
from pocketmq.message.compression import CompressionError, CompressionType, decompress
from pocketmq.message.sysflag import COMPRESSED
from pocketmq.store.scan.records.compiled_records import CopiedBodies, compiled_bodies
from pocketmq.store.scan.records.gather import Places, content

MAX_INFLATED: Final = 128 * 1024 * 1024
"""Bytes of decompressed bodies in one block, unless a single body has more."""


class TooLarge(Exception):
    """The bodies of a block inflate to more than a block should have."""


class Bodies(NamedTuple):
    """One body per record of a block."""

    values: Any
    """A pyarrow `binary` array."""
    broken: npt.NDArray[np.bool_]
    """Records whose body does not fit its CRC, or does not decompress."""
    reasons: dict[int, str]
    """Why, by row, for those that do not decompress."""


def read_bodies(
    places: Places,
    fields: npt.NDArray[Any],
    *,
    inflate: bool,
    most_inflated: int = MAX_INFLATED,
) -> Bodies:
    """Return the bodies at `places` of records with these heads (all of them good).

    `inflate` decompresses them; then several have `most_inflated` bytes at most.

    Raises:
        TooLarge: they decompress to more than a block should have, and there are several.
        ModuleNotFoundError: the package of a codec is not installed.
    """
    values, checksums = compiled_bodies(places) or gathered_bodies(places)
    # The reference takes a record without body as it is.
    broken = (checksums & CRC_MASK != fields["body_crc"]) & (places.length > 0)
    is_compressed = (fields["sys_flag"] & COMPRESSED) != 0
    if not inflate or not is_compressed.any():
        return Bodies(values, broken, {})
    plain: list[bytes] = []
    reasons: dict[int, str] = {}
    size = 0
    for row in np.flatnonzero(is_compressed).tolist():
        body = b""
        if not broken[row]:
            try:
                body = decompress(values[row].as_py(), int(fields["sys_flag"][row]))
            except ModuleNotFoundError as error:
                raise _no_codec(int(fields["sys_flag"][row]), error) from error
            except CompressionError as error:
                reasons[row] = str(error)
                broken[row] = True
        plain.append(body)
        size += len(body)
        if size > most_inflated and len(fields) > 1:
            raise TooLarge
    values = pc.replace_with_mask(values, pa.array(is_compressed), pa.array(plain, pa.binary()))
    return Bodies(values, broken, reasons)


def _no_codec(sys_flag: int, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return an error that says what to install where: it may be an executor's Python."""
    codec = CompressionType.of(sys_flag).name
    package = {"lz4": "lz4", "backports": "backports.zstd"}.get((error.name or "").split(".")[0])
    return ModuleNotFoundError(
        f"a body is compressed with {codec}, which needs the package {package or error.name}. "
        f"{sys.executable} does not have it. Type: {sys.executable} -m pip install "
        f"{package or error.name}; or read without `body`, or with decompress=false",
        name=error.name,
    )


def gathered_bodies(places: Places) -> CopiedBodies:
    """Return the bodies at `places`, by numpy and Arrow."""
    values = places.gather()
    data, bounds = content(values)
    view = data.data
    crcs = [crc32(view[begin:end]) for begin, end in pairwise(bounds.tolist())]
    return CopiedBodies(values, np.array(crcs, np.uint32))
