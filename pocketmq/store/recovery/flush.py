"""Flushes stored messages to the disk on its own threads, and calls those that wait for it.

A message is first *stored* (in the mapped commit log: it survives the process), then *flushed*
(it survives the machine). With ASYNC_FLUSH a send is answered when it is stored, and the flush
follows within half a second, or ten where there is little to flush. With SYNC_FLUSH it is answered
when it is flushed. Sends that arrive during one flush are served together by the next `fdatasync`
(group commit).

A flush that fails is final. The kernel may have dropped the dirty pages and reports the error only
once, so a later success would prove nothing: the store stops taking messages. Reference:
CommitLog.GroupCommitService, FlushRealTimeService, DefaultMessageStore.FlushConsumeQueueService.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from pocketmq.limited_log import LimitedLog
from pocketmq.store.config import StoreConfig
from pocketmq.store.files import Files
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue import ConsumeQueue

log = logging.getLogger(__name__)

_PAGE: Final = 4096
_ALL: Final = 1 << 63
_MANY_QUEUES: Final = 200
_STOPPING_THREADS: Final = 16

_FlushOne = Callable[[ConsumeQueue], None]
#: Called once, on the event loop: True when the data it waits for is on the disk.
FlushListener = Callable[[bool], None]


class CommitLogFlusher:
    """Flushes the commit log. `flushed` is the physical offset up to which it is on the disk.

    `on_flushed` is called on the event loop after each flush, `on_failed` after the first failure.
    All methods belong to the event loop's thread.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        checkpoint: Checkpoint,
        config: StoreConfig,
        *,
        on_flushed: Callable[[int], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        self.flushed = commit_log.end
        self.failure: OSError | None = None
        self._log = commit_log
        self._checkpoint = checkpoint
        self._interval = config.flush_interval_commit_log / 1000
        self._least = config.flush_commit_log_least_pages * _PAGE
        self._thorough = config.flush_commit_log_thorough_interval / 1000
        self._timeout = config.sync_flush_timeout / 1000
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # True: flush now; False: end. Nothing for an interval: flush if it is worth it.
        self._orders: SimpleQueue[bool] = SimpleQueue()
        self._ordered = False
        self._due = False
        #: Held during a flush, so that nobody cuts the log meanwhile.
        self.flushing = threading.Lock()
        # (end offset, deadline, listener), both rising.
        self._waiting: deque[tuple[int, float, FlushListener]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        # `flushed` as the loop knows it: messages are acknowledged only up to here, because later
        # ones cannot be read yet.
        self._told = 0

    def start(self) -> None:
        """Start the thread; it reports to the running loop."""
        self._loop = asyncio.get_running_loop()
        self._told = self.flushed
        self._thread = threading.Thread(target=self._run, name="store-flush-log", daemon=True)
        self._thread.start()

    def order(self) -> None:
        """Order a flush of this turn's puts, without waiting for the interval."""
        if self._loop is not None and not self._due:
            self._due = True
            self._loop.call_soon(self._order)

    def _order(self) -> None:
        # Not before the end of the turn: one flush for all that came in one read.
        self._due = False
        try:
            self._log.write()
        except OSError:  # `fail_unwritten` follows
            return
        if not self._ordered:
            self._ordered = True
            self._orders.put(True)

    def when_flushed(self, end_offset: int, listener: FlushListener) -> None:
        """Call `listener` when the log is on the disk up to `end_offset`: at once if it is, else
        later; with False when it cannot be written or flushed, or that took longer than
        syncFlushTimeout."""
        if end_offset <= (self.flushed if self._loop is None else self._told):
            listener(True)
        elif self.failure is not None or self._loop is None:
            listener(False)
        else:
            deadline = self._loop.time() + self._timeout
            self._waiting.append((end_offset, deadline, listener))
            if self._timer is None:
                self._timer = self._loop.call_at(deadline, self._expire)
            self.order()

    def fail_unwritten(self) -> None:
        """Call the listeners that wait for what cannot be written, with False; not within the call
        that failed to write it, but in the next turn of the event loop."""
        if self._loop is not None:
            self._loop.call_soon(self._fail_unwritten)

    def _fail_unwritten(self) -> None:
        waiting, written = self._waiting, self._log.written
        failed = []
        while waiting and waiting[-1][0] > written:
            failed.append(waiting.pop()[2])
        for listener in reversed(failed):
            _call(listener, False)

    async def stop(self) -> None:
        """Flush the rest and end the thread. Pending listeners are called."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._orders.put(False)
        await loop.run_in_executor(None, thread.join)
        self._thread = None
        self._answer(_ALL, False)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop = None

    def flush(self) -> int:
        """Wait until everything stored so far is on the disk, and return its end.

        For the flush thread, and for a store whose threads do not run. Raises OSError.
        """
        with self.flushing:
            return self._flush()

    def cut(self, end: int) -> None:
        """The log was cut at the physical offset `end`: fail the waits for later offsets."""
        self.flushed = min(self.flushed, end)
        self._told = min(self._told, end)
        failed = []
        while self._waiting and self._waiting[-1][0] > end:
            failed.append(self._waiting.pop()[2])
        for listener in reversed(failed):
            _call(listener, False)

    def _flush(self) -> int:
        # In this order: the timestamp is that of a record before `end`, and the write ended there.
        # Not up to `written`: a start refuses a log that was flushed beyond its last whole record.
        timestamp = self._log.store_timestamp
        last_write = self._log.last_write
        end = self._log.whole
        for file in self._log.dirty_files(self.flushed, end):
            file.sync()
            if file.base_offset + file.size <= end:  # nothing more is written to it
                # Damage in a whole file is to be known for damage after a power failure, too.
                self._checkpoint.must_sync = True
                self._log.files.save_descriptor(file)
        self.flushed = end
        if timestamp:
            self._checkpoint.physic_timestamp = timestamp
        self._checkpoint.confirm_physical_offset = end
        self._checkpoint.last_write = last_write
        # At once: a start refuses a log that is shorter than what was acknowledged.
        self._checkpoint.save()
        return end

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        last = time.monotonic()
        while True:
            try:
                ordered: bool | None = self._orders.get(timeout=self._interval)
            except Empty:
                ordered = None
            if ordered is None:
                waiting = self._log.whole - self.flushed
                thorough = time.monotonic() - last >= self._thorough
                if waiting == 0 or (waiting < self._least and not thorough):
                    continue
            # Before the flush looks where the log ends: orders from here on get another flush.
            self._ordered = False
            try:
                end = self.flush()
                last = time.monotonic()
            except OSError as error:
                self._tell(self._failed, error)
                return
            self._tell(self._done, end)
            if ordered is False:
                return

    def _tell(self, what: Callable[..., None], value: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(what, value)
        except RuntimeError:
            log.warning("the event loop ended before the store was closed")

    # --- back on the loop ---------------------------------------------------------------------

    def _done(self, end: int) -> None:
        end = min(end, self.flushed)  # the log may have been cut since
        self._on_flushed(end)
        self._told = end
        self._answer(end, True)

    def _failed(self, error: OSError) -> None:
        self.failure = error
        self._on_failed(error)
        self._answer(_ALL, False)

    def _answer(self, end: int, outcome: bool) -> None:
        """Call the listeners that wait for an offset up to `end`."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= end:
            _call(waiting.popleft()[2], outcome)

    def _expire(self) -> None:
        assert self._loop is not None
        now = self._loop.time()
        while self._waiting and self._waiting[0][1] <= now:
            _call(self._waiting.popleft()[2], False)
        self._timer = (
            self._loop.call_at(self._waiting[0][1], self._expire) if self._waiting else None
        )


def _call(listener: FlushListener, outcome: bool) -> None:
    try:
        listener(outcome)
    except Exception:
        log.exception("a listener of the flush failed")


class ConsumeQueueFlusher:
    """Flushes consume queues and the checkpoint once a second, on its own thread.

    `queues` gives all queues; `entered` the physical offset and the store timestamp up to which
    messages have their entry; `after_round` is called on the thread after each round.

    Attributes:
        failed: a flush failed. Messages are still taken, since the next start builds the queues
            again from where the checkpoint stays from then on.
    """

    def __init__(
        self,
        queues: Callable[[], Iterable[ConsumeQueue]],
        checkpoint: Checkpoint,
        config: StoreConfig,
        *,
        entered: Callable[[], tuple[int, int]],
        after_round: Callable[[], None],
    ) -> None:
        self._queues = queues
        self._checkpoint = checkpoint
        self._interval = config.flush_interval_consume_queue / 1000
        self._least = config.flush_consume_queue_least_pages * _PAGE
        self._thorough = config.flush_consume_queue_thorough_interval / 1000
        self._entered = entered
        self._after_round = after_round
        self.failed = False
        self._log = LimitedLog(log)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        # The removal of old log files flushes, too; else the checkpoint might go back.
        self.flushing = threading.Lock()
        self._last_thorough = time.monotonic()
        # Flushes what an earlier process left, until that is done.
        self._flush_left: Callable[[], None] | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="store-flush-queues", daemon=True)
        self._thread.start()

    def flush_files_first(self, directory: Path, files: Files) -> None:
        """Have the next thorough flush include every file below `directory`: an earlier process may
        have written to queues that this one has not opened."""
        self._flush_left = partial(_flush_tree, directory, files)

    async def stop(self) -> None:
        """End the thread. `flush` does the rest."""
        if self._thread is not None:
            self._stop.set()
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
            self._thread = None

    def flush(self, *, thorough: bool) -> None:
        """Wait until the queues are on the disk: all entries, or only where it is worth it.

        Raises OSError. Only a thorough flush moves the checkpoint on.
        """
        with self.flushing:
            self._flush(thorough, _one_by_one)

    def flush_last(self) -> None:
        """Do a thorough flush while nobody waits for the disk: many queues at the same time, which
        then share the commits of the file system's journal. Raises OSError."""
        with self.flushing:
            self._flush(True, _side_by_side)

    def _flush(self, thorough: bool, run: Callable[[_FlushOne, list[ConsumeQueue]], None]) -> None:
        offset, timestamp = self._entered()
        least = 0 if thorough else self._least
        if thorough and self._flush_left is not None:
            try:
                self._flush_left()
            except OSError:
                self.failed = True
                raise
            self._flush_left = None
        run(self._flush_queue, [queue for queue in self._queues() if queue.dirty(least)])
        if thorough:
            self._move_on(offset, timestamp)
        if thorough or self._checkpoint.must_sync:
            self._checkpoint.sync()
        else:
            self._checkpoint.save()

    def _flush_queue(self, queue: ConsumeQueue) -> None:
        try:
            queue.flush()
        except OSError:
            if not queue.removed:
                self.failed = True
                raise

    def _move_on(self, offset: int, timestamp: int) -> None:
        if not self.failed:
            if timestamp > 0 and not self._checkpoint.holds_logics:
                self._checkpoint.logics_timestamp = timestamp
            self._checkpoint.entered_offset = offset

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            thorough = time.monotonic() - self._last_thorough >= self._thorough
            try:
                self.flush(thorough=thorough)
            except OSError as error:
                self._log.error("flushing the consume queues failed: %s", error)
            if thorough:
                self._last_thorough = time.monotonic()
            self._after_round()


def _flush_tree(directory: Path, files: Files) -> None:
    """Wait until everything below a directory is on the disk. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
        with os.scandir(directory) as found:
            entries = list(found)
        for entry in entries:
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                _flush_tree(path, files)
            elif entry.is_file(follow_symlinks=False):
                _flush_file(path, files)
        files.sync_directory(directory)


def _flush_file(path: Path, files: Files) -> None:
    with contextlib.suppress(FileNotFoundError):
        fd = files.open_again(path)
        try:
            files.fdatasync(fd)
        finally:
            os.close(fd)


def _one_by_one(flush: _FlushOne, queues: list[ConsumeQueue]) -> None:
    for queue in queues:
        flush(queue)


def _side_by_side(flush: _FlushOne, queues: list[ConsumeQueue]) -> None:
    if len(queues) < _MANY_QUEUES:
        _one_by_one(flush, queues)
        return
    with ThreadPoolExecutor(_STOPPING_THREADS, "store-flush-queues") as pool:
        for _ in pool.map(flush, queues):
            pass
