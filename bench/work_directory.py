"""Where a benchmark keeps stores and logs while it runs."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.harness.process import killed_at_the_end

__all__ = ["work_directory"]


@contextmanager
def work_directory(prefix: str, keep: Path | None = None) -> Iterator[Path]:
    """A temporary directory that is removed at the end, or `keep`, which stays.

    Servers that were started within and still run, as after an error or Ctrl-C, are killed first.
    Ends the program if there is anything in `keep`: that would be measured, too.
    """
    if keep is None:
        directory = Path(tempfile.mkdtemp(prefix=prefix))
    else:
        directory = keep.absolute()
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            sys.exit(f"error: {keep} is not empty")
    try:
        with killed_at_the_end():
            yield directory
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
