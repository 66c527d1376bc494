"""A store that is read again and again, as by a stream: each look reads what has changed.

While one run of a broker has the store open, its queues only grow: of each queue one small read
tells whether there are more entries, and that those before are still the same. A store that no
broker has open stays as it is as long as its log and its checkpoint do, so that its snapshot is
taken once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pocketmq.store.scan.planning.snapshot import (
    State,
    StoreSnapshot,
    check_store,
    run_of,
    state_of,
)
from pocketmq.store.scan.planning.tail import snapshot_now
from pocketmq.store.scan.queues.queue_listing import EVERY_QUEUE, QueueChoice

# Two changes within a tick of the kernel's clock may leave a file with the same time.
_SETTLED_NS: Final = 2_000_000_000


class FollowedStore:
    """The store at `root`. A snapshot must not be used any more when the next one was taken.

    Args:
        clock: the time in ns, as files have it.
    """

    def __init__(
        self,
        root: Path,
        choice: QueueChoice = EVERY_QUEUE,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._root = root
        self._clock = clock
        self._choice = choice
        self._last: StoreSnapshot | None = None
        self._mark: _Mark | None = None

    def look(self) -> StoreSnapshot:
        """Return the store as it is now. Raises NoStore."""
        check_store(self._root)
        now = self._clock()
        mark = _Mark.of(self._root)
        last = self._last if mark == self._mark else None
        if last is not None and mark.state is not State.OPEN:
            return last
        self._last = None  # should this fail, its queues may be half read
        # A stream waits by itself, when it knows that something is missing.
        found = snapshot_now(self._root, self._choice, last)
        self._mark = mark if mark.is_settled(now) and found.state is mark.state else None
        self._last = found
        return found


class _Mark(NamedTuple):
    """The facts that stay the same as long as an earlier snapshot is of use.

    Attributes:
        run: the abort file, which a broker makes when it opens the store.
        files: inode, size and times (ns) of the log's files and the checkpoint, unless a broker has
            the store open.
    """

    state: State
    run: tuple[bytes, int]
    files: frozenset[tuple[int, int, int, int]]

    @classmethod
    def of(cls, root: Path) -> _Mark:
        state = state_of(root)
        files = frozenset[tuple[int, int, int, int]]()
        if state is not State.OPEN:
            files = frozenset(_statuses(root))
        return cls(state, run_of(root), files)

    def is_settled(self, now: int) -> bool:
        """Return whether a change after `now` (ns) is sure to show."""
        return all(max(times) < now - _SETTLED_NS for _, _, *times in self.files)


def _statuses(root: Path) -> Iterator[tuple[int, int, int, int]]:
    for path in (root / "checkpoint", *(root / "commitlog").iterdir()):
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            yield found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
