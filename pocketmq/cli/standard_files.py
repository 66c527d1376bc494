"""Standard input, output and error."""

from __future__ import annotations

import os
import select
import sys
import threading

#: The exit code of a command whose output nobody reads any more, as after SIGPIPE.
READER_GONE = 141


def open_standard_files() -> None:
    """Open /dev/null for those that the caller closed. Otherwise a socket would get their number:
    output would go there, and uvloop aborts the process when it closes it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number
            if getattr(sys, name) is None:
                stream = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115
                setattr(sys, name, stream)


def discard_output() -> None:
    """Discard everything written to stdout from now on, including buffered output."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


class UnreadOutput:
    """Return whether the reader of stdout is gone. Stays true from then on.

    A write would fail then, but a command that waits for output does not write. Always false if
    stdout is a file, or if the system has no `poll` (Windows).
    """

    def __init__(self) -> None:
        self._gone = threading.Event()
        try:
            number = sys.stdout.fileno()
        except OSError:  # stdout is a Python object, in tests
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
