"""What the permissions of directories allow this user: to find a file, and to make one."""

from __future__ import annotations

import os
from pathlib import Path


def closed_directory(path: Path) -> Path | None:
    """Return the topmost directory of an absolute path that this user may not enter, the path
    itself included; None if what is there, or that nothing is there, can be found out."""
    closed = None
    for place in (path, *path.parents):
        try:
            os.stat(os.path.join(place, os.curdir))
        except PermissionError:
            closed = place
        except (OSError, ValueError):
            break  # there is nothing, or it is a file
        else:
            break
    return closed


def may_write_in(directory: Path) -> bool:
    """Return whether this user may create files in a directory that exists."""
    # Not the user who started the process, which is what `access` looks at by default.
    effective = os.access in os.supports_effective_ids
    return os.access(directory, os.W_OK | os.X_OK, effective_ids=effective)
