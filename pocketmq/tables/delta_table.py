"""A Delta table. Commits of pocketmq in its log carry offsets in `commitInfo`, under `pocketmq`.

Each of them is also a transaction of the application `pocketmq` with the commit's number as
version; Delta's log cleanup never removes those. So Delta refuses a second writer of the same
number, and a commit whose offsets were removed from the log is detected.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import deltalake
import msgspec
import pyarrow as pa
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyarrow.parquet import read_metadata

from pocketmq.tables.commit import Commit, decode
from pocketmq.tables.errors import TableError
from pocketmq.tables.evolution import widened
from pocketmq.tables.table_directory import TableDirectory

_APPLICATION: Final = "pocketmq"


class DeltaTable:
    """See `pocketmq.tables.table.Table`. Others may write to the table, and optimize it."""

    def __init__(self, path: Path) -> None:
        if (path / "_pocketmq" / "commit.json").exists():
            raise TableError(f"{path} is a table of plain Parquet files; choose the format parquet")
        self.directory = TableDirectory(path)
        self._uri = str(path.resolve())
        self._schema: Any = None
        try:
            exists = deltalake.DeltaTable.is_deltatable(self._uri)
            self._table = deltalake.DeltaTable(self._uri) if exists else None
            self._last = Commit() if self._table is None else self._find(self._table)
            self.directory.settle(self._last)
        except DeltaError as error:
            self.close()
            raise TableError(f"cannot read the Delta table {path}: {error}") from None
        except BaseException:
            self.close()
            raise

    @property
    def last(self) -> Commit:
        return self._last

    def _find(self, table: Any) -> Commit:
        number = table.transaction_version(_APPLICATION)
        if number is None:
            return Commit()  # created by another writer, and not yet written to by pocketmq
        for limit in (1, None):
            for entry in table.history(limit):
                if _APPLICATION in entry:
                    commit = decode(entry[_APPLICATION], f"the log of {self.directory.path}")
                    if commit.number == number:
                        return commit
        raise TableError(
            f"the Delta table {self.directory.path} no longer says where its export ended: "
            f"commit {number} of pocketmq has been cleaned from its log "
            "(delta.logRetentionDuration); export to another directory"
        )

    def widen(self, schema: Any) -> None:
        self._schema = schema
        if self._table is None:
            return
        known = pa.schema(self._table.schema().to_arrow())
        if widened(known, schema, self.directory.path) == known:
            return
        fields = deltalake.Schema.from_arrow(schema).fields
        before = {field.name: field for field in self._table.schema().fields}
        self._table.alter.add_columns(
            [field for field in fields if before.get(field.name) != field]
        )
        self._table = deltalake.DeltaTable(self._uri)

    def commit(self, commit: Commit) -> None:
        self.directory.sync_staged([*commit.files, *commit.dead_letters])
        self.directory.place(commit.files, self.directory.path)
        actions = [self._action(name) for name in commit.files]
        properties = _properties(commit)
        try:
            if self._table is None:
                schema = deltalake.Schema.from_arrow(self._schema)
                create_table_with_add_actions(
                    self._uri, schema, actions, mode="error", commit_properties=properties
                )
                self._table = deltalake.DeltaTable(self._uri)
            else:
                # Its state is that of the last commit; an old one would look like a conflict.
                self._table.update_incremental()
                self._table.create_write_transaction(
                    actions, "append", self._table.schema(), commit_properties=properties
                )
        except DeltaError as error:
            where = self.directory.path
            raise TableError(f"cannot write to the Delta table {where}: {error}") from None
        self._last = commit
        self.directory.settle(commit)

    def _action(self, name: str) -> Any:
        path = self.directory.path / name
        stats = json.dumps({"numRecords": read_metadata(path).num_rows})
        now = int(time.time() * 1000)
        return AddAction(name, path.stat().st_size, {}, now, True, stats)

    def compact(self, target: int) -> int:
        if self._table is None:
            return 0
        # Repeat the offsets, so that the newest commit has them.
        info = deltalake.CommitProperties(
            custom_metadata={_APPLICATION: msgspec.json.encode(self._last).decode()}
        )
        try:
            done = self._table.optimize.compact(target_size=target, commit_properties=info)
        except DeltaError as error:
            where = self.directory.path
            raise TableError(f"cannot compact the Delta table {where}: {error}") from None
        return int(done["numFilesRemoved"])

    def close(self) -> None:
        self.directory.close()


def _properties(commit: Commit) -> Any:
    return deltalake.CommitProperties(
        custom_metadata={_APPLICATION: msgspec.json.encode(commit).decode()},
        app_transactions=[deltalake.Transaction(_APPLICATION, commit.number)],
        max_commit_retries=3,
    )
