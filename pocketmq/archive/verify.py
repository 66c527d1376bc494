"""Reads all objects of an archive, and compares them with the manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from pocketmq.archive.errors import ObjectMissing
from pocketmq.archive.manifest import Manifest
from pocketmq.archive.objects import Objects
from pocketmq.archive.parts import StoredObject

_BLOCK: Final = 4 * 1024 * 1024


class Fault(msgspec.Struct):
    """An object that differs from the manifest, and how."""

    object: str
    reason: str


def verify(
    folder: Objects,
    manifest: Manifest,
    *,
    parallel: int = 4,
    advanced: Callable[[int], None] = lambda _: None,
) -> list[Fault]:
    """Return the faults in the archive of a broker, in the order of the log.

    Args:
        parallel: how many objects to read at the same time.
        advanced: called with the bytes read since the last call, by several threads.

    Raises:
        Unreachable: it cannot be read.
    """

    def fault(stored: StoredObject) -> Fault | None:
        reason = _wrong(folder, stored, advanced)
        return Fault(folder.url(stored.name), reason) if reason else None

    with ThreadPoolExecutor(parallel, "verify") as reads:
        return [found for found in reads.map(fault, objects_of(manifest)) if found]


def objects_of(manifest: Manifest) -> Iterator[StoredObject]:
    """Return all objects of a manifest."""
    for part in manifest.parts:
        yield part.log
        yield part.queues


def _wrong(folder: Objects, stored: StoredObject, advanced: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    size = 0
    try:
        with folder.opened(stored.name) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                size += len(block)
                advanced(len(block))
    except ObjectMissing:
        return "it is missing"
    if size != stored.size:
        return f"it has {size} bytes; {stored.size} were uploaded"
    if digest.hexdigest() != stored.sha256:
        return "its SHA-256 is not that of what was uploaded"
    return ""
