"""Opens the files that a server keeps its state in, which others may have replaced."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path


def open_regular(
    path: Path,
    access: int = os.O_RDONLY,
    refusal: Callable[[Path], Exception] = lambda path: OSError(
        errno.EINVAL, "it is not a regular file", str(path)
    ),
) -> int:
    """Return a descriptor of a file. Never waits, as opening a named pipe would.

    Only reading follows a symbolic link: in a directory that comes from somebody else it may lead
    to any file of this machine.

    Raises OSError if it cannot be opened, and `refusal(path)` if it is a directory, a pipe or a
    device; for writing, also if it is a symbolic link.
    """
    own = os.O_NOFOLLOW if access != os.O_RDONLY else 0
    flags = access | own | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        fd = os.open(path, flags, 0o644)
    except OSError as error:
        if own and error.errno == errno.ELOOP:
            raise refusal(path) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise refusal(path)
    return fd


def read_regular(path: Path, most: int | None = None) -> bytes:
    """Return the content of a file. Raises the errors of `open_regular`, and OSError for more than
    `most` bytes."""
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise OSError(errno.EFBIG, f"it has {size} bytes, {most} are allowed", str(path))
        return file.read() if most is None else file.read(most)
