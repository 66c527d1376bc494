"""Writes rows into staged Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow.parquet import ParquetWriter

#: A row group, bytes in memory. Readers open large groups faster than many small ones.
GROUP_BYTES: Final = 64 * 1024 * 1024


class RowFile:
    """A Parquet file that is being written; created with the first row group.

    Args:
        group: bytes in memory of a row group.
    """

    def __init__(self, path: Path, schema: Any, compression: str, group: int = GROUP_BYTES) -> None:
        self.rows = 0
        self._path = path
        self._schema = schema
        self._compression = compression
        self._group = group
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._writer: Any = None
        self._stream: Any = None

    @property
    def bytes(self) -> int:
        """Bytes written so far, without the pending rows of an incomplete group."""
        return 0 if self._stream is None else int(self._stream.tell())

    def add(self, batch: Any) -> None:
        """Add a `pyarrow.RecordBatch`."""
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._group:
            self._write()

    def close(self) -> None:
        """Write the pending rows. Without rows, no file is created."""
        self._write()
        if self._writer is not None:
            self._writer.close()
            self._stream.close()
            self._writer = None

    def _write(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._stream = pa.OSFile(str(self._path), "wb")
            self._writer = ParquetWriter(self._stream, self._schema, compression=self._compression)
        self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._waiting_bytes = [], 0
