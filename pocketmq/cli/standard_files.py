"""The three files that a process gets from its caller."""

from __future__ import annotations

import os
import sys


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
