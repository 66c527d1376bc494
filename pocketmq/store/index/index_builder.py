"""Walks along the commit log and enters the keys of its messages into the index files.

The broker's own index thread does so (`message_index`), and the process that it starts when there
is much to do (`index_process`). Reference: CommitLogDispatcherBuildIndex.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol

from pocketmq.message.record_layout import HEAD_SIZE, MIN_RECORD, SYS_FLAG_AT
from pocketmq.store.index.index_table import IndexTable

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

_size: Final = Struct(">i").unpack_from
# What is taken in one turn. The interpreter lock is held for a part of it only, about 0.5 ms; but
# each of its some sixty numpy calls may have to wait for it, so that turns must not be small. Nor
# large: what a turn works on stays in the processor's cache.
TURN_RECORDS: Final = 2048
TURN_BYTES: Final = 2 * 1024 * 1024
# Of these, bytes other than large bodies: properties may have thousands of keys, each of which
# takes as long as the rest of a usual message.
_TURN_PROPERTIES: Final = 512 * 1024
_SMALL: Final = 512  # bytes of a record that is counted as a whole
#: Seconds of a turn after which the next ones are smaller: all that time this thread and the event
#: loop wait for each other's interpreter lock.
LONG_TURN: Final = 0.005
_LEAST_BYTES: Final = 32 * 1024
_ALIKE: Final = 8  # records of one size after which it is worth while to ask for more of them


class LogFile(Protocol):
    """A file of the commit log."""

    @property
    def path(self) -> Path: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def view(self) -> memoryview: ...


class LogFiles(Protocol):
    """The files of the commit log, as in `MappedFileQueue`."""

    @property
    def first_offset(self) -> int:
        """The physical offset at which the log begins."""

    def find(self, offset: int) -> LogFile | None:
        """Return the file that holds a physical offset; None when it has expired."""


class IndexBuilder:
    """Enters the keys of one commit log into one table.

    Attributes:
        position: physical offset up to which messages have been entered.
        took: seconds of the last turn.
    """

    def __init__(self, table: IndexTable, files: LogFiles) -> None:
        self.position = 0
        self.took = 0.0
        self._most = TURN_BYTES
        self._table = table
        self._files = files

    def turn(self, end: int, enough: int | None = None) -> bool:
        """Enter the keys of the next records before the physical offset `end`, where a record ends,
        except records that begin at `enough` or later; False when there were none.

        Raises DiskFull, OSError; the next call retries the same records.
        """
        position = max(self.position, self._files.first_offset)
        if position >= end:
            return False
        file = self._files.find(position)
        if file is None:
            return False  # it expired a moment ago: the log begins elsewhere
        try:
            view = file.view[:]  # keeps the file mapped
        except ValueError:
            return False
        base = file.base_offset
        began = time.perf_counter()
        most = self._most if enough is None else min(self._most, enough - position)
        places, behind = record_places(view, base, position, end, most, file.path)
        if places:
            from pocketmq.store.encoding.index_keys import keys_of

            self._table.append(keys_of(view, base, places))
        self.position = behind
        self.took = time.perf_counter() - began
        if self.took > LONG_TURN:
            self._most = max(int(self._most * LONG_TURN / self.took), _LEAST_BYTES)
        else:
            self._most = min(2 * self._most, TURN_BYTES)
        return True


def record_places(
    view: memoryview,
    base: int,
    position: int,
    end: int,
    most: int,
    path: Path,
    *,
    most_records: int = TURN_RECORDS,
) -> tuple[Sequence[int], int]:
    """Return where the next records, about `most` bytes of them, begin within a file, and the
    physical offset after the last.

    `view` is the file at `path`, whose first byte has the physical offset `base`; `position` and
    `end` are physical offsets too.
    """
    at = position - base
    stop = min(end - base, len(view))
    enough = min(stop, at + most)
    places: list[int] = []
    last = alike = properties = 0
    while at < enough and len(places) < most_records and properties < _TURN_PROPERTIES:
        size = _size(view, at)[0]
        if at + size == len(view):  # only a blank reaches the end
            return places, base + len(view)
        if size < MIN_RECORD or at + size > stop:
            log.error("%s at byte %d: no record; its file is not indexed from here on", path, at)
            return places, base + len(view)
        places.append(at)
        others = size if size <= _SMALL else max(size - _body_length(view, at), MIN_RECORD)
        properties += others
        at += size
        alike = alike + 1 if size == last else 0
        last = size
        if alike == _ALIKE:
            alike = 0
            # Short of `enough`: the record at the end is looked at by itself.
            room = min((enough - at) // size - 1, most_records - len(places))
            room = min(room, (_TURN_PROPERTIES - properties) // others)
            if room > 0:
                from pocketmq.store.encoding.index_keys import alike_from

                count = alike_from(view, at, size, room)
                places += range(at, at + count * size, size)
                at += count * size
                properties += count * others
    return places, base + at


def _body_length(view: memoryview, at: int) -> int:
    sys_flag = _size(view, at + SYS_FLAG_AT)[0]
    ipv6_hosts = (sys_flag >> 4 & 1) + (sys_flag >> 5 & 1)
    length: int = _size(view, at + HEAD_SIZE - 4 + 12 * ipv6_hosts)[0]
    return length
