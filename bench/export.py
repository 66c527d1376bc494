"""Measure an export into a table against the same scan with a plain Parquet writer, in turn."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from bench.filled_store import write_store
from bench.paired_times import report
from bench.work_directory import work_directory
from pocketmq.store.scan.direct_scan import scan
from pocketmq.store.scan.records.columns import COLUMNS
from pocketmq.tables.exports import export
from pocketmq.tables.table import TableFormat, open_table

TARGET = 0.8
_GROUP_BYTES = 64 * 1024 * 1024


def main() -> int:
    parser = argparse.ArgumentParser("python -m bench.export", description=__doc__)
    parser.add_argument("--gib", type=float, default=0.5, help="size of the store (0.5)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--format", choices=("parquet", "delta"), default="parquet")
    parser.add_argument("--check", action="store_true", help="exit 1 when the target is missed")
    options = parser.parse_args()
    with ExitStack() as cleanup:
        root = cleanup.enter_context(work_directory("pocketmq-export-"))
        write_store(root / "store", int(options.gib * 2**30), 1024)
        times: dict[str, list[float]] = {"scan + Parquet": [], "export": []}
        for turn in range(options.rounds):
            started = time.perf_counter()
            rows = write_plain(root / "store", root / f"{turn}.parquet")
            times["scan + Parquet"].append(time.perf_counter() - started)
            started = time.perf_counter()
            write_table(root / "store", root / f"table{turn}", options.format)
            times["export"].append(time.perf_counter() - started)
        ratio = report(times, rows, "messages", TARGET)
    return 1 if options.check and ratio < TARGET else 0


def write_plain(store: Path, file: Path) -> int:
    """Write row groups as the export does, and nothing else."""
    schema = pa.schema(list(COLUMNS.items()))
    rows = 0
    waiting: list[pa.RecordBatch] = []
    with ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in itertools.chain(scan(store), [None]):
            if batch is not None:
                waiting.append(batch)
                rows += batch.num_rows
            if batch is None or sum(one.nbytes for one in waiting) >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(waiting, schema))
                waiting = []
    return rows


def write_table(store: Path, directory: Path, format: TableFormat) -> None:
    table = open_table(directory, format)
    try:
        export(table, [store], columns=tuple(COLUMNS))
    finally:
        table.close()


if __name__ == "__main__":
    sys.exit(main())
