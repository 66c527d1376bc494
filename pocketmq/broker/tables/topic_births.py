"""A journal of created and deleted topics, until topics.json is written.

A new topic is in topics.json some milliseconds after its first message is in the log. A broker that
is killed in between finds the message again, but not the topic's number of queues or the offset at
which it was created. So each creation and deletion is first appended to config/topics.new as a line
of JSON. The file is not flushed: after a power cut, topics with messages are adopted all the same.
It is removed when topics.json has all of its content.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.store.errors import StoreError
from pocketmq.store.files import Files

log = logging.getLogger(__name__)


class _Line(msgspec.Struct, omit_defaults=True):
    created: TopicConfig | None = None
    deleted: str | None = None


class TopicBirths:
    """The file topics.new in the directory of the topics.json at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_suffix(".new")
        self._files = Files()
        self._log = LimitedLog(log)
        self._has_lines = False

    def load(self) -> list[TopicConfig]:
        """Return the topics that were created and not deleted again; skip unreadable lines."""
        try:
            lines = (self._files.read(self._path) or b"").splitlines()
        except (OSError, StoreError) as error:
            log.error("%s cannot be read: %s", self._path, error)
            return []
        self._has_lines = bool(lines)
        topics: dict[str, TopicConfig] = {}
        for text in lines:
            try:
                line = msgspec.json.decode(text, type=_Line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue  # a kill or a full disk interrupted the write
            if line.created is not None:
                topics[line.created.topic_name] = line.created
            elif line.deleted is not None:
                topics.pop(line.deleted, None)
        return list(topics.values())

    def created(self, topic: TopicConfig) -> None:
        """Record a new topic."""
        self._append(_Line(created=topic))

    def deleted(self, name: str) -> None:
        """Record the deletion of a topic, if its creation may be in the file."""
        if self._has_lines:
            self._append(_Line(deleted=name))

    def clear(self) -> None:
        """Remove the file: topics.json has its content."""
        if self._has_lines:
            self._has_lines = False
            try:
                self._files.remove(self._path)
            except OSError as error:
                self._log.error("%s cannot be removed: %s", self._path, error)

    def _append(self, line: _Line) -> None:
        self._has_lines = True
        try:
            # The previous line may be incomplete, so start a new one.
            self._files.append(self._path, b"\n" + msgspec.json.encode(line) + b"\n")
        except (OSError, StoreError) as error:
            # Not fatal: topics.json is still written before anything is acknowledged.
            self._log.error("%s cannot be written: %s", self._path, error)
