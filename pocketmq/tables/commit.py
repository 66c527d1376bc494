"""The metadata of a table's commit: where its messages came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from pocketmq.store.scan.stream_offsets import (
    OffsetsError,
    Position,
    Positions,
    StreamQueue,
    from_json,
    to_json,
)
from pocketmq.tables.errors import TableError

#: A name from `table_directory.new_name`. A commit moves and removes files by name, so a name must
#: not lead out of the table's directory.
FileName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"\A[0-9]{10}-[0-9a-f]{32}\.parquet\Z", description="the name of a file of a table"
    ),
]


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One commit, with everything that the next one needs.

    Attributes:
        number: of the commit; 0 for a table without commits.
        offsets: next offsets to export, by topic, broker and queue; see `stream_offsets`.
        batches: the last batch of each of Spark's streaming queries, by the query's id.
        files: names of the Parquet files that it added to the directory of the table ...
        dead_letters: ... and to that of the dead letters.
        replaced: names of the files that the first of these replace.
        schema: the columns of a table of plain Parquet files, as base64 of Arrow's IPC format.
    """

    number: int = 0
    offsets: dict[str, dict[str, dict[str, int | list[int]]]] = {}
    batches: dict[str, int] = {}
    files: list[FileName] = []
    dead_letters: list[FileName] = []
    replaced: list[FileName] = []
    schema: str = ""

    @property
    def position(self) -> Positions:
        """Return the position up to which each queue is exported. Raises TableError."""
        try:
            return from_json(self.offsets)
        except OffsetsError as error:
            raise TableError(f"the table's last commit is damaged: {error}") from None

    def following(
        self,
        *,
        files: Sequence[str] = (),
        dead_letters: Sequence[str] = (),
        replaced: Sequence[str] = (),
        position: Mapping[StreamQueue, Position] | None = None,
        batches: Mapping[str, int] | None = None,
    ) -> Commit:
        """Return the next commit, with the changes."""
        return Commit(
            number=self.number + 1,
            offsets=self.offsets if position is None else to_json(position),
            batches=self.batches | dict(batches or {}),
            files=list(files),
            dead_letters=list(dead_letters),
            replaced=list(replaced),
            schema=self.schema,
        )


def decode(text: str | bytes, where: str) -> Commit:
    """Return the commit that was written as JSON. Raises TableError."""
    try:
        return msgspec.json.decode(text, type=Commit)
    except msgspec.MsgspecError as error:
        raise TableError(f"{where} is damaged: {error}; restore it from a copy") from None
