"""The files of removed queues: a topic may have had ten thousand of them, and the removal of each
takes a wait for the disk, so a thread removes them a few at a time while the broker goes on.

A crash in between leaves queues of a topic that is deleted; the next start removes those
(`ConsumeQueueTable.delete_deleted`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pocketmq.store.files import Files, MappedFile, Retirement
from pocketmq.store.log.mapped_file_queue import FILE_NAME
from pocketmq.store.queue.queue_bounds import Bounds


class RemovedQueue(NamedTuple):
    """A queue that is gone for everybody, but whose files are still on the disk.

    bounds: where it began and ended, as far as that is known. mapped: its files that are mapped.
    """

    bounds: Bounds
    mapped: tuple[MappedFile, ...]


class RemovedQueues:
    """The removed queues of a store. `has_queues(topic)` tells whether a topic has others, so that
    its directory stays."""

    def __init__(
        self, files: Files, directory: Path, retired: Retirement, has_queues: Callable[[str], bool]
    ) -> None:
        self._files = files
        self._directory = directory
        self._retired = retired
        self._has_queues = has_queues
        # Held while one queue is removed, and while another one takes its name.
        self._lock = threading.Lock()
        self._left: dict[str, dict[int, RemovedQueue]] = {}

    def add(self, topic: str, queues: Mapping[int, RemovedQueue]) -> None:
        """Take queues of a topic by their id."""
        with self._lock:
            self._left.setdefault(topic, {}).update(queues)

    @contextlib.contextmanager
    def making(self, topic: str, queue_id: int) -> Iterator[None]:
        """Make a new queue in the block: one of its name is removed before. Raises OSError."""
        if topic not in self._left:
            yield
            return
        with self._lock:
            if queue_id in self._left.get(topic, ()):
                self._remove(topic, queue_id)
            yield

    def remove_some(self, most: int) -> bool:
        """Remove the files of at most `most` queues; return whether there are others. Blocks: to be
        called off the event loop. Raises OSError; the queue that failed is tried again next time.
        """
        for _ in range(most):
            with self._lock:
                topic = next(iter(self._left), None)
                if topic is None:
                    break
                queues = self._left[topic]
                if queues:
                    self._remove_or_defer(topic, next(iter(queues)))
                if not queues:
                    if not self._has_queues(topic):
                        self._files.remove_directory(self._directory / topic)
                    del self._left[topic]
        return bool(self._left)

    def bounds(self) -> list[tuple[str, int, Bounds]]:
        """Return topic, queue id and bounds of those whose files are not removed yet."""
        with self._lock:
            return [
                (topic, queue_id, queue.bounds)
                for topic, queues in self._left.items()
                for queue_id, queue in queues.items()
                if queue.bounds.begin >= 0 or not queue.bounds.is_known  # else it has no file
            ]

    def remove_all(self) -> None:
        """Remove the files of all of them. Blocks. Raises OSError."""
        while self.remove_some(1):
            pass

    def _remove_or_defer(self, topic: str, queue_id: int) -> None:
        """Remove a queue; if that fails, it and its topic come after all the others."""
        try:
            self._remove(topic, queue_id)
        except OSError:
            queues = self._left[topic] = self._left.pop(topic)
            queues[queue_id] = queues.pop(queue_id)
            raise

    def _remove(self, topic: str, queue_id: int) -> None:
        directory = self._directory / f"{topic}/{queue_id}"
        names = []
        with contextlib.suppress(FileNotFoundError):  # it never had a file
            names = sorted(filter(FILE_NAME.fullmatch, os.listdir(directory)))
        for name in names:
            self._files.remove(directory / name)
        if names:
            self._files.sync_directory(directory)
        self._files.remove_directory(directory)
        for file in self._left[topic].pop(queue_id).mapped:
            self._retired.add(file)
