"""Reads lines of files or of standard input as message bodies, in pieces of bounded size."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from pocketmq.blocking_thread import BlockingThread

STDIN = "-"

READ_SIZE = 256 * 1024


class Lines(NamedTuple):
    """Lines that arrived together.

    `first` is the line number of the first one in its file, from 1; `read` is their size in bytes
    there, line ends included. An empty line is an empty body; None stands for a line that is too
    long.
    """

    source: str
    first: int
    bodies: list[bytes | None]
    read: int


def total_size(paths: Sequence[str]) -> int | None:
    """Return the size of all files, or None if one is a pipe or a terminal. Raises OSError."""
    statuses = [os.stat(sys.stdin.fileno() if path == STDIN else path) for path in paths]
    if not all(stat.S_ISREG(status.st_mode) for status in statuses):
        return None
    return sum(status.st_size for status in statuses)


class LineReader:
    """Reads files in turn; `-` is standard input.

    A read returns the available bytes, up to 256 KiB. So a line typed or piped becomes a message at
    once, and a file of any size needs no more memory than its longest line. Lines end with LF or
    CRLF; the last line of a file may lack it.
    """

    def __init__(self, paths: Sequence[str], thread: BlockingThread, *, max_line: int) -> None:
        self._paths = paths
        self._thread = thread
        self._max_line = max_line

    async def __aiter__(self) -> AsyncIterator[Lines]:
        """Raises OSError for a file that cannot be read."""
        for path in self._paths:
            file = sys.stdin.fileno() if path == STDIN else os.open(path, os.O_RDONLY)
            source = "stdin" if path == STDIN else path
            splitter = LineSplitter(source, self._max_line)
            try:
                while data := await self._thread.call(partial(os.read, file, READ_SIZE)):
                    for lines in splitter.feed(data):
                        yield lines
                for lines in splitter.end():
                    yield lines
            except OSError as error:
                if error.filename is None:  # an error of a read does not name the file
                    error.filename = source
                raise
            finally:
                if path != STDIN:
                    os.close(file)


class LineSplitter:
    """Turns pieces of one file into whole lines.

    Keeps the beginning of an incomplete line, unless it is too long already.
    """

    def __init__(self, source: str, max_line: int) -> None:
        self._source = source
        self._max_line = max_line
        self._next_number = 1
        self._rest: list[bytes] = []
        self._rest_size = 0
        self._overlong = False

    def feed(self, data: bytes) -> Iterator[Lines]:
        """At most one `Lines`."""
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            yield self._lines(head, self._rest_size + len(head) + 1)
        if tail:
            self._rest_size += len(tail)
            # One more byte may still be the CR of a line end.
            self._overlong = self._rest_size > self._max_line + 1
            if self._overlong:
                self._rest.clear()
            else:
                self._rest.append(tail)

    def end(self) -> Iterator[Lines]:
        """The last line, if it lacks its line end."""
        if self._rest_size:
            yield self._lines(b"", self._rest_size)

    def _lines(self, head: bytes, read: int) -> Lines:
        text = b"".join([*self._rest, head])
        lines = (line.removesuffix(b"\r") for line in text.split(b"\n"))
        bodies = [line if len(line) <= self._max_line else None for line in lines]
        if self._overlong:
            bodies[0] = None
        self._rest, self._rest_size, self._overlong = [], 0, False
        first = self._next_number
        self._next_number += len(bodies)
        return Lines(self._source, first, bodies, read)
