"""Cuts a byte stream into frames. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct as Layout

from pocketmq.remoting.errors import FrameError
from pocketmq.remoting.frames.frame_memory import FrameMemory

MAX_FRAME = 16_777_216
"""Largest frame in bytes, its 4 length bytes included."""

_LENGTH = 4
"""Bytes of a frame's length."""

_MIN_LENGTH = 4
_COPY_LIMIT = 8192
"""Bytes up to which a frame is copied out of its read. A copy of that size costs no more than a
view does, is quicker to take apart, and does not keep the whole read alive."""

_unpack_length = Layout(">I").unpack_from


class FrameSplitter:
    """Takes the reads of one connection and gives back whole frames, without their length bytes.

    The bytes of a frame that spans reads are gathered in one growing buffer, so the work is linear
    and memory bounded by the limit however small the reads are.

    Args:
        limit: largest frame in bytes, the 4 length bytes included.
        memory: counts the bytes of the incomplete frame.

    Attributes:
        max_length: the largest valid value of a frame's length bytes.
    """

    def __init__(self, limit: int = MAX_FRAME, memory: FrameMemory | None = None) -> None:
        self.max_length = limit - 4
        self._memory = memory or FrameMemory()
        self._gathered = bytearray()  # the incomplete frame
        self._missing = 0  # bytes that it still lacks; 0 between frames
        self._whole: memoryview | None = None  # the completed frame, until it is yielded
        self._unread = b""  # the last read, which has frames that are not yielded
        self._at = 0  # where its next frame begins

    @property
    def begun(self) -> bool:
        """Whether the last read, which was iterated over to its end, ended inside a frame."""
        return bool(self._missing or self._unread)

    @property
    def begun_frame(self) -> bytearray | None:
        """The bytes so far of an incomplete frame: the same object until it is complete."""
        return self._gathered if self._missing else None

    @property
    def unread(self) -> tuple[bytes | memoryview, int]:
        """The read that has frames to be yielded, and where the next one begins; or first a frame
        that spans reads."""
        return (self._unread, self._at) if self._whole is None else (self._whole, 0)

    def skip_to(self, at: int) -> None:
        """Do not yield the frames of `unread` before `at`, where one begins or ends."""
        if self._whole is None:
            self._at = at
        elif at:
            self._whole = None

    def forget(self) -> None:
        """Drop the incomplete frame, and what is unread: the stream has ended."""
        self._whole = None
        self._unread, self._at = b"", 0
        if self._missing:
            self._memory.add(-len(self._gathered))
            self._gathered = bytearray()
            self._missing = 0

    def feed(self, data: bytes) -> Iterator[bytes | memoryview]:
        """Take a read; yield its frames, after those of the previous read that were not yielded.

        The splitting is done while iterating. An iterator has to be iterated to its end, or until
        the next read is fed.

        Raises:
            FrameError: a length over the limit or under 4, after the frames before it. The stream
                cannot be read any further.
        """
        start = 0
        if self._missing:
            start = self._missing
            self._gathered += memoryview(data)[:start]
            self._missing = max(start - len(data), 0)
            if self._missing:
                self._memory.add(len(data))
                return iter(())
            frame, self._gathered = self._gathered, bytearray()
            self._memory.add(start - len(frame))  # what it had before this read
            self._whole = memoryview(frame).toreadonly()
        elif self._unread:
            data = self._unread[self._at :] + data
        self._unread, self._at = data, start
        return self._frames()

    def _frames(self) -> Iterator[bytes | memoryview]:
        if self._whole is not None:
            frame, self._whole = self._whole[_LENGTH:], None
            yield bytes(frame) if len(frame) <= _COPY_LIMIT else frame
        data, start = self._unread, self._at
        size = len(data)
        while size - start >= _LENGTH:
            length = _unpack_length(data, start)[0]
            if not _MIN_LENGTH <= length <= self.max_length:
                raise FrameError(
                    f"frame length {length} (0x{length:08x}) is not between {_MIN_LENGTH} and "
                    f"{self.max_length}"
                )
            end = start + _LENGTH + length
            if end > size:
                self._gathered += memoryview(data)[start:]
                self._missing = end - size
                self._memory.add(size - start)
                start = size
                break
            self._at = end
            start += _LENGTH
            if length <= _COPY_LIMIT:
                yield data[start:end]
            else:
                yield memoryview(data)[start:end]
            start = self._at
        self._unread = data[start:]  # nothing, or the first 1 to 3 bytes of a length
        self._at = 0
