"""What a broker had stored, kept elsewhere: for reads of history together with the broker."""

from __future__ import annotations

import shutil
from pathlib import Path

from pocketmq.archive.location import Location
from pocketmq.archive.sync import sync


def kept(store: Path, directory: Path, kind: str) -> str:
    """Return the path of a copy of a store, or of archives with it."""
    place = directory / kind
    if kind == "copy":
        shutil.copytree(store, place)
    else:
        sync(store, Location(str(place)).open(), everything=True, clock=lambda: 0)
    return str(place)
