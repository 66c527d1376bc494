"""Reads a file that a server keeps its own state in."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path) -> bytes:
    """Return the content of a file. Never waits, as opening a named pipe would.

    Raises:
        OSError: it cannot be read, or is a pipe, a device or a directory.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    fd = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with os.fdopen(fd, "rb") as file:
        return file.read()
