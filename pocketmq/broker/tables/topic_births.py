"""Topics that are created or deleted, noted at once, until topics.json is written.

A new topic is in topics.json some milliseconds after its first message is in the log. A broker that
is killed in between finds the message again, but not how many queues the topic was given, or where
in the log it was created. So each creation and deletion is first appended to config/topics.new as a
line of JSON. Nothing flushes the file: after a power cut, topics that have messages are still
adopted. It is removed when topics.json has everything that is in it.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.store.files import Files

log = logging.getLogger(__name__)


class _Line(msgspec.Struct, omit_defaults=True):
    created: TopicConfig | None = None
    deleted: str | None = None


class TopicBirths:
    """The file beside the topics.json at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_suffix(".new")
        self._files = Files()
        self._log = LimitedLog(log)
        self._has_lines = False

    def load(self) -> list[TopicConfig]:
        """Return the topics that were created and not deleted again, as far as can be read."""
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            log.error("%s cannot be read: %s", self._path, error)
            return []
        self._has_lines = bool(lines)
        topics: dict[str, TopicConfig] = {}
        for text in lines:
            try:
                line = msgspec.json.decode(text, type=_Line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue  # the kill came while it was written, or the disk was full
            if line.created is not None:
                topics[line.created.topic_name] = line.created
            elif line.deleted is not None:
                topics.pop(line.deleted, None)
        return list(topics.values())

    def created(self, topic: TopicConfig) -> None:
        """Note a new topic."""
        self._append(_Line(created=topic))

    def deleted(self, name: str) -> None:
        """Note that a topic is deleted, if its creation may be noted."""
        if self._has_lines:
            self._append(_Line(deleted=name))

    def clear(self) -> None:
        """Forget everything: topics.json has it."""
        if self._has_lines:
            self._has_lines = False
            try:
                self._files.remove(self._path)
            except OSError as error:
                self._log.error("%s cannot be removed: %s", self._path, error)

    def _append(self, line: _Line) -> None:
        self._has_lines = True
        try:
            # What comes before it may lack its end.
            self._files.append(self._path, b"\n" + msgspec.json.encode(line) + b"\n")
        except OSError as error:
            # topics.json is still written before anything is acknowledged.
            self._log.error("%s cannot be written: %s", self._path, error)
