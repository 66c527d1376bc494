"""A part of an archived log: its objects and their contents. Can be pickled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object: its name below the manifest's folder, its bytes, and their SHA-256 (hex)."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a commit log: whole records and blanks.

    Attributes:
        begin, end: physical offsets.
        head: CRC-32 of the first 4096 bytes, which shows whether it came from a given store.
        log: the bytes of the commit log.
        queues: the queue entries of its records.
        directory_at: the byte of `queues` where its directory begins.
        directory_crc: CRC-32 of the directory.
        messages: the number of entries.
    """

    begin: int
    end: int
    head: int
    log: StoredObject
    queues: StoredObject
    directory_at: int
    directory_crc: int
    messages: int


def object_names(begin: int, end: int) -> tuple[str, str]:
    """Return the names of the two objects of a part: its log and its queue entries."""
    name = f"{begin:020}-{end:020}"
    return f"log/{name}", f"queues/{name}"
