"""A directory of Parquet files as a table. Its last commit is DIR/_pocketmq/commit.json."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow.parquet import ParquetFile, read_metadata

from pocketmq.tables.commit import Commit, decode
from pocketmq.tables.errors import TableError
from pocketmq.tables.evolution import widened
from pocketmq.tables.row_files import RowFile
from pocketmq.tables.table_directory import TableDirectory, new_name, staged_path, write_synced

_NAME: Final = re.compile(r"\d{10}-[0-9a-f]{32}\.parquet")


class ParquetTable:
    """See `pocketmq.tables.table.Table`. Files of other names in the directory are left alone."""

    def __init__(self, path: Path) -> None:
        if (path / "_delta_log").is_dir():
            raise TableError(f"{path} is a Delta table; choose the format delta")
        self.directory = TableDirectory(path)
        self._file = self.directory.own / "commit.json"
        try:
            self._last = self._read()
            self.directory.settle(self._last)
        except BaseException:
            self.close()
            raise
        self._schema = self._last.schema

    @property
    def last(self) -> Commit:
        return self._last

    def _read(self) -> Commit:
        try:
            return decode(self._file.read_bytes(), str(self._file))
        except FileNotFoundError:
            return Commit()

    def widen(self, schema: Any) -> None:
        if self._schema:
            known = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self._schema)))
            schema = widened(known, schema, self.directory.path)
        self._schema = base64.b64encode(schema.serialize()).decode()

    def commit(self, commit: Commit) -> None:
        commit = msgspec.structs.replace(commit, schema=self._schema)
        self.directory.sync_staged([*commit.files, *commit.dead_letters])
        write_synced(self._file, msgspec.json.encode(commit))
        self._last = commit
        self.directory.settle(commit)

    def compact(self, target: int) -> int:
        joined = 0
        for group in self._groups(target):
            commit = self._last.following(replaced=[path.name for path in group])
            name = new_name(commit.number)
            _join(group, staged_path(self.directory.path, name))
            self.commit(msgspec.structs.replace(commit, files=[name]))
            joined += len(group)
        return joined

    def _groups(self, target: int) -> list[list[Path]]:
        """Return files with the same columns, in the order of their commits, that together fit into
        one of `target` bytes."""
        groups: list[list[Path]] = [[]]
        size, schema = 0, None
        for path in sorted(self.directory.path.iterdir()):
            if not _NAME.fullmatch(path.name):
                continue
            its_size = path.stat().st_size
            its_schema = read_metadata(path).schema.to_arrow_schema()
            if size + its_size > target or its_schema != schema:
                groups.append([])
                size, schema = 0, its_schema
            groups[-1].append(path)
            size += its_size
        return [group for group in groups if len(group) > 1]

    def close(self) -> None:
        self.directory.close()


def _join(paths: list[Path], target: Path) -> None:
    """Write the rows of several files into one, with their compression."""
    first = read_metadata(paths[0])
    compression = first.row_group(0).column(0).compression.lower()
    compression = "none" if compression == "uncompressed" else compression
    file = RowFile(target, first.schema.to_arrow_schema(), compression)
    for path in paths:
        with ParquetFile(path) as source:
            for batch in source.iter_batches():
                file.add(batch)
    file.close()
