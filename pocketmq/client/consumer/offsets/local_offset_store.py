"""The offsets of a broadcast consumer, in a local file with the path and format of the Java client.

The file is `~/.rocketmq_offsets/<clientId>/<group>/offsets.json`, with its previous version in
`offsets.json.bak`. Reference: LocalFileOffsetStore.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from itertools import count
from pathlib import Path

from pocketmq.client.errors import ClientError
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.offset import ResetOffsetBody
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import BodyError

log = logging.getLogger(__name__)


class OffsetFileError(ClientError):
    """The file of offsets cannot be read or written."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, f"{path}: {why}")


class OffsetSerializeWrapper(ResetOffsetBody):
    """The content of the file: queue → offset."""


def default_directory() -> Path:
    """Return the directory in which the Java client keeps these files."""
    return Path.home() / ".rocketmq_offsets"


class LocalOffsetStore:
    """The OffsetStore of one client in one group."""

    def __init__(self, directory: Path, client_id: str, group: str) -> None:
        self.path = directory / client_id / group / "offsets.json"
        self._table: dict[MessageQueue, int] = {}
        self._dirty = False
        self._writing = asyncio.Lock()
        self._numbers = count()
        #: The number of the last write, and the lock for replacing the file.
        self._newest = -1
        self._replacing = threading.Lock()

    async def load(self) -> None:
        """Read the file, or its previous version; a missing file counts as an empty one.

        Raises OffsetFileError if neither can be read: starting over would lose the offsets.
        """
        self._table = await asyncio.to_thread(self._read)

    async def read(self, queue: MessageQueue) -> int | None:
        return self._table.get(queue)

    async def store(self, queue: MessageQueue, offset: int) -> None:
        """Raises OffsetFileError."""
        self._table[queue] = offset
        self._dirty = True
        # One of several concurrent calls writes for all.
        async with self._writing:
            if not self._dirty:
                return
            self._dirty = False
            content = OffsetSerializeWrapper(offset_table=dict(self._table)).encode()
            written = False
            try:
                await asyncio.to_thread(self._write, content, next(self._numbers))
                written = True
            except OSError as error:
                raise OffsetFileError(self.path, error.strerror or str(error)) from error
            finally:
                # Also after a cancellation: the thread continues, but its result is unknown.
                if not written:
                    self._dirty = True

    def keeps(self, queue: MessageQueue) -> bool:
        return True

    @property
    def _backup(self) -> Path:
        return self.path.with_name("offsets.json.bak")

    def _read(self) -> dict[MessageQueue, int]:
        problem: OffsetFileError | None = None
        for path in (self.path, self._backup):
            try:
                content = path.read_bytes()
                if content:
                    return OffsetSerializeWrapper.decode(content).offset_table
            except FileNotFoundError:
                continue
            except (OSError, BodyError) as error:
                log.warning("offset file %s cannot be read: %s", path, error)
                problem = problem or OffsetFileError(path, str(error))
        if problem is not None:
            raise problem
        return {}

    def _write(self, content: bytes, number: int) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        arriving = self.path.with_name(f"offsets.json.{os.getpid()}.{number}.tmp")
        try:
            with arriving.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            with self._replacing:
                # A write that was cancelled must not overwrite a later one.
                if number < self._newest:
                    return
                if self.path.exists():
                    self._backup.write_bytes(self.path.read_bytes())
                arriving.replace(self.path)
                self._newest = number
        finally:
            arriving.unlink(missing_ok=True)
