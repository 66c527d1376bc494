"""Measure a full scan with Spark against a source that has its Arrow batches ready, and streams.

Both give the same columns in the same number of rows and partitions, in turn, in one session on two
cores. What the ready-made source takes is what Spark takes to move the data out of Python; the rest
is ours. The target is 0.6 of its rate. Queries of few columns, through `pocketmq.spark.pruned`, are
held against the same queries of a DataFrame with a schema. `bench.stream_triggers` has what is
measured of streams, and `bench.live_reads` reads from a running broker.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.filled_store import write_store
from bench.live_reads import LIVE_TARGET, measure_live
from bench.paired_times import report, times_in_turn, times_of_reads
from bench.stream_triggers import LARGE_TARGET, SMALL_TARGET, measure_large, measure_small
from bench.work_directory import work_directory
from pocketmq.spark import pruned
from pocketmq.spark.schema import arrow_schema, ddl
from pocketmq.spark.sessions.java import SparkUnavailable, find_java, use_java
from pocketmq.store.scan.direct_scan import scan

TARGET = 0.6

SHAPES = {
    "all columns": ddl(include_metadata=False),
    "queueOffset, body": "queueOffset bigint, body binary",
}

FEW_TARGET = 0.9

FEW: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "count(*)": (lambda messages: messages.groupBy().count(), "queueId int"),
    "count by tags": (lambda messages: messages.groupBy("tags").count(), "tags string"),
}
"""Queries, and the columns they need."""


def main() -> int:
    options = arguments()
    try:
        use_java(find_java())
    except SparkUnavailable as missing:
        print(f"no benchmark: {missing}")
        return 1
    with ExitStack() as cleanup:
        root = options.store
        if root is None:
            root = cleanup.enter_context(work_directory("pocketmq-scan-"))
        if not (root / "commitlog").is_dir():
            print(f"writing {options.gib:g} GiB of messages of {options.body} bytes to {root}")
            write_store(root, int(options.gib * 2**30), options.body)
        spark = start_session()
        cleanup.callback(spark.stop)
        spark.dataSource.register(ReadyMade)
        ratios = {
            name: measure(spark, root, name, schema, options.rounds)
            for name, schema in SHAPES.items()
        }
        ratios |= {
            name: measure_few(spark, root, name, query, schema, options.rounds)
            for name, (query, schema) in FEW.items()
        }
        live = {
            f"{name}, live": measure_live(spark, root, name, schema, options.rounds)
            for name, schema in SHAPES.items()
        }
        large = measure_large(spark, root, *next(iter(SHAPES.items())), options.rounds)
        small = measure_small(spark, root)
    missed = [
        name for name, ratio in ratios.items() if ratio < (FEW_TARGET if name in FEW else TARGET)
    ]
    missed += [name for name, ratio in live.items() if ratio < LIVE_TARGET]
    if large < LARGE_TARGET:
        missed.append("large triggers")
    if small > SMALL_TARGET:
        missed.append("small triggers")
    return 1 if options.check and missed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scan", description=__doc__)
    parser.add_argument("--gib", type=float, default=1.0, help="size of the store (1)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body (1024)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument(
        "--store", type=Path, help="keep the store here, or use the one there; a broker runs on it"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when the target is missed")
    return parser.parse_args()


def start_session(config: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session on two cores; `config` has further settings of Spark."""
    project = str(Path(__file__).parents[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (project, os.environ.get("PYTHONPATH", "")))
    )
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.log.level", "ERROR")
    )
    for name, value in (config or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class ReadyMade(DataSource):
    """Yields one batch again and again: the first of the store, read before the first row."""

    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyMadeReader(schema, self.options)


class ReadyMadeReader(DataSourceReader):
    def __init__(self, schema: StructType, options: Any) -> None:
        self.schema = arrow_schema(schema)
        self.root = options["path"]
        self.rows = int(options["rows"])
        self.components = int(options["parts"])

    def partitions(self) -> list[InputPartition]:
        share, rest = divmod(self.rows, self.components)
        return [InputPartition(share + (number < rest)) for number in range(self.components)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batches = scan(self.root, self.schema.names)
        next(batches)  # the first is a small one
        batch = pa.RecordBatch.from_arrays(next(batches).columns, schema=self.schema)
        left = partition.value
        for whole in repeat(batch):
            if left <= 0:
                return
            yield whole if left >= whole.num_rows else whole.slice(0, left)
            left -= whole.num_rows


def times_of_scans(
    spark: SparkSession, root: Path, schema: str, rounds: int
) -> tuple[int, int, dict[str, list[float]]]:
    """The rows of the store at `root`, the partitions of a read, and what reads of the ready-made
    source and of ours take in turn. The session knows `ReadyMade`."""
    ours = spark.read.format("rocketmq").schema(schema).load(str(root))
    rows, parts = ours.count(), ours.rdd.getNumPartitions()
    ready = spark.read.format("ready-made").schema(schema)
    ready = ready.options(rows=rows, parts=parts)
    contenders: dict[str, Callable[[], DataFrame]] = {
        "ready-made": lambda: ready.load(str(root)),
        "rocketmq": lambda: spark.read.format("rocketmq").schema(schema).load(str(root)),
    }
    return rows, parts, times_of_reads(contenders, rounds)


def measure_few(
    spark: SparkSession,
    root: Path,
    name: str,
    query: Callable[[DataFrame], DataFrame],
    schema: str,
    rounds: int,
) -> float:
    """The ratio of the rates of a query that finds out its columns and one that is told them."""

    def load() -> DataFrame:
        return spark.read.format("rocketmq").load(str(root))

    def load_few() -> DataFrame:
        return spark.read.format("rocketmq").schema(schema).load(str(root))

    rows = load_few().count()
    contenders = {
        "schema": lambda: query(load_few()).collect(),
        "pruned": lambda: pruned(load(), query).collect(),
    }
    times = times_in_turn(contenders, rounds)
    print(f"{name}: {rows} rows")
    return report(times, rows, "rows", FEW_TARGET)


def measure(spark: SparkSession, root: Path, name: str, schema: str, rounds: int) -> float:
    """The ratio of the rates of our source and the ready-made one, printed with both."""
    rows, parts, times = times_of_scans(spark, root, schema, rounds)
    print(f"{name}: {rows} rows in {parts} partitions")
    return report(times, rows, "rows", TARGET)


if __name__ == "__main__":
    sys.exit(main())
