"""All consume queues of a store, by topic and queue id. Reference: ConsumeQueueStore."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Set
from heapq import nlargest
from itertools import islice
from pathlib import Path
from typing import Final

from pocketmq.message.limits import LIGHT_QUEUE_PREFIX, STORED_TOPIC_PATTERN, is_system_topic
from pocketmq.message.multi_dispatch import LIGHT_QUEUE_ID, is_light_queue
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT as UNIT
from pocketmq.store.encoding.queue_entry import iter_entries
from pocketmq.store.errors import (
    FileSizeMismatch,
    NotADirectory,
    QueueMisfit,
    StoreCorrupt,
    StoreError,
)
from pocketmq.store.files import Files, Retirement
from pocketmq.store.log.queue_mappings import QueueMappings
from pocketmq.store.queue.batch_topics import batch_topics
from pocketmq.store.queue.consume_queue import ArrivalListener, ConsumeQueue
from pocketmq.store.queue.queue_bounds import NO_BOUNDS, UNKNOWN, Bounds, KnownBounds
from pocketmq.store.queue.removed_queues import RemovedQueue, RemovedQueues

log = logging.getLogger(__name__)

_QUEUES_OF_TURN: Final = 64

#: Called with a queue that is opened after recovery, and whether it ends where the last stop left
#: it.
Settle = Callable[[ConsumeQueue, bool], None]


def _nobody_listens(topic: str, queue_id: int) -> None:
    """Do nothing."""


class ConsumeQueueTable:
    """Finds, makes and removes queues.

    A queue on the disk is opened when it is first asked for: if a start opened all of them, its
    time would grow with their number.

    Attributes:
        by_topic: topic → queue id → queue, of those that are open. `find` has the others.
        light_queues: the number of light queues.
        removed: queues that were removed, and whose files are still on the disk.
        on_begun: called with topic and queue id of each queue that is made, or begins anew.
    """

    def __init__(self, files: Files, directory: Path, file_size: int, retired: Retirement) -> None:
        self.by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self.light_queues = 0
        self.removed = RemovedQueues(files, directory, retired, self.by_topic.__contains__)
        self.on_begun: Callable[[str, int], None] = _nobody_listens
        self._files = files
        self._directory = directory
        self._file_size = file_size
        self._retired = retired
        self._mappings = QueueMappings(files)
        self._open_queues: dict[ConsumeQueue, None] = {}
        # Topics with queues on the disk that are not open, and the ids of these; None while the
        # topic's directory has not been listed.
        self._unopened: dict[str, set[int] | None] = {}
        self._clean = True  # whether queues on the disk are as after a clean stop
        self._known = NO_BOUNDS
        self._compared = False  # whether queues must be as `_known` says when they are opened
        self._settle: Settle | None = None
        # Topics whose queues are of another kind: an entry of this kind would keep the official
        # broker from opening the store.
        self._batch_topics: frozenset[str] = frozenset()
        # Listeners outlive queues: a long poll may wait for a queue that has no message yet.
        self._listeners: dict[tuple[str, int], tuple[ArrivalListener, ...]] = {}

    @property
    def all(self) -> list[ConsumeQueue]:
        """Every queue that is open, in a list of the caller's own: a flush thread may ask."""
        return list(self._open_queues)

    @property
    def has_foreign(self) -> bool:
        """Whether there are queues that only the official broker can fill."""
        return bool(self._batch_topics)

    @property
    def is_missing(self) -> bool:
        """Whether there are no queues, neither open nor on the disk, for no known reason."""
        there = self._open_queues or any(self.queue_ids(topic) for topic in self.topics())
        return not there and not self._known.current

    def topics(self) -> list[str]:
        """Return the topics with queues. One whose directory is empty may be among them."""
        return [*self.by_topic, *(topic for topic in self._unopened if topic not in self.by_topic)]

    def has_topic(self, topic: str) -> bool:
        """Return whether `topics` lists it."""
        return topic in self.by_topic or topic in self._unopened

    def queue_ids(self, topic: str) -> set[int]:
        """Return the ids of a topic's queues, open or not."""
        return {*self.by_topic.get(topic, ()), *self._ids_on_disk(topic)}

    def unopened(self) -> list[tuple[str, int]]:
        """Return topic and queue id of each queue that is on the disk but not open."""
        return [
            (topic, queue_id)
            for topic in sorted(self._unopened)
            for queue_id in sorted(self._ids_on_disk(topic))
        ]

    # --- opening ------------------------------------------------------------------------------

    def load(self, *, clean: bool, bounds: KnownBounds = NO_BOUNDS) -> None:
        """Look which topics are on the disk, whose queues are as after a clean stop, or not.
        `bounds`: what is known of them; current if nothing has used the store since.

        Raises ConfigFileError, OSError.
        """
        self._clean = clean
        self._mappings.in_turn = True
        self._known = bounds
        self._compared = bounds.current
        self._batch_topics = batch_topics(self._directory.parent)
        if not self._directory.is_dir():
            return
        with os.scandir(self._directory) as found:
            names = sorted(entry.name for entry in found if entry.is_dir())
        for name in names:
            try:
                self._check(name, 0)
            except ValueError as error:
                log.warning("%s is ignored: %s", self._directory / name, error)
            else:
                self._unopened[name] = None
                self.light_queues += name.startswith(LIGHT_QUEUE_PREFIX)

    def settled(self, settle: Settle) -> None:
        """Take the queues that are not open yet for whole from now on: the store is recovered.
        `settle` is called for each of them once it is open."""
        self._clean = True
        self._mappings.in_turn = False
        self._settle = settle
        for topic, queues in self._known.table.items():
            for queue_id, bounds in queues.items():
                built_again = self._known.current and not self._compared
                if built_again or bounds.skips or (bounds.begin < 0 and bounds.next > 0):
                    self._keep_next(topic, queue_id, bounds)

    def _keep_next(self, topic: str, queue_id: int, bounds: Bounds) -> None:
        """Have the offsets of lost messages at the end of a queue not given again."""
        try:
            queue = self.find(topic, queue_id)
            if queue is None and bounds.next > 0 and (bounds.begin < 0 or self._known.current):
                self.find_or_create(topic, queue_id).start_at(bounds.next)
        except (StoreError, OSError, ValueError) as error:
            log.error("queue %s/%d cannot be opened: %s", topic, queue_id, error)
            return
        if queue is None:
            return
        if not self._known.current:
            _skip(queue, bounds)
        elif queue.next_offset < bounds.next:
            queue.skip_until(bounds.next)

    # --- what the last stop left --------------------------------------------------------------

    def check_listed(self) -> None:
        """See whether the queues on the disk are those of the last stop, by the names and sizes of
        their files: opens only those that do not look so. Does nothing when the last stop left no
        word of them. Raises as `find`."""
        if not self._compared:
            return
        table = self._known.table
        for topic, queues in table.items():
            there = self.queue_ids(topic)
            for queue_id, bounds in queues.items():
                if bounds.is_known and bounds.begin < 0:
                    continue  # it had no file
                if queue_id not in there:
                    raise QueueMisfit(
                        self._directory / topic / str(queue_id), 0, "the queue is missing"
                    )
                if bounds.is_known and not self._looks_like(topic, queue_id, bounds):
                    self.find(topic, queue_id)
        for topic, queue_id in self.unopened():
            if queue_id not in table.get(topic, {}):
                self.find(topic, queue_id)

    def distrust_bounds(self) -> None:
        """Stop comparing the queues with what they were at the last stop, and treat files after a
        gap as lost: they are rebuilt."""
        self._compared = False
        self._clean = False

    def trust(self) -> None:
        """Open queues as after a clean stop: nothing that was written to them is lost."""
        self._clean = True

    def reopen(self) -> None:
        """Close all queues, and open them as after a crash."""
        self._clean = False
        self.removed.remove_all()
        for queue in self._open_queues:
            queue.files.close()
            if queue.files.directory.is_dir():
                self._unopened[queue.topic] = None
        self._open_queues.clear()
        self.by_topic.clear()
        self.light_queues = sum(topic.startswith(LIGHT_QUEUE_PREFIX) for topic in self._unopened)

    def bounds(self) -> dict[str, dict[int, Bounds]]:
        """Return where each queue begins and ends, as far as it is known without opening any."""
        found: dict[str, dict[int, Bounds]] = {}
        for queue in self._open_queues:
            if queue.files.mapped or queue.next_offset:
                found.setdefault(queue.topic, {})[queue.queue_id] = queue.bounds
        for topic, queue_id in self.unopened():
            known = self._bounds_of(topic, queue_id) if self._compared else None
            found.setdefault(topic, {})[queue_id] = known or UNKNOWN
        for topic, queue_id, bounds in self.removed.bounds():
            # The next start finds these, and removes them.
            found.setdefault(topic, {})[queue_id] = bounds
        return found

    def _bounds_of(self, topic: str, queue_id: int) -> Bounds | None:
        return self._known.table.get(topic, {}).get(queue_id)

    def _looks_like(self, topic: str, queue_id: int, bounds: Bounds) -> bool:
        """Return whether a queue has its first file and that of its last entry."""
        size = self._file_size
        first = bounds.begin * UNIT
        last = max(first, (bounds.end * UNIT - 1) // size * size)
        try:
            return all(
                os.stat(f"{self._directory}/{topic}/{queue_id}/{base:020d}").st_size == size
                for base in {first, last}
            )
        except OSError:
            return False

    def _compare(self, queue: ConsumeQueue) -> bool:
        """Return whether a queue ends where the last stop left it; False when nobody knows. Raises
        QueueMisfit when it does not.

        After recovery, a last entry with other values will do: it is damaged, and is built from
        the log again when it is read.
        """
        known = self._bounds_of(queue.topic, queue.queue_id)
        found = queue.bounds
        if known is None:
            fits = found.physical < 0
            known = Bounds(found.begin, found.begin, -1, 0)
        elif known.is_known:
            fits = (known.begin, known.end) == (found.begin, found.end)
            if fits and known.physical != found.physical:
                fits = self._settle is not None
                queue.max_physical = known.physical
        else:
            return False
        if not fits:
            raise QueueMisfit(
                queue.files.directory, 0,
                f"the queue goes from offset {found.begin} to {found.end} (physical offset "
                f"{found.physical}), but it went from {known.begin} to {known.end} (physical "
                f"offset {known.physical}) when the store was closed",
            )  # fmt: skip
        return True

    def open_some(self, topic: str, most: int) -> bool:
        """Open at most `most` queues of a topic; return whether all are open. Raises as `find`."""
        for queue_id in tuple(islice(self._ids_on_disk(topic), most)):
            self.find(topic, queue_id)
        return topic not in self._unopened

    def open_system(self) -> None:
        """Open the queues of the broker's own topics, without which it does not start. Raises as
        `find`."""
        for topic, queue_id in self.unopened():
            if is_system_topic(topic):
                self.find(topic, queue_id)

    # --- opening one --------------------------------------------------------------------------

    def _ids_on_disk(self, topic: str) -> Set[int]:
        if topic not in self._unopened:
            return frozenset()
        ids = self._unopened[topic]
        if ids is None:
            ids = set()
            with os.scandir(self._directory / topic) as found:
                for entry in found:
                    if entry.name.isdecimal() and entry.name == str(int(entry.name)):
                        if not entry.is_dir():
                            raise NotADirectory(Path(entry.path))
                        ids.add(int(entry.name))
                    elif entry.is_dir(follow_symlinks=False):
                        log.warning("%s is ignored: a queue is named by its number", entry.path)
            self._unopened[topic] = ids
        return ids

    def _open(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        if queue_id not in self._ids_on_disk(topic):
            return None
        queue = self._make(topic, queue_id)
        try:
            queue.load(clean=self._clean)
            as_left = self._compared and self._compare(queue)
            bounds = self._bounds_of(topic, queue_id)
            if bounds is not None:
                _skip(queue, bounds)
            if self._settle is not None:
                self._settle(queue, as_left)
        except (StoreCorrupt, FileSizeMismatch) as error:
            queue.files.close()
            if self._settle is None:
                raise
            remedy = f"stop the broker and type: pocketmq store repair {self._directory.parent}"
            if isinstance(error, FileSizeMismatch):
                raise FileSizeMismatch(
                    error.path, error.actual, error.setting, error.expected, remedy=remedy
                ) from error
            raise StoreCorrupt(error.path, error.offset, f"{error.reason}; {remedy}") from error
        except BaseException:
            queue.files.close()
            raise
        self._add(queue)
        return queue

    # --- finding and making -------------------------------------------------------------------

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, if it has or had a message.

        Raises as `ConsumeQueue.load` when it is on the disk and cannot be opened.
        """
        queues = self.by_topic.get(topic)
        queue = queues.get(queue_id) if queues is not None else None
        if queue is None and topic in self._unopened:
            return self._open(topic, queue_id)
        return queue

    def ended(self, topic: str) -> set[int]:
        """Return the ids of the queues of a topic that have messages, or had. Opens none: a queue
        on the disk has some."""
        opened = self.by_topic.get(topic, {})
        return {
            queue_id
            for queue_id in self.queue_ids(topic)
            if queue_id not in opened or opened[queue_id].next_offset
        }

    async def newest(self, topic: str, since: int, most: int) -> list[int]:
        """Return the physical offsets of the newest messages of a topic, from `since` on, at most
        `most`; the newest first. Only open queues have new ones."""
        found: list[int] = []
        for number, queue in enumerate(list(self.by_topic.get(topic, {}).values())):
            if queue.max_physical > since and not queue.removed:
                begin = queue.first_where(lambda physical, _: physical >= since)
                begin = max(begin, queue.max_offset - most)
                for _, entries in queue.views(begin, queue.max_offset):
                    found += [physical for physical, _, _ in iter_entries(entries)]
            if number % _QUEUES_OF_TURN == _QUEUES_OF_TURN - 1:
                found = nlargest(most, found)
                await asyncio.sleep(0)
        return nlargest(most, found)

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue; a new one has no file before its first message.

        Raises as `find`, OSError when one that was removed is still on the disk and cannot be
        removed there, and ValueError for a topic that cannot name a directory, or that is not
        served.
        """
        queue = self.find(topic, queue_id)
        if queue is None:
            self._check(topic, queue_id)
            with self.removed.making(topic, queue_id):
                queue = self._make(topic, queue_id)
                self._add(queue)
            self.light_queues += queue.is_light
            self.on_begun(topic, queue_id)
        return queue

    def _check(self, topic: str, queue_id: int) -> None:
        if topic.startswith(LIGHT_QUEUE_PREFIX):
            is_name = is_light_queue(topic) and queue_id == LIGHT_QUEUE_ID
        else:
            is_name = STORED_TOPIC_PATTERN.fullmatch(topic) is not None and queue_id >= 0
        if not is_name:
            raise ValueError(f"topic {topic!r} with queue {queue_id} cannot have a queue")
        if topic in self._batch_topics:
            raise ValueError(f"topic {topic!r} has batch consume queues, which are not served")

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = ConsumeQueue(
            self._files, self._directory / f"{topic}/{queue_id}", topic, queue_id, self._file_size,
            self._retired, self._mappings,
        )  # fmt: skip
        queue.listeners = self._listeners.get((topic, queue_id), ())
        return queue

    def _add(self, queue: ConsumeQueue) -> None:
        self.by_topic.setdefault(queue.topic, {})[queue.queue_id] = queue
        self._open_queues[queue] = None
        self._opened(queue.topic, queue.queue_id)

    # --- removing -----------------------------------------------------------------------------

    def delete_topic(self, topic: str) -> bool:
        """Remove all queues of a topic, also those that cannot be opened; False when it has none.
        Their files go with `removed.remove_some`, and its records stay in the commit log until they
        expire. Raises OSError."""
        gone = {queue_id: self._take_out(topic, queue_id) for queue_id in self.queue_ids(topic)}
        self._unopened.pop(topic, None)
        if gone:
            self.removed.add(topic, gone)
            log.info("topic %s: its %d consume queues are removed", topic, len(gone))
        elif STORED_TOPIC_PATTERN.fullmatch(topic) or is_light_queue(topic):
            # A power failure may have brought back the directory of one that was deleted.
            self._files.remove_directory(self._directory / topic)
        return bool(gone)

    def delete_expired(self, queue: ConsumeQueue, min_physical: int) -> bool:
        """Remove a queue if the commit log has none of its messages any more, except one of a
        system topic; its next message gets queue offset 0. Return whether it is removed; its files
        go as those of a topic."""
        # One with messages that wait for a flush is alive.
        if (
            queue.removed
            or not 0 <= queue.max_physical < min_physical
            or queue.next_offset != queue.max_offset
            or is_system_topic(queue.topic)
        ):
            return False
        self._delete_queue(queue.topic, queue.queue_id)
        log.info("queue %s/%d has expired and is removed", queue.topic, queue.queue_id)
        return True

    def delete_deleted(self, deleted: Mapping[str, int]) -> Iterator[None]:
        """Remove what recovery found again of deleted topics, one queue a step; `deleted` has the
        physical offset at which the log ended when each was deleted. If a queue has messages after
        that, its topic was recreated, and it has no others. If a removal was cut short, there may
        be an empty directory. Raises OSError."""
        for topic, end in deleted.items():
            for queue_id in sorted(self.queue_ids(topic)):
                try:
                    bounds = self._bounds_now(topic, queue_id)
                except StoreError as error:
                    log.error("queue %s/%d is not removed: %s", topic, queue_id, error)
                    continue
                if bounds is None:
                    continue
                is_left_over = bounds.physical < 0 and not bounds.next
                if is_left_over or 0 <= bounds.physical <= end:
                    self._delete_queue(topic, queue_id)
                yield

    def _bounds_now(self, topic: str, queue_id: int) -> Bounds | None:
        """Return where a queue begins and ends, if it exists. One of which the last stop left no
        word is opened, which raises as `find`."""
        if self._compared and queue_id in self._ids_on_disk(topic):
            known = self._bounds_of(topic, queue_id)
            if known is not None and known.is_known:
                return known
        queue = self.find(topic, queue_id)
        return None if queue is None else queue.bounds

    def _delete_queue(self, topic: str, queue_id: int) -> None:
        self.removed.add(topic, {queue_id: self._take_out(topic, queue_id)})

    def _take_out(self, topic: str, queue_id: int) -> RemovedQueue:
        self.light_queues -= topic.startswith(LIGHT_QUEUE_PREFIX)
        queues = self.by_topic.get(topic, {})
        queue = queues.pop(queue_id, None)
        if queue is not None:
            bounds = queue.bounds
            mapped = queue.remove()
            del self._open_queues[queue]
            if not queues:
                del self.by_topic[topic]
            return RemovedQueue(bounds, mapped)
        self._opened(topic, queue_id)
        known = self._bounds_of(topic, queue_id) if self._compared else None
        return RemovedQueue(known or UNKNOWN, ())

    def _opened(self, topic: str, queue_id: int) -> None:
        """Note that a queue is none of the unopened ones any more."""
        unopened = self._unopened.get(topic)
        if unopened is not None:
            unopened.discard(queue_id)
            if not unopened:
                del self._unopened[topic]

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
        for queue in self._open_queues:
            queue.files.close()
        self._open_queues.clear()
        self.by_topic.clear()
        self._unopened.clear()

    def _of(self, topic: str, queue_id: int) -> tuple[ArrivalListener, ...]:
        return self._listeners.get((topic, queue_id), ())

    def _set_listeners(
        self, topic: str, queue_id: int, listeners: tuple[ArrivalListener, ...]
    ) -> None:
        if listeners:
            self._listeners[topic, queue_id] = listeners
        else:
            self._listeners.pop((topic, queue_id), None)
        queue = self.by_topic.get(topic, {}).get(queue_id)
        if queue is not None:
            queue.listeners = listeners


def _skip(queue: ConsumeQueue, bounds: Bounds) -> None:
    """Do not give the offsets of lost messages at the end again, if the queue still ends there."""
    if bounds.skips and (queue.max_offset, queue.max_physical) == (bounds.end, bounds.physical):
        queue.skip_until(bounds.next)
