"""The kinds of buffer the codecs take (`collections.abc.Buffer` only exists from 3.12 on)."""

from __future__ import annotations

from mmap import mmap
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
ReadableBuffer: TypeAlias = bytes | bytearray | memoryview | mmap
WritableBuffer: TypeAlias = bytearray | memoryview | mmap
