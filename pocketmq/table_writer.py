"""Writes the file of a table in its own thread, after each change.

The file is written as a whole and synced, which takes milliseconds, more for a large table or on a
slow disk. So a table changes in memory first, and one write covers all changes made during the
previous write. A request that must be durable before its answer waits for `saved`; a change that
nobody waits for, such as a group created by a heartbeat, may be delayed a moment to be written with
others.

If a write fails, all waiters get the error, and the write is retried until the file matches the
memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

from pocketmq.blocking_thread import BlockingThread
from pocketmq.error_kind import kind_of
from pocketmq.kept_task import KeptTask
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError

log = logging.getLogger(__name__)

T = TypeVar("T")

COLLECT_SECONDS: Final = 0.5  # for changes that nobody waits for
RETRY_SECONDS: Final = 1.0


class TableWriter(Generic[T]):
    """The writer of the file at `path`.

    `encode()` returns the new content and is called on the event loop; `write(content)` blocks,
    raises OSError, and is called on the thread.

    Attributes:
        revision: number of changes so far.
        written: how many of them are on the disk.
        error: why the last write failed; None after one that succeeded.
    """

    def __init__(
        self,
        path: Path,
        encode: Callable[[], T],
        write: Callable[[T], None],
    ) -> None:
        self.revision = 0
        self.written = 0
        self.error: Exception | None = None
        self._path = path
        self._encode = encode
        self._write = write
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()  # set by a change and by `stop`
        self._hurry = asyncio.Event()  # a caller waits in `saved`
        self._stopping = False
        self._thread: BlockingThread
        self._task: KeptTask | None = None

    def start(self) -> None:
        """Write changes from now on, also those so far; call this on the event loop."""
        self._thread = BlockingThread(self._path.name)
        self._task = KeptTask(self._run, f"writing {self._path.name}")

    async def stop(self) -> None:
        """Write the pending changes, and end."""
        self._stopping = True
        self._wake.set()
        self._hurry.set()
        if self._task is not None:
            await self._task.finish()
            self._thread.close()

    def changed(self) -> None:
        """Record a change of the table, and schedule a write."""
        self.revision += 1
        self._wake.set()

    async def saved(self, revision: int) -> None:
        """Wait until the change `revision` and all before it are on the disk.

        Raises `RemotingError` (SERVICE_NOT_AVAILABLE) when the next write fails. The changes stay
        in memory then, and are written as soon as that succeeds.
        """
        if revision <= self.written:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((revision, future))
        self._hurry.set()
        await future

    def check(self) -> None:
        """Raise the `RemotingError` of `saved` while writing fails."""
        if self.error is not None:
            raise self._refusal(self.error)

    async def _run(self) -> None:
        while True:
            if self.written == self.revision:
                if self._stopping:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            await self._collect()
            if not await self._write_once() and self._stopping:
                log.error("%s: the last changes are lost", self._path)
                return

    async def _collect(self) -> None:
        seconds = COLLECT_SECONDS if self.error is None else RETRY_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        if not self._stopping:
            self._hurry.clear()

    async def _write_once(self) -> bool:
        revision = self.revision
        error: Exception | None = None
        try:
            await self._thread.call(partial(self._write, self._encode()))
            self.written = revision
        except OSError as failure:
            error = failure
        except Exception as failure:
            log.exception("%s cannot be written", self._path)
            error = failure
        self._note(error)
        waiting, self._waiting = self._waiting, []
        for wanted, future in waiting:
            if future.done():
                continue  # the waiter was cancelled
            if wanted <= self.written:
                future.set_result(None)
            elif wanted <= revision and error is not None:
                future.set_exception(self._refusal(error))
            else:
                self._waiting.append((wanted, future))
        if self._waiting:
            self._hurry.set()
        return error is None

    def _note(self, error: Exception | None) -> None:
        if error is not None and self.error is None:
            log.error(
                "%s cannot be written: %s. Changes stay in memory, and the broker tries again "
                "every %g s. Until then it refuses new names, and admins' changes",
                self._path,
                error,
                RETRY_SECONDS,
            )
        elif error is None and self.error is not None:
            log.warning("%s is written again", self._path)
        self.error = error

    def _refusal(self, error: Exception) -> RemotingError:
        return RemotingError(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"the broker cannot write {self._path.name}: {kind_of(error)}; it keeps trying",
        )
