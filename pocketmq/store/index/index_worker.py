"""A process that builds the index for the broker when there is much to do.

A thread that enters keys shares the interpreter lock with the event loop, which costs a fifth of
the rate of sends. So the index thread hands large backlogs to `index_process`, one stretch at a
time: a line with the physical offsets, answered by a line with the one that was reached. Between a
line and its answer only that process writes to the index files, and otherwise only the thread.

It must not outlive the broker and write into files that the next one has. Before every turn it
checks that the broker still runs. Before it starts, the index directory is locked (`flock`) through
a descriptor that it inherits and the broker closes: the lock lasts as long as the process, whatever
happened to the broker, and the next broker waits for it.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final, Protocol

from pocketmq.store.errors import StoreError
from pocketmq.store.files import make_directories
from pocketmq.store.index.index_table import IndexTable
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.store_lock import locked

# A stretch takes a second, but the process is nice, and may have to wait for the disk.
_PATIENCE_SECONDS: Final = 120.0
_CLOSING_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.5


class MakeWorker(Protocol):
    """Starts a worker, as `IndexWorker` does."""

    def __call__(
        self,
        table: IndexTable,
        log_files: MappedFileQueue,
        is_closing: Callable[[], bool],
        *,
        closing: float,
    ) -> IndexWorker: ...


class WorkerFailed(StoreError):
    """The process could not be started, has died, or says what went wrong."""


class IndexWorker:
    """The process, from its start to `stop` or `kill`."""

    def __init__(
        self,
        table: IndexTable,
        log_files: MappedFileQueue,
        is_closing: Callable[[], bool],
        *,
        closing: float = _CLOSING_SECONDS,
        look: float = _LOOK_SECONDS,
    ) -> None:
        """Start it. Once `is_closing`, which is asked every `look` seconds while it works, it is
        waited for `closing` seconds at most.

        Raises WorkerFailed.
        """
        self._closing = closing
        self._look = look
        self._is_closing = is_closing
        try:
            make_directories(table.directory)
            with locked(table.directory) as lock:
                self._process = subprocess.Popen(
                    [
                        # -P: nothing is imported from the working directory.
                        *(sys.executable, "-P", "-m", "pocketmq.store.index.index_process"),
                        *(str(table.directory), str(table.slots), str(table.capacity)),
                        *(str(log_files.directory), str(log_files.file_size), str(os.getpid())),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    bufsize=0,
                    pass_fds=(lock,),
                    # A Ctrl-C at the terminal is for the broker.
                    start_new_session=True,
                    env={
                        **os.environ,
                        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
                        "OPENBLAS_NUM_THREADS": "1",
                    },
                )
        except OSError as error:
            raise WorkerFailed(f"the process for the index cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def enter(self, first: int, begin: int, enough: int, end: int) -> int:
        """Have messages entered from the physical offset `begin` on until `enough` is reached, in a
        log from `first` to `end`; returns where that is. Blocks for a second or so.

        Raises WorkerFailed; some of the keys may have been entered then.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"%d %d %d %d\n" % (first, begin, enough, end))
        except OSError as error:
            raise WorkerFailed(f"the process for the index is gone: {error}") from error
        answer = self._answer()
        try:
            return int(answer)
        except ValueError:
            said = answer.decode("utf-8", "replace").strip()
            raise WorkerFailed(f"the process for the index says: {said}") from None

    def stop(self) -> None:
        """End it, while it has nothing to do, and wait for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(self._closing)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self.kill()

    def kill(self) -> None:
        """End it, whatever it does, and wait for that."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _answer(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        answer = b""
        while not answer.endswith(b"\n"):
            if ready.poll(self._look * 1000):
                part = os.read(descriptor, 4096)
                if not part:
                    status = self._process.wait()
                    raise WorkerFailed(f"the process for the index ended with status {status}")
                answer += part
                continue
            now = time.monotonic()
            if now > deadline:
                raise WorkerFailed("the process for the index does not answer")
            if self._is_closing():
                deadline = min(deadline, now + self._closing)
        return answer
