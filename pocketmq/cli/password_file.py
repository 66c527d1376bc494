"""Passwords that options name by a file, so that process listings do not show them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from pocketmq.remoting.settings.exposure import warn_if_readable

log = logging.getLogger("pocketmq")

_SHORTEST: Final = 8
_LONGEST: Final = 1024


def read_password(option: str, path: Path) -> str:
    """Return the password in the file of an option, without the blanks around it.

    Raises:
        OSError: the file cannot be read, or the password is too short or too long.
    """
    path = path.expanduser()
    try:
        with path.open(encoding="utf-8") as file:
            password = file.read(_LONGEST + 2).strip()
    except OSError as error:
        raise OSError(f"{option} {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise OSError(f"{option} {path}: it is not text in UTF-8") from None
    if not _SHORTEST <= len(password) <= _LONGEST:
        raise OSError(
            f"{option} {path}: the password must have {_SHORTEST} to {_LONGEST} characters"
        )
    warn_if_readable(log, [str(path)])
    return password
