"""The manifest: which parts of a broker's commit log an archive has. One JSON object.

It is written when the objects that it names are complete, and replaces the previous one atomically.
So no manifest names the remains of a killed upload.

Others may be able to write to an archive. So each name and number is checked before use: an object
must have the name derived from its physical offsets, and no other is read or removed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pocketmq.archive.errors import ObjectMissing, WrongManifest
from pocketmq.archive.objects import NEW, Objects
from pocketmq.archive.parts import Part, StoredObject, object_names

T = TypeVar("T")

NAME: Final = "manifest.json"
FORMAT: Final = "pocketmq-archive"
VERSION: Final = 1
_MOST_BYTES: Final = 256 * 1024 * 1024
"""The largest manifest, bytes: about 400,000 parts."""
_MOST_OFFSET: Final = 2**63 - 1
_MOST_FILE: Final = 2**31 - 1
"""The largest file of the commit log, bytes. A part is at most one file."""
_MOST_CRC: Final = 2**32 - 1
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of the archive of one broker.

    Attributes:
        broker_name: of the broker.
        written: when, in ms since 1970.
        topics: the number of queues of each topic of the broker, including those without messages.
        parts: in the order of the log, without overlap. A gap is a range that expired before it was
            archived.
        created: the physical offset at which the log ended when a topic was created, if known.
    """

    broker_name: str
    written: int
    topics: dict[str, int]
    parts: tuple[Part, ...]
    created: dict[str, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The physical offset after the last part; 0 without parts."""
        return self.parts[-1].end if self.parts else 0


def read_manifest(objects: Objects) -> Manifest | None:
    """Return the manifest of a broker's folder; None if it does not exist.

    Raises:
        WrongManifest: it cannot be read, or a newer version wrote it.
    """
    return _read(objects, NAME)


def read_interrupted(objects: Objects) -> Manifest | None:
    """Return the new manifest, if complete, of a process that was killed before the rename. Only
    HDFS removes the older one first."""
    try:
        return _read(objects, f"{NAME}{NEW}")
    except WrongManifest:
        return None


def _read(objects: Objects, name: str) -> Manifest | None:
    try:
        content = objects.read(name, _MOST_BYTES + 1)
    except ObjectMissing:
        return None
    url = objects.url(name)
    if len(content) > _MOST_BYTES:
        raise WrongManifest(url, f"is not a manifest: it has more than {_MOST_BYTES} bytes")
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise WrongManifest(url, f"is not a manifest: {error}") from None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        found = fields.get("format", "") if isinstance(fields, dict) else ""
        raise WrongManifest(url, f"is not the manifest of an archive: its format is {found!r}")
    try:
        version = _whole(fields, "version")
        if version > VERSION:
            raise WrongManifest(
                url,
                f"has version {version}; this pocketmq reads up to {VERSION}: install a newer one",
            )
        manifest = _manifest(fields)
    except _Damage as error:
        raise WrongManifest(url, f"is damaged: {error}") from None
    for before, part in zip(manifest.parts, manifest.parts[1:], strict=False):
        if part.begin < before.end:
            raise WrongManifest(url, f"is damaged: two parts have physical offset {part.begin}")
    return manifest


def write_manifest(objects: Objects, manifest: Manifest) -> None:
    """Replace the manifest of a broker's folder."""
    fields = {
        "brokerName": manifest.broker_name,
        "written": manifest.written,
        "topics": manifest.topics,
        "created": manifest.created,
        "parts": list(map(_part_fields, manifest.parts)),
        "format": FORMAT,
        "version": VERSION,
    }
    objects.replace(NAME, json.dumps(fields, indent=1, ensure_ascii=False).encode())


def _part_fields(part: Part) -> dict[str, Any]:
    return {
        "begin": part.begin,
        "end": part.end,
        "head": part.head,
        "log": _object_fields(part.log),
        "queues": _object_fields(part.queues),
        "directoryAt": part.directory_at,
        "directoryCrc": part.directory_crc,
        "messages": part.messages,
    }


def _object_fields(stored: StoredObject) -> dict[str, Any]:
    return {"name": stored.name, "size": stored.size, "sha256": stored.sha256}


class _Damage(ValueError):
    """A field that is missing or invalid."""


def _manifest(fields: dict[str, Any]) -> Manifest:
    """Return the manifest with these fields. Raises _Damage."""
    topics = _of_kind(fields, "topics", dict)
    created = _of_kind(fields, "created", dict) if "created" in fields else {}
    return Manifest(
        _of_kind(fields, "brokerName", str),
        _whole(fields, "written"),
        {topic: _whole(topics, topic) for topic in topics},
        tuple(
            _numbered_part(number, part)
            for number, part in enumerate(_of_kind(fields, "parts", list))
        ),
        {topic: _whole(created, topic) for topic in created},
    )


def _numbered_part(number: int, fields: Any) -> Part:
    try:
        return _part(fields)
    except _Damage as error:
        raise _Damage(f"parts[{number}]: {error}") from None


def _part(fields: Any) -> Part:
    if not isinstance(fields, dict):
        raise _Damage("a part is no object")
    begin = _within(fields, "begin", 0, _MOST_OFFSET)
    end = _within(fields, "end", begin + 1, min(begin + _MOST_FILE, _MOST_OFFSET))
    log_name, queues_name = object_names(begin, end)
    log = _object(fields, "log", log_name)
    queues = _object(fields, "queues", queues_name)
    if log.size != end - begin:
        raise _Damage(f"log.size is {log.size}, but the part has {end - begin} bytes")
    return Part(
        begin,
        end,
        _within(fields, "head", 0, _MOST_CRC),
        log,
        queues,
        _within(fields, "directoryAt", 0, queues.size),
        _within(fields, "directoryCrc", 0, _MOST_CRC),
        _within(fields, "messages", 0, _MOST_OFFSET),
    )


def _object(fields: dict[str, Any], key: str, name: str) -> StoredObject:
    """Return the object below `key`, which must have this name."""
    inner = _of_kind(fields, key, dict)
    try:
        found = _of_kind(inner, "name", str)
        if found != name:
            raise _Damage(f"name is {found[:200]!r}, not {name!r}")
        sha256 = _of_kind(inner, "sha256", str)
        if _SHA256.fullmatch(sha256) is None:
            raise _Damage(f"sha256 is {sha256[:80]!r}, not 64 hexadecimal digits")
        return StoredObject(name, _within(inner, "size", 0, _MOST_OFFSET), sha256)
    except _Damage as error:
        raise _Damage(f"{key}: {error}") from None


def _within(fields: dict[str, Any], name: str, low: int, high: int) -> int:
    value = _whole(fields, name)
    if not low <= value <= high:
        raise _Damage(f"{name} is {value}, not from {low} to {high}")
    return value


def _whole(fields: dict[str, Any], name: str) -> int:
    return _of_kind(fields, name, int)


def _of_kind(fields: dict[str, Any], name: str, kind: type[T]) -> T:
    if name not in fields:
        raise _Damage(f"{name} is missing")
    value = fields[name]
    if type(value) is not kind:
        raise _Damage(f"{name} is a {type(value).__name__}, not a {kind.__name__}")
    return value
