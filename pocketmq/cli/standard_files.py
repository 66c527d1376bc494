"""The three files that a process gets from its caller."""

from __future__ import annotations

import os
import select
import sys
import threading

#: The exit code of a command whose output nobody reads any more, as of a process that SIGPIPE ends.
READER_GONE = 141


def open_standard_files() -> None:
    """Has /dev/null in the place of those that the caller closed. A socket would get their number
    otherwise: what is printed would go there, and uvloop aborts the process that closes it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number
            if getattr(sys, name) is None:
                stream = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115
                setattr(sys, name, stream)


def discard_output() -> None:
    """Has stdout go nowhere from now on, also what is buffered until the process ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


class UnreadOutput:
    """Whether the reader of stdout is gone; true from then on.

    A write would fail then, but a command that waits for something to print does not write. Where
    stdout is a file, or the system has no `poll` (Windows), it stays false.
    """

    def __init__(self) -> None:
        self._gone = threading.Event()
        try:
            number = sys.stdout.fileno()
        except OSError:  # a stdout of Python's own, in tests
            return
        if hasattr(select, "poll"):
            threading.Thread(target=self._watch, args=(number,), daemon=True).start()

    def __bool__(self) -> bool:
        return self._gone.is_set()

    def _watch(self, number: int) -> None:
        poll = select.poll()
        poll.register(number, 0)  # errors and hang-ups are always reported
        if poll.poll():
            self._gone.set()
