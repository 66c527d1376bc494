"""Changes of a file, written in batches by a thread of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from pocketmq.blocking_thread import BlockingThread
from pocketmq.kept_task import KeptTask

MOST_TOGETHER: Final = 1000
"""Changes in one write: they are checked and made on the event loop, in one go."""

C = TypeVar("C")


class ChangeQueue(Generic[C]):
    """Passes changes to `write`, in order. Changes that arrive during a write share the next one,
    so that the whole file is not written for each of them.

    `write(changes, thread)` uses `thread` for calls that block, and returns an error or None for
    each change. If it raises, all its changes fail with that error. If it is interrupted, they are
    written again.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[C], BlockingThread], Awaitable[Sequence[Exception | None]]],
    ) -> None:
        self._name = name
        self._write = write
        self._waiting: list[tuple[C, asyncio.Future[None]]] = []
        self._thread: BlockingThread | None = None
        self._task: KeptTask | None = None

    async def add(self, change: C) -> None:
        """Wait until the change is written. Raises its error; then it is not made."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((change, done))
        if self._task is None:
            self._task = KeptTask(self._run, f"writing {self._name}", ends=True)
        await done

    async def stop(self) -> None:
        """Write the pending changes, and end the thread."""
        if self._task is not None:
            await self._task.finish()
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    async def _run(self) -> None:
        if self._thread is None:
            self._thread = BlockingThread(self._name)
        errors: Sequence[Exception | None]
        while self._waiting:
            batch = self._waiting[:MOST_TOGETHER]
            try:
                errors = await self._write([change for change, _ in batch], self._thread)
            except Exception as failure:
                errors = [failure] * len(batch)
            del self._waiting[: len(batch)]
            for (_, done), error in zip(batch, errors, strict=True):
                if done.done():
                    continue  # the caller was cancelled
                if error is None:
                    done.set_result(None)
                else:
                    done.set_exception(error)
        self._task = None
