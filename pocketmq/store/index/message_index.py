"""Finds messages by their keys, or by their tags. Its own thread follows the commit log.

A put does no work for the index. Now and then the thread walks through the records that were added,
collects their keys with numpy and enters them into the index files. While many messages come in, it
leaves the processor to them, until it lags by 512 MiB. It hands a large backlog to a process
(`index_worker`), which does not take the interpreter lock from the event loop. A query first waits
a moment until the index has caught up with the log, so that a sender finds the message it just
sent. If that takes long, since others have sent very many keys, the query also looks at the
messages of its topic that the index does not have yet.
Reference: ReputMessageService, DefaultMessageStore queryMessage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from pocketmq.limited_log import LimitedLog, shown
from pocketmq.message import properties as names
from pocketmq.message.record import decode
from pocketmq.store.encoding.key_hash import TAG_MARK
from pocketmq.store.errors import DiskFull, RecordNotFound
from pocketmq.store.index.index_builder import LONG_TURN, TURN_BYTES, IndexBuilder
from pocketmq.store.index.index_file import ENTRIES_OF_STEP
from pocketmq.store.index.index_pace import IndexPace, Inflow
from pocketmq.store.index.index_table import IndexTable
from pocketmq.store.index.index_worker import IndexWorker, MakeWorker, WorkerFailed
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.store_lock import wait_until_unlocked

log = logging.getLogger(__name__)

_BUSY_SECONDS: Final = 0.1
_IDLE_SECONDS: Final = 0.5
_AFTER_FAILURE_SECONDS: Final = 5.0
_CLOSING_SECONDS: Final = 10.0
_LONGEST_PAUSE: Final = 0.05
_QUERIES_AT_ONCE: Final = 2
_MOST_ARRIVED: Final = 2_000  # messages that the index lacks, and a query looks at all the same

#: Entries of the index that a query reads in a turn: ten or twenty milliseconds.
_WORK_OF_TURN: Final = 16 * 1024
#: The work of looking at a message, in entries; and bytes of properties that are as much.
_WORK_OF_RECORD: Final = 8
_BYTES_AS_AN_ENTRY: Final = 128


Newest = Callable[[str, int, int], Awaitable[list[int]]]
"""Gives the physical offsets of a topic's newest messages, from a physical offset on, at most so
many; the newest first."""


class FoundMessages(msgspec.Struct):
    """The result of a query.

    Attributes:
        records: slices of the mapped commit log, in its order.
        last_timestamp, last_offset: store timestamp (ms) and physical offset of the last message
            in the index; 0 when nothing was found, as in the reference.
    """

    records: list[memoryview] = []
    last_timestamp: int = 0
    last_offset: int = 0


class _Search:
    """A query that is under way, in turns.

    Attributes:
        found: the records so far by physical offset, the newest first.
    """

    def __init__(
        self,
        table: IndexTable,
        commit_log: CommitLog,
        topic: str,
        key: str,
        most: int,
        begin: int,
        end: int,
        *,
        since: int,
        by_tags: bool,
        arrived: Iterator[int],
    ) -> None:
        """`arrived`: physical offsets of messages that the index may lack."""
        self.found: dict[int, memoryview] = {}
        self._arrived = arrived
        self._begin_time, self._end_time = begin, end
        self._end = table.end_timestamp, table.end_offset
        self._offsets = table.search(topic, TAG_MARK + key if by_tags else key, begin, end)
        self._by_tags = by_tags
        self._log = commit_log
        self._topic = topic
        self._key = key
        self._most = most
        self._since = since

    def advance(self) -> bool:
        """Go on for a turn; return whether the search has ended. Off the event loop."""
        work = 0
        for arrived in self._arrived:
            work += self._compare(arrived, times=True)
            if len(self.found) >= self._most:
                return True
            if work >= _WORK_OF_TURN:
                return False
            time.sleep(0)  # other threads may run
        while len(self.found) < self._most and work < _WORK_OF_TURN:
            try:
                physical = next(self._offsets)
            except StopIteration:
                return True
            work += ENTRIES_OF_STEP if physical is None else self._compare(physical)
            time.sleep(0)  # other threads may run
        return len(self.found) >= self._most

    def result(self) -> FoundMessages:
        """Return what was found so far."""
        self._offsets.close()
        if not self.found:
            return FoundMessages()
        return FoundMessages([record for _, record in sorted(self.found.items())], *self._end)

    def _compare(self, physical: int, *, times: bool = False) -> int:
        """Keep the message at a physical offset if it has the key, and with `times` was stored in
        time; return the work, in entries."""
        if physical < self._since:
            return _WORK_OF_RECORD
        try:
            data = self._log.record_at(physical)
            record = decode(data, check_crc=False)
        except (RecordNotFound, ValueError):
            return _WORK_OF_RECORD  # it has expired
        if record.topic != self._topic:
            return _WORK_OF_RECORD
        if times and not self._begin_time <= record.store_timestamp <= self._end_time:
            return _WORK_OF_RECORD
        if self._key in self._keys_of(record.properties):
            self.found[physical] = data
        return _WORK_OF_RECORD + len(record.properties_bytes) // _BYTES_AS_AN_ENTRY

    def _keys_of(self, properties: Mapping[str, str]) -> Sequence[str]:
        if self._by_tags:
            return (properties.get(names.TAGS, ""),)
        keys = properties.get(names.KEYS, "").split(names.KEY_SEPARATOR)
        return (*keys, properties.get(names.UNIQ_KEY, ""))


class MessageIndex:
    """The index of one store."""

    def __init__(
        self,
        table: IndexTable,
        commit_log: CommitLog,
        readable: Callable[[], int],
        newest: Newest,
        *,
        enabled: bool,
        most: int,
        pace: IndexPace,
        make_worker: MakeWorker,
    ) -> None:
        """`readable` gives the physical offset up to which messages may be read, `newest` messages
        of a topic; `most` messages are found by one query; `make_worker` starts the process."""
        self._pace = pace
        self._make_worker = make_worker
        self._builder = IndexBuilder(table, commit_log.files)
        self._table = table
        self._log = commit_log
        self._readable = readable
        self._newest = newest
        self._enabled = enabled
        self._most = most
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._cut_at: int | None = None
        self._failed = False
        self._inflow = Inflow(pace, 0)
        self._worker: IndexWorker | None = None  # only touched on the thread
        self._worker_failed = False
        self._worker_used = 0.0  # when it last had much to do, monotonic seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lines = LimitedLog(log)  # what a query can cause
        # Others need threads, too.
        self._turnstile = asyncio.Semaphore(_QUERIES_AT_ONCE)
        # Queries that wait for a position: only touched on the event loop.
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def position(self) -> int:
        """Physical offset up to which messages have been entered."""
        return self._builder.position

    @property
    def process_id(self) -> int | None:
        """The id of the process that builds the index; None while the thread does."""
        worker = self._worker
        return None if worker is None else worker.pid

    # --- life ---------------------------------------------------------------------------------

    def open(self, *, clean: bool, written: bool = False) -> None:
        """Map the files, once the commit log is recovered. `clean`: the last process closed them;
        `written`: it was killed, but everything that it wrote is there. Raises OSError,
        StoreLocked."""
        directory = self._table.directory
        wait_until_unlocked(directory.parent, directory)
        self._table.load(clean=clean, written=written)
        self._table.cut(self._knows)
        last = self._table.end_offset
        position = max(last, self._log.min_offset)
        # After a crash from the last message itself on: it may have come between two of its keys.
        if clean and last == position:
            position += len(self._log.record_at(last))
        self._builder.position = position

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
            self._inflow = Inflow(self._pace, self._readable())
            self._thread = threading.Thread(target=self._run, name="store-index", daemon=True)
            self._thread.start()

    async def stop(self) -> None:
        """End the thread. `finish` does the rest."""
        self._stopping = True
        if self._thread is not None:
            self._wake.set()
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
            self._thread = None
        self._reached(1 << 63)

    def finish(self) -> None:
        """Enter the rest and wait until all is on the disk; off the event loop.

        A backlog that takes longer than ten seconds is left for the next start.
        Raises OSError.
        """
        if not self._enabled:
            return
        self._follow_cut()
        deadline = time.monotonic() + _CLOSING_SECONDS
        try:
            self._table.link(TURN_BYTES)
            while self._builder.turn(self._readable()):
                if time.monotonic() > deadline:
                    log.warning("index is built up to %d only, for now", self.position)
                    break
        except DiskFull as error:
            log.error("index is not complete: %s", error)
        self._table.sync()

    def cut(self, end: int) -> None:
        """The log was cut at the physical offset `end`: drop what was entered from there on, with
        its files; the records that replace it are entered."""
        self._cut_at = end if self._cut_at is None else min(end, self._cut_at)
        self._wake.set()

    def _follow_cut(self) -> None:
        cut_at = self._cut_at
        if cut_at is None:
            return
        if cut_at < self._builder.position:
            self._dismiss()
            self._table.cut(lambda physical_offset: physical_offset < cut_at)
            # From the last message itself on, as after a crash.
            self._builder.position = max(self._table.end_offset, self._log.min_offset)
        if self._cut_at == cut_at:
            self._cut_at = None

    def close(self) -> None:
        """Close the files."""
        self._table.close()

    # --- asking -------------------------------------------------------------------------------

    async def query(
        self,
        topic: str,
        key: str,
        most: int,
        begin: int,
        end: int,
        *,
        since: int = 0,
        by_tags: bool = False,
    ) -> FoundMessages:
        """Up to `most` messages of a topic with a key, or a unique key, that were stored from
        `begin` to `end` (ms, to the second), at or after the physical offset `since`; of more, the
        newest. With `by_tags`, those with these tags. Those that are found within
        `IndexPace.search`: senders can choose keys that make the search long."""
        arrived: list[int] = []
        if not await self._catch_up(self._pace.moment):
            arrived = await self._newest(topic, self.position, _MOST_ARRIVED)
            if len(arrived) == _MOST_ARRIVED:
                self._lines.warning(
                    "index ends at %d: a query by key in topic %s looks only at the %d newest "
                    "messages after that", self.position, shown(topic), _MOST_ARRIVED,
                )  # fmt: skip
        most = min(most, self._most)
        search = _Search(
            self._table, self._log, topic, key, most, begin, end, since=since, by_tags=by_tags,
            arrived=iter(arrived),
        )  # fmt: skip
        deadline = time.monotonic() + self._pace.search
        while True:
            # In turns: a long search does not keep the others from being answered.
            async with self._turnstile:
                ended = await asyncio.to_thread(search.advance)
            if ended:
                break
            if time.monotonic() > deadline:
                self._lines.warning(
                    "a query by key in topic %s is answered with the %d messages found within "
                    "%g s; there may be older ones: very many keys share its place in the index",
                    shown(topic), len(search.found), self._pace.search,
                )  # fmt: skip
                break
        return search.result()

    async def _catch_up(self, seconds: float) -> bool:
        """Wait until everything that may be read by now is entered, at most so long; return whether
        it is."""
        with contextlib.suppress(OSError):  # what cannot be written cannot be read either
            self._log.write()
        target = self._readable()
        if self._thread is None or (self.position >= target and self._cut_at is None):
            return True
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((target, reached))
        self._wake.set()
        try:
            async with asyncio.timeout(seconds):
                await reached
        except TimeoutError:
            return False
        finally:
            self._waiting = [entry for entry in self._waiting if entry[1] is not reached]
        return True

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
            readable = self._readable()
            behind, with_process = readable - self.position, self._worker is not None
            busy = self._inflow.is_much(readable, behind, with_process=with_process)
            if busy and not self._waiting and self._cut_at is None:
                wait = _BUSY_SECONDS
                continue
            begin = self.position
            try:
                self._follow_cut()
                self._table.remove_before(self._log.min_offset)
                # Not until nothing is left: messages that come in now make a larger turn later.
                target = self._readable()
                while self.position < target and not self._stopping and self._advance(target):
                    self._leave_time()
                self._failed = False
                wait = _BUSY_SECONDS if self.position > begin else _IDLE_SECONDS
            except (DiskFull, OSError) as error:
                if not self._failed:
                    log.error(
                        "index: new messages cannot be found by key; check the disk: %s", error
                    )
                self._failed = True
                wait = _AFTER_FAILURE_SECONDS
            except Exception:
                log.exception("index: following the commit log from %d failed", self.position)
                wait = _AFTER_FAILURE_SECONDS
            if self._waiting and self._cut_at is None:
                self._tell(self.position)
            if time.monotonic() > self._worker_used + self._pace.process_idle:
                self._dismiss()
        self._dismiss()

    def _leave_time(self) -> None:
        """Let the event loop run as long as a long turn has disturbed it."""
        if self._worker is None and self._builder.took > LONG_TURN:
            time.sleep(min(self._builder.took, _LONGEST_PAUSE))

    def _tell(self, position: int) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._reached, position)
        except RuntimeError:
            log.warning("the event loop ended before the store was closed")

    def _advance(self, target: int) -> bool:
        """Enter the next messages before `target`, here or in the process; False when there were
        none. Raises DiskFull, OSError."""
        self._table.link(TURN_BYTES)
        behind = target - max(self.position, self._log.min_offset)
        if self._worker is None and (behind < self._pace.process_behind or self._worker_failed):
            return self._builder.turn(target)
        started = self._worker is None
        try:
            advanced = self._stretch(target)
        except (WorkerFailed, OSError, ValueError) as error:
            log.warning("index is built by a thread from here on: %s", error)
            self._give_up()
            return True
        if started or behind >= self._pace.busy_bytes:
            self._worker_used = time.monotonic()
        if self._waiting:
            self._tell(self.position)
        return advanced

    def _stretch(self, target: int) -> bool:
        """Have the process enter the next messages before `target`, as `_advance`.

        Raises WorkerFailed, OSError and ValueError; then what it entered is unknown.
        """
        if self._worker is None:
            self._worker = self._make_worker(
                self._table,
                self._log.files,
                lambda: self._stopping,
                closing=self._pace.process_closing,
            )
            log.info("index is built by a process from %d on: %d", self.position, self._worker.pid)
        first, before = self._log.min_offset, self.position
        begin = max(before, first)
        position = self._worker.enter(first, begin, min(target, begin + self._pace.stretch), target)
        self._table.refresh()
        self._builder.position = position
        return self.position > before

    def _give_up(self) -> None:
        """Go on without the process, from where it last answered. Raises OSError; then try again
        later."""
        if self._worker is not None:
            self._worker.kill()
            self._table.roll_back()
            self._worker = None
        self._worker_failed = True

    def _dismiss(self) -> None:
        """End the process, which has nothing to do."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
