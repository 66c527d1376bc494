"""A table of settings by name (topics, groups) in one of the official broker's JSON files.

The file is written as a whole, may hold ten thousand entries, and every change writes it. So each
entry is encoded once, when it changes: ten thousand are joined in 0.3 ms and encoded in 7. What
other releases put into the file is kept: keys of the document, and fields of single entries.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from pocketmq.remoting.bodies import lenient
from pocketmq.remoting.bodies.base import Body
from pocketmq.remoting.bodies.registration import DataVersion
from pocketmq.store.config_file import ConfigFile, ConfigFileError, keep_unknown

log = logging.getLogger(__name__)

B = TypeVar("B", bound=Body)


class Content(NamedTuple):
    """The content of a file up to the first entry, and the entries, `"name":{...}` each."""

    head: bytes
    entries: Sequence[bytes]


class TableFile(Generic[B]):
    """The file at `path`, whose key `table_name` holds entries of type `entry`; `holds` names them
    for log lines.

    Attributes:
        document: what the file held when it was loaded.
    """

    def __init__(self, path: Path, holds: str, table_name: str, entry: type[B]) -> None:
        self.document: dict[str, Any] = {}
        self._file = ConfigFile(path, holds)
        self._table_name = table_name
        self._entry = entry
        self._known = set(entry.__struct_encode_fields__)
        # Fields of entries that mean nothing here, by the entry's name.
        self._unknown: dict[str, dict[str, Any]] = {}
        self._encoded: dict[str, bytes] = {}  # `"name":{...}` by name

    @property
    def stale(self) -> bool:
        """The file does not hold what was loaded."""
        return self._file.stale

    def load(self, version: DataVersion) -> tuple[dict[str, B], DataVersion]:
        """Return the entries and their version; no entries and `version` without a file.

        Raises ConfigFileError.
        """
        self.document = self._file.load()
        table = self.document.get(self._table_name, {})
        try:
            entries = {
                name: lenient.convert(_without_nulls(fields), self._entry)
                for name, fields in table.items()
            }
            if "dataVersion" in self.document:
                stored = self.document["dataVersion"]
                version = lenient.convert(stored, DataVersion)
        except (AttributeError, msgspec.ValidationError) as error:
            raise ConfigFileError(self._file.path, str(error)) from None
        for name, fields in table.items():
            unknown = {key: value for key, value in fields.items() if key not in self._known}
            if unknown:
                self._unknown[name] = unknown
        return entries, version

    def take_deleted(self, key: str) -> dict[str, int]:
        """Take what the document holds under `key` out of it: names that were deleted."""
        deleted = self.document.pop(key, {})
        try:
            return msgspec.convert(deleted, dict[str, int])
        except msgspec.ValidationError as error:
            log.warning("%s: %s is ignored: %s", self._file.path.name, key, error)
            return {}

    def changed(self, name: str, entry: B | None) -> None:
        """Take over one entry, or with None that there is none any more."""
        if entry is None:
            self._encoded.pop(name, None)
            self._unknown.pop(name, None)
            return
        fields: Any = entry
        unknown = self._unknown.get(name)
        if unknown is not None:
            fields = {**unknown, **msgspec.to_builtins(entry)}
        self._encoded[name] = b"%b:%b" % (msgspec.json.encode(name), msgspec.json.encode(fields))

    def encode(self, version: DataVersion, **others: Any) -> Content:
        """Return the file's content, with `others` as further keys of the document."""
        document = keep_unknown({"dataVersion": version, **others}, self.document)
        document.pop(self._table_name, None)
        head = msgspec.json.encode(document)[:-1]
        return Content(b'%b,"%b":{' % (head, self._table_name.encode()), [*self._encoded.values()])

    def write(self, content: Content) -> None:
        """Write what `encode` gave. Blocks; raises OSError."""
        self._file.write(b"".join((content.head, b",".join(content.entries), b"}}")))


def _without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
