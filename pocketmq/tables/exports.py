"""Exports new messages of stores to a table, from the position of its last commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from pocketmq.store.scan.records.columns import ALL_COLUMNS
from pocketmq.tables.body_decoder import BodyDecoder
from pocketmq.tables.message_source import NewMessages
from pocketmq.tables.table import Table, check_keeper
from pocketmq.tables.table_writer import OnError, TableWriter, table_schema

#: The columns that every dead letter has, so that its message can be found.
_PLACE: Final = ("topic", "queueId", "brokerName", "queueOffset")
FILE_BYTES: Final = 128 * 1024 * 1024


@dataclass(slots=True)
class Exported:
    """The progress of an export. `stored` counts the messages to export, and `replaced` the queues
    that differ from those of the last export because their topics were deleted, and perhaps
    recreated."""

    stored: int = 0
    messages: int = 0
    dead_letters: int = 0
    skipped: int = 0
    lost: int = 0
    replaced: int = 0
    commits: int = 0
    files: int = 0


def export(
    table: Table,
    stores: Sequence[Path],
    *,
    topics: Sequence[str] | None = None,
    columns: tuple[str, ...],
    decoder: BodyDecoder | None = None,
    on_error: OnError = "dead-letter",
    compression: str = "zstd",
    file_bytes: int = FILE_BYTES,
    skip_lost: bool = False,
    planned: Callable[[int], None] = lambda _: None,
    advanced: Callable[[int], None] = lambda _: None,
) -> Exported:
    """Write the messages that `table` lacks to it, each exactly once.

    Commits after every `file_bytes` bytes of Parquet and at the end. After a kill, the next export
    repeats the uncommitted part.

    Args:
        planned: called with the number of messages to export.
        advanced: called with the number of messages of each batch read.

    Raises:
        TableError, StoreError: as `NewMessages` and `Table`. TableError also if the table is kept
            by `table_sink`.
        UndecodableBody: if `on_error` is `fail`. Earlier commits stay.
    """
    check_keeper(table, "export")
    read = _columns_to_read(columns, decoder)
    schema = pa.schema([(name, ALL_COLUMNS[name]) for name in read])
    position = table.last.position
    is_first = table.last.number == 0
    source = NewMessages(stores, topics, read, position, is_first=is_first, skip_lost=skip_lost)
    table.widen(table_schema(schema, columns, decoder))
    done = Exported(stored=source.count)
    planned(done.stored)

    def writer() -> TableWriter:
        return TableWriter(
            table.directory.path,
            table.last.number + 1,
            schema,
            columns,
            decoder=decoder,
            on_error=on_error,
            compression=compression,
            file_bytes=file_bytes,
        )

    def commit(rows: TableWriter) -> None:
        files, dead = rows.close()
        table.commit(table.last.following(files=files, dead_letters=dead, position=position))
        done.messages += rows.messages
        done.dead_letters += rows.dead_letters
        done.skipped += rows.skipped
        done.files += len(files)
        done.commits += 1
        done.lost = source.lost

    open_rows = writer()
    for reached, batch in source:
        if batch is not None:
            open_rows.add(batch)
            advanced(batch.num_rows)
        for queue, at in reached.items():
            if at is None:
                del position[queue]
            else:
                position[queue] = at
        if open_rows.is_full:
            commit(open_rows)
            open_rows = writer()
    if position != table.last.position:
        commit(open_rows)
    done.lost, done.replaced = source.lost, source.replaced
    return done


def _columns_to_read(columns: Sequence[str], decoder: BodyDecoder | None) -> tuple[str, ...]:
    more: Sequence[Any] = ("queueOffset",) if decoder is None else (*_PLACE, "body")
    return (*columns, *(name for name in more if name not in columns))
