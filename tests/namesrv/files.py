"""Small files of name servers, for tests that are coroutines."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterable
from pathlib import Path

from pocketmq.namesrv.text_file import TextFile


def read(path: str) -> str:
    return Path(path).read_text()


def write(path: str, text: str, encoding: str = "utf-8") -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding)


def exists(path: str) -> bool:
    return Path(path).exists()


def make_unwritable(path: str) -> None:
    """Puts a directory where the file is to be."""
    Path(path).mkdir(parents=True)


class HeldFile(TextFile):
    """Each write of it waits for `go_on`. To be made in a coroutine."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.writes = 0
        self._loop = asyncio.get_running_loop()
        self._begun: asyncio.Queue[None] = asyncio.Queue()
        self._outcomes: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()

    def replace(self, pieces: Iterable[bytes]) -> None:
        self.writes += 1
        self._loop.call_soon_threadsafe(self._begun.put_nowait, None)
        error = self._outcomes.get(timeout=30)
        if error is not None:
            raise error
        super().replace(pieces)

    async def begun(self) -> None:
        """Wait for the begin of the next write."""
        async with asyncio.timeout(30):
            await self._begun.get()

    def go_on(self, error: OSError | None = None) -> None:
        """Let a write go on, or fail."""
        self._outcomes.put(error)
