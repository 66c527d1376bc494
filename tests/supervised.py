"""Ends background work under supervision as a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any

import pytest

from pocketmq.kept_task import KeptTask

Work = Coroutine[Any, Any, None]


class Supervised:
    """The tasks of all work that `KeptTask` runs from now on, until the test ends."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._errors: dict[asyncio.Task[Any], BaseException] = {}
        supervise: Callable[..., None] = KeptTask.__init__

        def init(kept: KeptTask, work: Callable[[], Work], *args: Any, **options: Any) -> None:
            supervise(kept, partial(self._run, work), *args, **options)

        patch.setattr(KeptTask, "__init__", init)

    @property
    def running(self) -> set[asyncio.Task[Any]]:
        return {task for task in self._tasks if not task.done()}

    def names(self) -> set[str]:
        return {task.get_name() for task in self.running}

    def end(self, name: str, error: BaseException | None) -> None:
        """End all work of this name where it waits, with an error or, for None, a cancellation."""
        tasks = {task for task in self.running if task.get_name() == name}
        for task in tasks:
            if error is not None:
                self._errors[task] = error
            task.cancel()

    async def _run(self, work: Callable[[], Work]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        await self._driven(work(), task)

    @coroutine
    def _driven(self, work: Work, task: asyncio.Task[Any]) -> Generator[Any, None, None]:
        error: BaseException | None = None
        while True:
            try:
                waits_for = work.send(None) if error is None else work.throw(error)
            except StopIteration:
                return
            error = None
            try:
                yield waits_for
            except BaseException as cause:
                error = self._errors.pop(task, cause)
