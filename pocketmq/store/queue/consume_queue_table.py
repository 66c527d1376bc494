"""All consume queues of a store, by topic and queue id. Reference: ConsumeQueueStore."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType

from pocketmq.message.limits import LIGHT_QUEUE_PREFIX, TOPIC_PATTERN, is_system_topic
from pocketmq.store.errors import NotADirectory
from pocketmq.store.files import Files, Retirement
from pocketmq.store.queue.batch_topics import batch_topics
from pocketmq.store.queue.consume_queue import ArrivalListener, ConsumeQueue

log = logging.getLogger(__name__)


class ConsumeQueueTable:
    """Finds, makes and removes queues.

    Attributes:
        by_topic: topic → queue id → queue.
        all: every queue. Replaced, never changed in place: a flush thread may walk through it.
    """

    def __init__(self, files: Files, directory: Path, file_size: int, retired: Retirement) -> None:
        self.by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self.all: tuple[ConsumeQueue, ...] = ()
        self._files = files
        self._directory = directory
        self._file_size = file_size
        self._retired = retired
        # Topics whose queues are of another kind: an entry of ours would keep the official broker
        # from opening the store.
        self._batch_topics: frozenset[str] = frozenset()
        # Listeners outlive queues: a long poll may wait for a queue that has no message yet.
        self._listeners: dict[tuple[str, int], tuple[ArrivalListener, ...]] = {}

    @property
    def view(self) -> Mapping[str, Mapping[int, ConsumeQueue]]:
        """`by_topic`, read-only."""
        return MappingProxyType(self.by_topic)

    @property
    def has_foreign(self) -> bool:
        """Whether there are queues that only the official broker can fill."""
        light = self._directory.glob(f"{LIGHT_QUEUE_PREFIX}*/")
        return bool(self._batch_topics) or next(light, None) is not None

    def load(self, *, clean: bool) -> None:
        """Open the queues on disk, `clean` after a clean stop.

        Raises as `ConsumeQueue.load`, and ConfigFileError.
        """
        self._batch_topics = batch_topics(self._directory.parent)
        if not self._directory.is_dir():
            return
        for path in sorted(self._directory.glob("*/*")):
            try:
                if not path.is_dir():
                    if path.name.isdecimal():
                        raise NotADirectory(path)
                    continue
                queue = self.find_or_create(path.parent.name, int(path.name))
            except ValueError as error:
                log.warning("%s is ignored: %s", path, error)
            else:
                queue.load(clean=clean)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, if it has or had a message."""
        queues = self.by_topic.get(topic)
        return queues.get(queue_id) if queues is not None else None

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue; a new one has no file before its first message.

        Raises ValueError for a topic that cannot name a directory, or that is not served.
        """
        queue = self.find(topic, queue_id)
        if queue is None:
            if TOPIC_PATTERN.fullmatch(topic) is None or queue_id < 0:
                raise ValueError(f"topic {topic!r} with queue {queue_id} cannot have a queue")
            if topic in self._batch_topics:
                raise ValueError(f"topic {topic!r} has batch consume queues, which are not served")
            if topic.startswith(LIGHT_QUEUE_PREFIX):
                # Its entries point at the records of other topics.
                raise ValueError(f"topic {topic!r} is a light queue, which is not served")
            directory = self._directory / topic / str(queue_id)
            queue = ConsumeQueue(
                self._files, directory, topic, queue_id, self._file_size, self._retired
            )
            queue.listeners = self._listeners.get((topic, queue_id), ())
            self.by_topic.setdefault(topic, {})[queue_id] = queue
            self.all = (*self.all, queue)
        return queue

    def delete_topic(self, topic: str) -> bool:
        """Remove all queues of a topic; False when it has none. Its records stay in the commit
        log until they expire. Raises OSError."""
        queues = self.by_topic.pop(topic, None)
        if queues is None:
            # A power failure may have brought back the directory of one that was deleted.
            if TOPIC_PATTERN.fullmatch(topic):
                self._files.remove_directory(self._directory / topic)
            return False
        self.all = tuple(queue for queue in self.all if queue.topic != topic)
        for queue in queues.values():
            queue.remove()
            self._files.remove_directory(queue.files.directory)
        self._files.remove_directory(self._directory / topic)
        log.info("the consume queues of topic %s are removed", topic)
        return True

    def delete_expired(self, min_physical: int) -> None:
        """Remove the queues whose every message the commit log no longer has, except those of
        system topics; their next message gets queue offset 0. Raises OSError."""
        for queue in self.all:
            # One with messages that wait for a flush is alive.
            if (
                0 <= queue.max_physical < min_physical
                and queue.next_offset == queue.max_offset
                and not is_system_topic(queue.topic)
            ):
                self._delete_queue(queue)
                log.info("the expired queue %s/%d is removed", queue.topic, queue.queue_id)

    def delete_deleted(self, deleted: Mapping[str, int]) -> None:
        """Remove what recovery found again of topics that had been deleted: `deleted` has where the
        log ended then, as a physical offset. A queue with messages from behind that is of a topic
        that was made anew, and has nothing else. Raises OSError."""
        for queue in self.all:
            if 0 <= queue.max_physical <= deleted.get(queue.topic, 0):
                self._delete_queue(queue)

    def _delete_queue(self, queue: ConsumeQueue) -> None:
        queues = self.by_topic[queue.topic]
        del queues[queue.queue_id]
        self.all = tuple(other for other in self.all if other is not queue)
        queue.remove()
        self._files.remove_directory(queue.files.directory)
        if not queues:
            del self.by_topic[queue.topic]
            self._files.remove_directory(self._directory / queue.topic)

    def bounds(self) -> int:
        """Return a digest of where each queue begins and ends, which is never 0."""
        bounds = sorted(
            f"{queue.topic}/{queue.queue_id}/{queue.files.first_offset}/{queue.max_offset}/"
            f"{queue.max_physical}\n"
            for queue in self.all
            if queue.max_physical >= 0
        )
        digest = blake2b("".join(bounds).encode(), digest_size=8).digest()
        return int.from_bytes(digest, signed=True) or 1

    def listen(self, topic: str, queue_id: int, listener: ArrivalListener) -> None:
        """Call `listener` for each message that becomes readable in a queue."""
        self._set_listeners(topic, queue_id, (*self._of(topic, queue_id), listener))

    def unlisten(self, topic: str, queue_id: int, listener: ArrivalListener) -> None:
        """Undo `listen`; does nothing when it was not called."""
        # Bound methods are equal, not identical, each time they are looked up.
        kept = tuple(other for other in self._of(topic, queue_id) if other != listener)
        self._set_listeners(topic, queue_id, kept)

    def close(self) -> None:
        """Close all files."""
        for queue in self.all:
            queue.files.close()
        self.all = ()
        self.by_topic.clear()

    def _of(self, topic: str, queue_id: int) -> tuple[ArrivalListener, ...]:
        return self._listeners.get((topic, queue_id), ())

    def _set_listeners(
        self, topic: str, queue_id: int, listeners: tuple[ArrivalListener, ...]
    ) -> None:
        if listeners:
            self._listeners[topic, queue_id] = listeners
        else:
            self._listeners.pop((topic, queue_id), None)
        queue = self.find(topic, queue_id)
        if queue is not None:
            queue.listeners = listeners
