"""The manifest: which parts of a broker's commit log an archive has. One JSON object.

It is written when the objects that it names are whole, and replaces the one before at once. So what
a killed upload leaves is in no manifest.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pocketmq.archive.errors import ObjectMissing, WrongManifest
from pocketmq.archive.objects import NEW, Objects

NAME: Final = "manifest.json"
FORMAT: Final = "pocketmq-archive"
VERSION: Final = 1


class StoredObject(msgspec.Struct, frozen=True, rename="camel"):
    """An object: its name below the manifest's folder, its bytes, and their SHA-256 (hex)."""

    name: str
    size: int
    sha256: str


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a commit log: records and blanks, whole.

    Attributes:
        begin, end: physical offsets.
        head: CRC-32 of the first 4096 bytes, to tell whether a store is the one it came from.
        log: the bytes of the commit log.
        queues: the queue entries of its records.
        directory_at: the byte of `queues` where its directory begins.
        directory_crc: CRC-32 of the directory.
        messages: how many entries there are.
    """

    begin: int
    end: int
    head: int
    log: StoredObject
    queues: StoredObject
    directory_at: int
    directory_crc: int
    messages: int


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """What an archive has of one broker.

    Attributes:
        broker_name: of the broker.
        written: when, in ms since 1970.
        topics: how many queues the broker has of each topic, also of those without messages.
        parts: in the order of the log, without overlap. A gap is what expired before it was
            archived.
    """

    broker_name: str
    written: int
    topics: dict[str, int]
    parts: tuple[Part, ...]
    format: str = FORMAT
    version: int = VERSION

    @property
    def end(self) -> int:
        """The physical offset behind the last part; 0 without parts."""
        return self.parts[-1].end if self.parts else 0


class _Head(msgspec.Struct):
    format: str = ""
    version: int = 0


def read_manifest(objects: Objects) -> Manifest | None:
    """Return the manifest of a broker's folder; None if there is none.

    Raises:
        WrongManifest: it cannot be read, or a newer version wrote it.
    """
    return _read(objects, NAME)


def read_interrupted(objects: Objects) -> Manifest | None:
    """Return the manifest that a process was about to put in place when it was killed, if that is
    whole. Only HDFS removes the older one first."""
    try:
        return _read(objects, f"{NAME}{NEW}")
    except WrongManifest:
        return None


def _read(objects: Objects, name: str) -> Manifest | None:
    try:
        content = objects.read(name)
    except ObjectMissing:
        return None
    url = objects.url(name)
    try:
        head = msgspec.json.decode(content, type=_Head)
    except msgspec.DecodeError as error:
        raise WrongManifest(url, f"is no manifest: {error}") from None
    if head.format != FORMAT:
        raise WrongManifest(url, f"is no manifest of an archive: its format is {head.format!r}")
    if head.version > VERSION:
        raise WrongManifest(
            url,
            f"has version {head.version}; this pocketmq reads up to {VERSION}: install a newer one",
        )
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError as error:
        raise WrongManifest(url, f"is damaged: {error}") from None
    for before, part in zip(manifest.parts, manifest.parts[1:], strict=False):
        if part.begin < before.end:
            raise WrongManifest(url, f"is damaged: two parts have physical offset {part.begin}")
    return manifest


def write_manifest(objects: Objects, manifest: Manifest) -> None:
    """Replace the manifest of a broker's folder."""
    objects.replace(NAME, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
