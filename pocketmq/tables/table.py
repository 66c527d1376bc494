"""The interface of a table of any format."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_args

from pocketmq._extras import require
from pocketmq.tables.commit import Commit
from pocketmq.tables.errors import TableError
from pocketmq.tables.table_directory import TableDirectory

TableFormat = Literal["parquet", "delta"]
TABLE_FORMATS: Final[tuple[str, ...]] = get_args(TableFormat)
Keeper = Literal["export", "table_sink"]


class Table(Protocol):
    """A table that one process writes. A commit adds all its files or none."""

    directory: TableDirectory

    @property
    def last(self) -> Commit:
        """The last commit."""

    def widen(self, schema: Any) -> None:
        """Add the new columns and fields of structs of `schema`.

        Raises TableError if a column is missing or has another type.
        """

    def commit(self, commit: Commit) -> None:
        """Add the staged files that `commit` names, and store its metadata.

        Raises TableError.
        """

    def compact(self, target: int) -> int:
        """Merge small files into files of about `target` bytes; return how many were merged."""

    def close(self) -> None:
        """Let other processes write."""


def open_table(path: Path, format: TableFormat) -> Table:
    """Open the table in a directory, which is created if it does not exist.

    Raises:
        TableBusy, TableError: another process writes to it; it is not a table of this format.
        MissingExtra: Delta needs `pocketmq[tables]`.
        OSError: the directory cannot be made or written to.
    """
    if format == "delta":
        require("tables", "the format delta")
        from pocketmq.tables.delta_table import DeltaTable

        return DeltaTable(path)
    from pocketmq.tables.parquet_table import ParquetTable

    return ParquetTable(path)


def is_table(path: Path) -> bool:
    """Return whether a directory has a table of either format."""
    return (path / "_delta_log").is_dir() or (path / "_pocketmq" / "commit.json").is_file()


def check_keeper(table: Table, keeper: Keeper) -> None:
    """Refuse a table kept by the other kind of writer: exports track offsets, `table_sink` the
    batches of its query, so each would add the other's rows again.

    Raises TableError.
    """
    last, path = table.last, table.directory.path
    if keeper == "export" and last.batches and not last.offsets:
        raise TableError(
            f"the table {path} is kept by table_sink: its commits do not say which messages it "
            "has, and an export would add all of them again; export to another directory, or join "
            f"its small files with `pocketmq export --compact --to {path}`, without --store"
        )
    if keeper == "table_sink" and last.offsets and not last.batches:
        raise TableError(
            f"the table {path} is kept by `pocketmq export`: its commits do not say which batches "
            "of a query it has, and table_sink would add messages again; choose another directory"
        )
