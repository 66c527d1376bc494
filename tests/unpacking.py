"""Unpacks the archives that tests need."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(path: Path, directory: Path) -> Path:
    """Unpack a tar archive into a directory; return the directory."""
    with tarfile.open(path) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(directory, filter="data")
        else:  # Python before 3.11.4
            archive.extractall(directory)
    return directory
