"""Writes messages and dead letters into files that a commit adds to a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, get_args

import pyarrow as pa

from pocketmq.tables.body_decoder import REASON, BodyDecoder
from pocketmq.tables.errors import UndecodableBody
from pocketmq.tables.row_files import GROUP_BYTES, RowFile
from pocketmq.tables.table_directory import new_name, staged_path

OnError = Literal["dead-letter", "skip", "fail"]
ON_ERROR: Final[tuple[str, ...]] = get_args(OnError)


class TableWriter:
    """The files of the next commit: one of rows, one of dead letters.

    Args:
        table: the directory of the table.
        number: of the commit.
        columns: the columns of the batches that become columns of the table.
        decoder: of bodies; None leaves them as they are.
        on_error: how to treat bodies that cannot be decoded.
        file_bytes: the size at which the file of rows is large enough.

    Attributes:
        messages: rows so far.
        dead_letters: dead letters so far.
        skipped: messages left out so far.
    """

    def __init__(
        self,
        table: Path,
        number: int,
        messages_schema: Any,
        columns: tuple[str, ...],
        *,
        decoder: BodyDecoder | None = None,
        on_error: OnError = "dead-letter",
        compression: str = "zstd",
        file_bytes: int = GROUP_BYTES,
    ) -> None:
        self.messages = self.dead_letters = self.skipped = 0
        self._columns = list(columns)
        self._decoder = decoder
        self._on_error = on_error
        self._file_bytes = file_bytes
        self._names = (new_name(number), new_name(number))
        group = min(GROUP_BYTES, file_bytes)
        schema = table_schema(messages_schema, columns, decoder)
        dead_schema = messages_schema.append(REASON)
        rows, dead = (staged_path(table, name) for name in self._names)
        self._rows = RowFile(rows, schema, compression, group)
        self._dead = RowFile(dead, dead_schema, compression, group)

    @property
    def is_full(self) -> bool:
        """Whether it is time to commit."""
        return self._rows.bytes >= self._file_bytes or self._dead.bytes >= self._file_bytes

    @property
    def is_empty(self) -> bool:
        """Whether only the position would be committed."""
        return not self._rows.rows and not self._dead.rows

    def add(self, batch: Any) -> None:
        """Add messages as a `pyarrow.RecordBatch`. Raises UndecodableBody."""
        if self._decoder is not None:
            batch, dead = self._decoder.decode(batch)
            if dead.num_rows:
                self._set_aside(dead)
        self.messages += batch.num_rows
        self._rows.add(batch.select(self._columns))

    def _set_aside(self, dead: Any) -> None:
        if self._on_error == "fail":
            first = dead.slice(0, 1).to_pylist()[0]
            raise UndecodableBody(_named(first), first["reason"])
        if self._on_error == "skip":
            self.skipped += dead.num_rows
        else:
            self.dead_letters += dead.num_rows
            self._dead.add(dead)

    def close(self) -> tuple[list[str], list[str]]:
        """Finish the files; return the names of those with rows and of those with dead letters."""
        files = (self._rows, self._dead)
        for file in files:
            file.close()
        rows, dead = ([n] if f.rows else [] for n, f in zip(self._names, files, strict=True))
        return rows, dead


def table_schema(messages: Any, columns: tuple[str, ...], decoder: BodyDecoder | None) -> Any:
    """Return the columns of a table of such messages."""
    schema = messages if decoder is None else decoder.schema(messages)
    return pa.schema([schema.field(name) for name in columns])


def _named(message: dict[str, Any]) -> str:
    place = [
        str(message[name])
        for name in ("topic", "brokerName", "queueId", "queueOffset")
        if name in message
    ]
    return f"the message {'/'.join(place)}" if place else "a message"
