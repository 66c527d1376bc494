"""Files of a store whose queues are flushed when a test says so."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from pocketmq.store.files import Files

PATIENCE = 120.0


class SteppedFiles(Files):
    """The thread that flushes the consume queues stops each time before it syncs the checkpoint,
    and goes on when `round` says so. Every file has been written to long ago, and the disk has
    room. `boot` is the start of the machine.

    The store must be opened with intervals of 1 ms for the consume queues.
    """

    def __init__(self, boot: int) -> None:
        self._boot = boot.to_bytes(16, "big")
        self._held = True
        self._abandoned = False
        self._arrived = threading.Semaphore(0)
        self._go = threading.Semaphore(0)

    def started(self) -> None:
        """Wait for the thread after the start of the store."""
        assert self._arrived.acquire(timeout=PATIENCE)

    def round(self) -> None:
        """Have the checkpoint synced, the queues flushed, and the checkpoint written."""
        self._go.release()
        assert self._arrived.acquire(timeout=PATIENCE)

    @contextlib.contextmanager
    def free(self) -> Iterator[None]:
        """Hold nothing up in the block: other threads need the checkpoint, too."""
        self.let_go()
        yield
        self._held = True
        assert self._arrived.acquire(timeout=PATIENCE)

    def let_go(self) -> None:
        """Hold nothing up any more."""
        self._held = False
        self._go.release()

    def abandon(self) -> None:
        """Sync nothing any more: the process is taken for dead."""
        self._abandoned = True
        self.let_go()

    def fdatasync(self, fd: int) -> None:
        if (
            self._held
            and threading.current_thread().name == "store-flush-queues"
            and os.readlink(f"/proc/self/fd/{fd}").endswith("/checkpoint")
        ):
            self._arrived.release()
            self._go.acquire()
        if not self._abandoned:
            super().fdatasync(fd)

    def modified_ms(self, path: Path) -> int:
        return 0

    def used_percent(self, directory: Path) -> int:
        return 0

    def boot_id(self) -> bytes:
        return self._boot

    def identity(self, path: Path) -> tuple[int, int]:
        """Take the copy that a kill leaves for the files themselves."""
        return 1, 1
