"""A table of settings by name (topics, groups) in one of the official broker's JSON files.

The file is written whenever the table changes and may hold thousands of entries, so it is
encoded in one go in C. What other releases put into it is kept: keys of the document, and fields
of single entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from pocketmq.remoting.bodies import lenient
from pocketmq.remoting.bodies.base import Body
from pocketmq.remoting.bodies.registration import DataVersion
from pocketmq.store.config_file import ConfigFile, ConfigFileError, keep_unknown

B = TypeVar("B", bound=Body)


class TableFile(Generic[B]):
    """The file at `path`, whose key `table_name` holds entries of type `entry`.

    Attributes:
        document: what the file held when it was loaded.
    """

    def __init__(self, path: Path, table_name: str, entry: type[B]) -> None:
        self.document: dict[str, Any] = {}
        self._file = ConfigFile(path)
        self._table_name = table_name
        self._entry = entry
        self._known = set(entry.__struct_encode_fields__)
        # Fields of entries that mean nothing here, by the entry's name.
        self._unknown: dict[str, dict[str, Any]] = {}

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

    def save(self, table: Mapping[str, B], version: DataVersion, **others: Any) -> None:
        """Write the table, and `others` as further keys of the document. Blocks; raises OSError."""
        for name in [name for name in self._unknown if name not in table]:
            del self._unknown[name]
        document = {"dataVersion": version, **others, self._table_name: self._merged(table)}
        self._file.write(msgspec.json.encode(keep_unknown(document, self.document)))

    def _merged(self, table: Mapping[str, B]) -> dict[str, Any]:
        merged: dict[str, Any] = dict(table)
        for name, unknown in self._unknown.items():
            merged[name] = {**unknown, **msgspec.to_builtins(table[name])}
        return merged


def _without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
