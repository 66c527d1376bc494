"""Finds messages by their keys. Follows the commit log on a thread of its own.

Nothing is done on the way of a message: now and then the thread walks through the records that were
added, collects their keys with numpy and enters them into the index files. While many messages come
in it leaves the processor to them, until it is 512 MiB behind. A query first waits until the thread
has come to where the log ended when it was asked, so that who sent a message can find it.
Reference: ReputMessageService, CommitLogDispatcherBuildIndex, DefaultMessageStore queryMessage.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from message.record import MIN_RECORD
from store.commit_log import CommitLog
from store.errors import DiskFull, RecordNotFound
from store.index_table import IndexTable

log = logging.getLogger(__name__)

_size: Final = Struct(">i").unpack_from
# What is taken in one turn. The interpreter lock is held for a part of it only, about 0.5 ms; but
# each of its some sixty numpy calls may have to wait for it, so that turns must not be small.
_TURN_RECORDS: Final = 2048
_TURN_BYTES: Final = 2 * 1024 * 1024
_BUSY_SECONDS: Final = 0.1
# With that many bytes added in _BUSY_SECONDS (some ten thousand messages a second), following at
# once would take a fifth from the rate of sends: the two threads wait for each other's lock.
_MANY_BYTES: Final = 1024 * 1024
_MOST_BEHIND: Final = 512 * 1024 * 1024
_IDLE_SECONDS: Final = 0.5
_AFTER_FAILURE_SECONDS: Final = 5.0
_CLOSING_SECONDS: Final = 10.0
_QUERY_SECONDS: Final = 3.0
_QUERIES_AT_ONCE: Final = 2


class FoundMessages(msgspec.Struct):
    """What a query found.

    Attributes:
        records: slices of the mapped commit log, in its order. With another key of the same hash a
            message may be among them that was not asked for.
        last_timestamp, last_offset: store timestamp (ms) and physical offset of the last message
            in the index; 0 when nothing was found, as the reference has it.
    """

    records: list[memoryview] = []
    last_timestamp: int = 0
    last_offset: int = 0


class MessageIndex:
    """The index of one store.

    Attributes:
        position: physical offset up to which messages have been entered.
    """

    def __init__(
        self,
        table: IndexTable,
        commit_log: CommitLog,
        readable: Callable[[], int],
        *,
        enabled: bool,
        most: int,
    ) -> None:
        """`readable` gives the physical offset up to which messages may be read; `most` messages
        are found by one query."""
        self.position = 0
        self._table = table
        self._log = commit_log
        self._readable = readable
        self._enabled = enabled
        self._most = most
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._failed = False
        self._seen = 0  # what was readable when the thread last looked
        self._loop: asyncio.AbstractEventLoop | None = None
        # A long chain takes long: others need threads, too.
        self._turnstile = asyncio.Semaphore(_QUERIES_AT_ONCE)
        # Who waits for a position: only touched on the event loop.
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    # --- life ---------------------------------------------------------------------------------

    def open(self, *, clean: bool) -> None:
        """Map the files, once the commit log is recovered. Raises OSError."""
        self._table.load(clean=clean)
        self._table.cut(self._knows)
        last = self._table.end_offset
        self.position = max(last, self._log.min_offset)
        # After a crash from the last message itself on: it may have come between two of its keys.
        if clean and last == self.position:
            self.position += len(self._log.record_at(last))

    def _knows(self, physical_offset: int) -> bool:
        if physical_offset < self._log.min_offset:
            return True  # expired
        try:
            self._log.record_at(physical_offset)
        except RecordNotFound:
            return False
        return True

    def start(self) -> None:
        """Start the thread; to be called on the event loop."""
        if self._enabled:
            self._loop = asyncio.get_running_loop()
            self._seen = self._readable()
            self._thread = threading.Thread(target=self._run, name="store-index", daemon=True)
            self._thread.start()

    async def stop(self) -> None:
        """End the thread. What is left is for `finish`."""
        self._stopping = True
        if self._thread is not None:
            self._wake.set()
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
            self._thread = None
        self._reached(1 << 63)

    def finish(self) -> None:
        """Enter what is left and wait until all is on the disk; off the event loop.

        A backlog that takes longer than ten seconds is left for the next start.
        Raises OSError.
        """
        if not self._enabled:
            return
        deadline = time.monotonic() + _CLOSING_SECONDS
        try:
            while self.turn():
                if time.monotonic() > deadline:
                    log.warning("the index is built up to %d only, for now", self.position)
                    break
        except DiskFull as error:
            log.error("the index is not complete: %s", error)
        self._table.sync()

    def close(self) -> None:
        """Close the files."""
        self._table.close()

    # --- asking -------------------------------------------------------------------------------

    async def query(self, topic: str, key: str, most: int, begin: int, end: int) -> FoundMessages:
        """Up to `most` messages of a topic with a key, or a unique key, that were stored from
        `begin` to `end` (ms, to the second); of more, the newest."""
        await self._catch_up()
        most = min(most, self._most)
        async with self._turnstile:
            return await asyncio.to_thread(self._query, topic, key, most, begin, end)

    def _query(self, topic: str, key: str, most: int, begin: int, end: int) -> FoundMessages:
        found = self._table.find(topic, key, most, begin, end)
        records = []
        for offset in found.physical_offsets:
            try:
                records.append(self._log.record_at(offset))
            except (RecordNotFound, ValueError):
                continue  # it has expired
        if not found.physical_offsets:
            return FoundMessages()
        return FoundMessages(records, found.last_timestamp, found.last_offset)

    async def _catch_up(self) -> None:
        """Wait until everything that may be read by now is entered; not for long."""
        self._log.write()
        target = self._readable()
        if self._thread is None or self.position >= target:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((target, reached))
        self._wake.set()
        try:
            async with asyncio.timeout(_QUERY_SECONDS):
                await reached
        except TimeoutError:
            log.warning("a query is answered from an index that ends at %d", self.position)
        finally:
            self._waiting = [entry for entry in self._waiting if entry[1] is not reached]

    def _reached(self, position: int) -> None:
        for target, reached in self._waiting:
            if target <= position and not reached.done():
                reached.set_result(None)

    # --- following the log, on the thread -----------------------------------------------------

    def _run(self) -> None:
        wait = _IDLE_SECONDS
        while not self._stopping:
            self._wake.wait(wait)
            self._wake.clear()
            if self._is_busy() and not self._waiting:
                wait = _BUSY_SECONDS
                continue
            begin = self.position
            try:
                self._table.remove_before(self._log.min_offset)
                # Not until nothing is left: what comes meanwhile makes a larger turn later.
                target = self._readable()
                while self.position < target and not self._stopping and self.turn():
                    pass
                self._failed = False
                wait = _BUSY_SECONDS if self.position > begin else _IDLE_SECONDS
            except (DiskFull, OSError) as error:
                if not self._failed:
                    log.error("messages can not be found by new keys: %s", error)
                self._failed = True
                wait = _AFTER_FAILURE_SECONDS
            except Exception:
                log.exception("following the commit log from %d failed", self.position)
                wait = _AFTER_FAILURE_SECONDS
            if self._waiting:
                self._tell(self.position)

    def _is_busy(self) -> bool:
        """Whether so much was added since the last call that the index had better wait."""
        readable = self._readable()
        added, self._seen = readable - self._seen, readable
        return added >= _MANY_BYTES and readable - self.position < _MOST_BEHIND

    def _tell(self, position: int) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._reached, position)
        except RuntimeError:
            log.warning("the event loop ended before the store was closed")

    def turn(self) -> bool:
        """Enter the keys of the next records; False when there were none.

        Raises DiskFull, OSError; the same records come again next time.
        """
        end = self._readable()
        position = max(self.position, self._log.min_offset)
        if position >= end:
            return False
        file = self._log.files.find(position)
        if file is None:
            return False  # it expired a moment ago: min_offset has moved on
        try:
            view = file.view[:]  # keeps the file mapped
        except ValueError:
            return False
        base = file.base_offset
        places, behind = self._places(view, base, position, end, file.path)
        if places:
            from store.index_keys import keys_of

            self._table.append(keys_of(view, base, places))
        self.position = behind
        return True

    def _places(
        self, view: memoryview, base: int, position: int, end: int, path: Path
    ) -> tuple[list[int], int]:
        """Where the next records begin within a file, and the physical offset behind them."""
        at = position - base
        stop = min(end - base, len(view))
        enough = min(stop, at + _TURN_BYTES)
        places: list[int] = []
        while at < enough and len(places) < _TURN_RECORDS:
            size = _size(view, at)[0]
            if at + size == len(view):  # only a blank reaches the end
                return places, base + len(view)
            if size < MIN_RECORD or at + size > stop:
                log.error(
                    "%s at byte %d: no record; its file is not indexed from here on", path, at
                )
                return places, base + len(view)
            places.append(at)
            at += size
        return places, base + at
