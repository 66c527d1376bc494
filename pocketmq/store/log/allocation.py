"""Makes the next commit-log file before it is needed, on its own thread.

Allocating one would stall the event loop for milliseconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from pocketmq.store.errors import StoreError
from pocketmq.store.files import Files, MappedFile

log = logging.getLogger(__name__)


class FileAllocator:
    """Hands out files and looks ahead; without `start` it works, but in the caller's thread.

    All methods belong to the event loop's thread.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._next: _NextFile | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="store-allocate", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and remove the file that was made ahead but not used."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None
        self.forget()

    def forget(self) -> None:
        """Remove the file that was made ahead: another one may follow now."""
        if self._next is not None:
            self._next.discard(self._files)
            self._next = None

    def take(self, path: Path, base_offset: int, size: int) -> MappedFile:
        """Return the file at `path`: the one made ahead, or made now. Raises DiskFull."""
        ahead, self._next = self._next, None
        if ahead is not None:
            if ahead.path == path and (file := ahead.wait()) is not None:
                return file
            # It failed, perhaps long ago: check whether there is room now.
            ahead.discard(self._files)
        return _created(self._files, path, base_offset, size)

    def look_ahead(self, file: MappedFile, position: int, next_path: Path) -> int:
        """Make the next file once `file` is half written; return the position to call again at.

        Call it when `file` is written up to the position that the last call returned.
        """
        if self._thread is None:
            return file.size
        half = file.size // 2
        if position < half:
            return half
        if self._next is None:
            self._next = ahead = _NextFile(next_path, file.base_offset + file.size, file.size)
            self.submit(lambda: ahead.make(self._files))
        return file.size

    def submit(self, task: Callable[[], object]) -> None:
        """Run `task` on the thread, after the tasks before it. A failure is logged."""
        self._tasks.put(task)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception:
                log.exception("commit log: preparing the next file failed")


class _NextFile:
    """A file being made on the allocator's thread."""

    def __init__(self, path: Path, base_offset: int, size: int) -> None:
        self.path = path
        self._base_offset = base_offset
        self._size = size
        self._file: MappedFile | None = None
        self._made = threading.Event()

    def make(self, files: Files) -> None:
        try:
            self._file = _created(files, self.path, self._base_offset, self._size)
        except (StoreError, OSError) as error:
            log.warning("commit log: cannot create the next file yet; check the disk: %s", error)
        finally:
            self._made.set()

    def wait(self) -> MappedFile | None:
        """Return the file; None when it could not be made."""
        self._made.wait()
        return self._file

    def discard(self, files: Files) -> None:
        """Remove the file again: nothing was written to it."""
        file = self.wait()
        if file is not None:
            files.remove(self.path)
            file.close()


def _created(files: Files, path: Path, base_offset: int, size: int) -> MappedFile:
    """Create a file whose name and size are on the disk before anything is written into it.

    So a power failure takes the end of the log, never a file in the midst of it.
    """
    file = files.create(path, base_offset, size)
    try:
        file.sync()
    except BaseException:
        files.remove(path)
        file.close()
        raise
    return file
