"""Limits the log lines that a peer can cause, to a few per cause and interval.

A client that sends broken frames, or a consumer that asks for a group that may not exist, must not
fill the disk with lines. So code that handles a peer's input logs through a `LimitedLog`; every
server, table and processor has its own. Lines are short too, however long the names that a peer
makes up: `shown` and `one_line` do the same for error texts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Final

INTERVAL: Final = 10.0
"""Seconds."""

MOST_EVENTS: Final = 50
"""Lines per cause and interval that `LimitedLog.info` writes."""

MOST_CHARACTERS: Final = 2_000
"""Characters of a line that `LimitedLog` writes."""

MOST_SHOWN: Final = 100
"""Characters of a peer's text that an error quotes."""

_MOST_CAUSES: Final = 1000
"""Causes with lines of their own in an interval. Peers can make up any number of some, such as
request codes and addresses; the others share one line."""

_OTHER_CAUSES: Final = object()

_Extra = Mapping[str, object] | None


def one_line(text: str) -> str:
    """Return a peer's text escaped so that it cannot start a new log line."""
    return text if text.isprintable() else ascii(text)


def printable(text: str) -> str:
    """Return a text without control characters, which would move the cursor or break the line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def shown(text: str, most: int = MOST_SHOWN) -> str:
    """Return a peer's text as errors and log lines quote it: its beginning, in one line."""
    return one_line(text if len(text) <= most else f"{text[:most]}...")


class LimitedLog:
    """Logs one line per cause in `INTERVAL` seconds, or `MOST_EVENTS` of level INFO.

    The first line of the next interval gives the number of suppressed lines. The cause of a line is
    its format string, unless `cause` is given. However many causes there are, an interval has a
    bounded number of lines. `clock` returns seconds.
    """

    def __init__(self, log: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        # Cause → when its interval began, lines written in it, and lines suppressed.
        self._causes: dict[Hashable, tuple[float, int, int]] = {}

    def info(self, text: str, *args: object, cause: Hashable = None, extra: _Extra = None) -> None:
        """Log a normal event: a client connected, a topic was created."""
        self._write(logging.INFO, text, args, cause, extra)

    def warning(
        self, text: str, *args: object, cause: Hashable = None, extra: _Extra = None
    ) -> None:
        """Log a mistake of a peer."""
        self._write(logging.WARNING, text, args, cause, extra)

    def error(self, text: str, *args: object, cause: Hashable = None, extra: _Extra = None) -> None:
        """Log a failure of this process."""
        self._write(logging.ERROR, text, args, cause, extra)

    def exception(
        self, text: str, *args: object, cause: Hashable = None, extra: _Extra = None
    ) -> None:
        """Log the unexpected error that is being handled, with its traceback."""
        self._write(logging.ERROR, text, args, cause, extra, exc_info=True)

    def _write(
        self,
        level: int,
        text: str,
        args: tuple[object, ...],
        cause: Hashable,
        extra: _Extra,
        *,
        exc_info: bool = False,
    ) -> None:
        if not self._log.isEnabledFor(level):
            return
        most = MOST_EVENTS if level == logging.INFO else 1
        left_out = self._admit(text if cause is None else cause, most)
        if left_out is None:
            return
        if left_out:
            text += " (similar lines suppressed: %d)"
            args = (*args, left_out)
        args = tuple(one_line(arg) if type(arg) is str else arg for arg in args)
        line = text % args if args else text
        if len(line) > MOST_CHARACTERS:
            text, args = "%s...", (line[:MOST_CHARACTERS],)
        self._log.log(level, text, *args, exc_info=exc_info, extra=extra, stacklevel=3)

    def _admit(self, cause: Hashable, most: int) -> int | None:
        """Return how many lines were suppressed before this one; None to suppress it too."""
        now = self._clock()
        if cause not in self._causes and len(self._causes) >= _MOST_CAUSES:
            oldest = next(iter(self._causes))
            if now - self._causes[oldest][0] >= INTERVAL:
                del self._causes[oldest]  # with its count
            else:
                cause = _OTHER_CAUSES
        began, lines, left_out = self._causes.get(cause, (now - INTERVAL, 0, 0))
        if now - began >= INTERVAL:
            self._causes.pop(cause, None)  # the newest interval comes last
            self._causes[cause] = (now, 1, 0)
            return left_out
        if lines < most:
            self._causes[cause] = (began, lines + 1, left_out)
            return 0
        self._causes[cause] = (began, lines, left_out + 1)
        return None
