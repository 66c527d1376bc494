"""Which consume queues a store has, by the names of their directories."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pocketmq.store.scan.queues.segments import reading


def _everything(*_: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """Which queues are wanted.

    Attributes:
        queue: whether that one (topic, queue id) is.
        topic: whether any queue of a topic may be. A topic that is not is not even listed.
    """

    queue: Callable[[str, int], bool] = _everything
    topic: Callable[[str], bool] = _everything


_ID: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_UTF8: Final = re.compile("[^\\ud800-\\udfff]+")
"""No broker writes a name that is not UTF-8, and nothing could show it."""

EVERY_QUEUE: Final = QueueChoice()
NO_QUEUE: Final = QueueChoice(lambda *_: False, lambda _: False)


class QueueListing:
    """The queues that have a directory `topic/queueId` in `directory`. A topic is listed when it is
    first asked for: there may be thousands."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ids: dict[str, set[int] | None] = dict.fromkeys(_directories(self._directory, _UTF8))

    def ids(self, topic: str) -> set[int]:
        """Return the ids of the queues of a topic."""
        found = self._ids.get(topic, set())
        if found is None:
            found = self._ids[topic] = set(map(int, _directories(self._directory / topic, _ID)))
        return found

    def topics(self) -> set[str]:
        """Return the topics that have queues."""
        return {topic for topic in self._ids if self.ids(topic)}

    def chosen(self, choice: QueueChoice) -> Iterator[tuple[str, int]]:
        """Return topic and id of the wanted queues, in order."""
        for topic in sorted(filter(choice.topic, self._ids)):
            for queue_id in sorted(self.ids(topic)):
                if choice.queue(topic, queue_id):
                    yield topic, queue_id

    def add(self, topic: str, queue_id: int) -> None:
        """Enter a queue that has no directory."""
        self.ids(topic)
        ids = self._ids.setdefault(topic, set())
        assert ids is not None, "the topic is listed"
        ids.add(queue_id)

    def __contains__(self, queue: tuple[str, int]) -> bool:
        topic, queue_id = queue
        return queue_id in self.ids(topic)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return self.chosen(EVERY_QUEUE)

    def __bool__(self) -> bool:
        return any(self.ids(topic) for topic in self._ids)


def _directories(path: Path, names: re.Pattern[str]) -> Iterator[str]:
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        reading(path),
        os.scandir(path) as entries,
    ):
        for entry in entries:
            # The name first: anything else there may be unreadable, such as a loop of links.
            if names.fullmatch(entry.name) and entry.is_dir():
                yield entry.name
