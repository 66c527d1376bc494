"""The units of the timer log as a numpy structured array over the mapped file.

A separate module, because importing numpy costs an idle broker 16 MB: only checks come here.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

UNIT_DTYPE: Final = np.dtype(
    [
        ("size", ">i4"), ("previous", ">i8"), ("magic", ">i4"), ("entered", ">i8"),
        ("delay", ">i4"), ("physical", ">i8"), ("length", ">i4"), ("hash", ">i4"), ("zero", ">i8"),
    ]
)  # fmt: skip
"""The 52 bytes of a unit, unaligned and big-endian as in the file."""

UnitArray: TypeAlias = npt.NDArray[Any]


def unit_array(view: memoryview, count: int) -> UnitArray:
    """Return the first units in `view`, without a copy; the array keeps its file mapped."""
    return np.frombuffer(view, UNIT_DTYPE, count)
