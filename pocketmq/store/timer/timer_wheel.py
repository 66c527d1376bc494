"""The file `timerwheel`: for each slot of time, where the timer log's list of its messages ends.

A ring of two times seven days' worth of slots; the slot of a time t is number
`t / precision % slots`. 32 bytes each::

    time / precision i64 · firstPos i64 · lastPos i64 · count i32 · magic i32

A slot that holds another time than the one looked for is free. Positions are those of the timer
log. Reference: TimerWheel, Slot.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from pocketmq.store.files import Files, MappedFile

RING: Final = 2 * 7 * 24 * 3600
_SLOT: Final = Struct(">qqqii")
SIZE: Final = RING * _SLOT.size


class Slot(NamedTuple):
    """Positions in the timer log of the first and last message of a slot, and how many it has."""

    first: int
    last: int
    messages: int


class TimerWheel:
    """The wheel at `path`; `precision` is the length of a slot in ms. Times are Unix ms."""

    def __init__(self, files: Files, path: Path, precision: int) -> None:
        self._files = files
        self._path = path
        self._precision = precision
        self._file: MappedFile | None = None

    def open(self) -> None:
        """Map the file, or create it. Raises DiskFull, FileSizeMismatch."""
        # After a kill nobody knows whether its name is on the disk.
        self._file = self._files.open_or_create(
            self._path, SIZE, "timer wheel", (self._path.parent,)
        )
        self._file.allocate()

    @property
    def exists(self) -> bool:
        """Whether the file exists and is not empty."""
        return self._path.exists() and self._path.stat().st_size > 0

    def get(self, time: int) -> Slot | None:
        """Return the slot of a time; None when it has no messages."""
        number, at = self._place(time)
        held, first, last, count, _ = _SLOT.unpack_from(self._mapped.map, at)
        return Slot(first, last, count) if held == number and last >= 0 else None

    def link(self, time: int, position: int, count: int = 1) -> None:
        """The message at `position` of the timer log is now the last one of its slot."""
        known = self.get(time)
        number, at = self._place(time)
        first = position if known is None else known.first
        total = count if known is None else known.messages + count
        _SLOT.pack_into(self._mapped.map, at, number, first, position, total, 0)

    def occupied(self, since: int) -> list[tuple[int, Slot]]:
        """Return the times and slots from `since` on that have messages, in order."""
        times = []
        # Few slots were ever used: the pages of the others would only be made for this.
        for begin, end in self._mapped.data_extents(0):
            # Only where timers were waiting: an idle broker does without numpy's 16 MB, and the
            # first timed message of a store does not wait for the import, which takes 60 ms.
            import numpy as np

            begin, end = begin // _SLOT.size * _SLOT.size, -(-end // _SLOT.size) * _SLOT.size
            numbers = np.frombuffer(self._mapped.view[begin:end], ">i8")[:: _SLOT.size // 8]
            found = np.nonzero((numbers >= since // self._precision) & (numbers > 0))[0]
            times += (numbers[found].astype(np.int64) * self._precision).tolist()
        times.sort()
        return [(time, slot) for time in times if (slot := self.get(time)) is not None]

    def forget(self, since: int, until: int) -> None:
        """Free the slots of the times [since, until)."""
        import numpy as np

        rows = np.frombuffer(self._mapped.map, ">i8").reshape(RING, -1)
        numbers = rows[:, 0]
        precision = self._precision
        rows[(numbers >= since // precision) & (numbers < -(-until // precision))] = 0

    def clear(self) -> None:
        """Forget every slot."""
        self._mapped.zero_from(0)

    def sync(self) -> None:
        """Wait until the slots are on the disk; off the event loop. Raises OSError."""
        self._mapped.sync()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def _mapped(self) -> MappedFile:
        assert self._file is not None, "the wheel is not open"
        return self._file

    def _place(self, time: int) -> tuple[int, int]:
        number = time // self._precision
        return number, number % RING * _SLOT.size
