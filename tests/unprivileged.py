"""Root may read every file; without its capabilities it is refused like any other user."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

import pytest

_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    """The lower, then the upper 32 capabilities."""

    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Let the permissions of files count for this thread, and for those that it starts."""
    if os.geteuid() != 0:
        yield
        return
    if sys.platform != "linux":
        pytest.skip("root may read everything")
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()
    assert libc.capget(ctypes.byref(header), sets) == 0
    effective = [each.effective for each in sets]

    def change(values: list[int]) -> None:
        for each, value in zip(sets, values, strict=True):
            each.effective = value
        assert libc.capset(ctypes.byref(header), sets) == 0

    change([0, 0])
    try:
        yield
    finally:
        change(effective)
