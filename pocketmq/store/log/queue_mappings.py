"""Keeps the number of mapped consume-queue files within bounds, however many queues there are.

A mapping costs a descriptor (Python's mmap keeps one) and one of the kernel's maps per process. So
only the files that were used last stay mapped. One that is unmapped loses nothing: what was written
through the mapping stays in the kernel's memory, `MappedFile.sync` opens the file by its name, and
slices and arrays that a reader still holds keep the old mapping alive.

Which file was used last is known only roughly, by the clock algorithm: a use costs the hot path
nothing but a look at `MappedFile.used`. While all queues are gone through in turn, again and again,
as by a recovery, that would unmap each file shortly before its next turn; so the newest one goes
then, and most of the others stay.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from pocketmq.store.files import Files, MappedFile

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

Result = TypeVar("Result")


class QueueMappings:
    """The mapped files of all consume queues, `Files.most_mappings` of them at a time, but at
    least one. All methods belong to the event loop's thread.

    Attributes:
        in_turn: whether all files are used in turn.
    """

    def __init__(self, files: Files) -> None:
        self.in_turn = False
        self._files = files
        self._ring: deque[MappedFile] = deque()

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, file: MappedFile) -> None:
        """Take a file that has just been mapped."""
        file.expect_random()
        file.used = True
        if not file.has_descriptor:  # else only its mapping is left
            self._ring.append(file)
            self._keep_to(self._files.most_mappings())

    def use(self, file: MappedFile) -> None:
        """Have a file mapped that is about to be read or written. Raises OSError."""
        if not file.is_mapped:
            self.without_exhaustion(file.map_again)
            self.add(file)
        file.used = True

    def without_exhaustion(self, action: Callable[[], Result]) -> Result:
        """Do what needs a descriptor or a map. While the system has none, unmap a file and retry.
        Raises what `action` raises."""
        while True:
            try:
                return action()
            except OSError as error:
                if error.errno not in _EXHAUSTED or not self._unmap_one():
                    raise

    def _keep_to(self, most: int) -> None:
        # A new file is `used`, so the one that was just added is not the first to go.
        ring = self._ring
        while len(ring) > max(most, 1):
            if self.in_turn and ring[-2].unmap():
                del ring[-2]
            elif not self._unmap_one():
                return

    def _unmap_one(self) -> bool:
        """Unmap the first file in the ring that was not used since the last time round; return
        whether there was one that could be unmapped."""
        ring = self._ring
        for _ in range(2 * len(ring)):
            file = ring.popleft()
            if file.used and not file.closed:
                file.used = False
            elif file.unmap():
                return True
            ring.append(file)
        return False
