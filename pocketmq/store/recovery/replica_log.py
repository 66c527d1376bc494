"""The log of a slave: bytes of the master go in, and the queues follow.

`append` writes bytes and no more. The records in them are checked and entered in turns of the event
loop (`log_follower`), so that a slave which has much to copy still answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from pocketmq.limited_log import LimitedLog
from pocketmq.store.errors import DiskFull, ForeignBytes
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.pending_entries import PendingEntries
from pocketmq.store.recovery.log_follower import LogFollower

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
# Entering many records costs a third of entering them one by one, so a turn waits for more.
_GATHER_SECONDS: Final = 0.01


class ReplicaLog:
    """The log of one store while it is a copy; all methods belong to the event loop's thread.

    `order_flush` has the log flushed soon, where entries wait for that (SYNC_FLUSH).

    Attributes:
        failure: what ended the copying; None while it goes on.
        on_failure: called with it once.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        follower: LogFollower,
        pending: PendingEntries,
        order_flush: Callable[[], None] | None,
    ) -> None:
        self._commit_log = commit_log
        self._follower = follower
        self._pending = pending
        self._order_flush = order_flush
        self._lines = LimitedLog(log)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due: asyncio.Handle | None = None
        self._unwritten = self._unentered = ""  # why bytes cannot be stored, or not be entered
        self.failure: ForeignBytes | None = None
        self.on_failure: Callable[[ForeignBytes], None] = lambda failure: None

    @property
    def is_running(self) -> bool:
        """Whether this store is a copy now."""
        return self._loop is not None

    @property
    def has_more(self) -> bool:
        """Whether another record has come as a whole, and waits to be entered. Raises
        ForeignBytes."""
        return self._follower.has_next

    @property
    def is_due(self) -> bool:
        """Whether something is about to be entered."""
        return self._due is not None

    @property
    def trouble(self) -> str:
        """What is wrong with the disk; empty if nothing is."""
        return self._unwritten or self._unentered

    def start(self) -> None:
        """Enter received records from now on, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self.failure = None
        self.advance()

    def stop(self) -> None:
        """Enter no more."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._loop = None
        self._unwritten = self._unentered = ""

    def catch_up(self) -> None:
        """Check and enter everything that is received, at once. Blocks; raises ForeignBytes,
        DiskFull, OSError."""
        while self._follower.turn():
            self._settle()
        self._settle()

    def append(self, physical_offset: int, data: memoryview) -> None:
        """Write bytes of the master's log, which continue this one. An empty log begins with the
        file that they are in.

        Raises:
            ForeignBytes: the copying has ended.
            DiskFull, OSError: nothing was written.
        """
        if self.failure is not None:
            raise self.failure
        commit_log = self._commit_log
        if not commit_log.files.mapped and physical_offset != commit_log.end:
            commit_log.begin_at(physical_offset)
        if physical_offset != commit_log.end:
            raise ValueError(f"bytes for {physical_offset}, but the log ends at {commit_log.end}")
        try:
            commit_log.append_raw(data)
        except (DiskFull, OSError) as error:
            self._unwritten = f"the commit log cannot be written: {error}"
            raise
        self._unwritten = ""
        self.advance()

    def advance(self) -> None:
        """Check soon whether there is something to enter."""
        if self._due is None and self._loop is not None:
            self._due = self._loop.call_later(_GATHER_SECONDS, self._turn)

    def _turn(self) -> None:
        self._due = None
        commit_log = self._commit_log
        before = commit_log.whole
        more = False
        trouble = ""
        try:
            more = self._follower.turn()
        except ForeignBytes as error:
            self._fail(error)
        except (DiskFull, OSError) as error:
            self._lines.error("received messages wait for room in their queues: %s", error)
            trouble = f"the queues cannot be written: {error}"
        if commit_log.whole > before:
            try:
                self._settle()
            except OSError as error:
                self._lines.error("received messages wait for their queues: %s", error)
                trouble = f"the queues cannot be written: {error}"
        self._unentered = trouble
        if self._loop is None:
            return
        if trouble:
            self._due = self._loop.call_later(_RETRY_SECONDS, self._turn)
        elif more:
            self._due = self._loop.call_soon(self._turn)

    def _settle(self) -> None:
        self._pending.settle()
        if self._order_flush is not None:
            self._order_flush()

    def _fail(self, error: ForeignBytes) -> None:
        self.failure = error
        log.critical("%s", error)
        self.on_failure(error)
        self.stop()
