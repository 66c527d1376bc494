"""Measure the triggers of a stream: large ones against a batch read of the same messages, and small
ones against Spark's own rate source.

What Spark does for each trigger (planning, its log, the commit) takes the same time whatever the
source is; the targets hold the source to what it adds. Beside the rate source, which is part of
Spark's Java, stands a source in Python that does nothing but hand out one batch that is ready: the
least that a trigger of any Python source takes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from bench.paired_times import report
from pocketmq.spark.schema import arrow_schema

LARGE_TARGET = 0.85
SMALL_TARGET = 1.3
_LARGE = 1_000_000
_SMALL = 4
_WARM = 10
_TRIGGERS = 25
_TURNS = 3
_PHASES = ("latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")
ROWS = "queueOffset bigint, body binary"


def measure_large(spark: SparkSession, root: Path, name: str, schema: str, rounds: int) -> float:
    """The rate of triggers of a million messages, by that of a batch read; printed with both."""
    times: dict[str, list[float]] = {"batch": [], "stream": []}
    rows = 0
    for turn in range(rounds + 1):
        started = time.perf_counter()
        frame = spark.read.format("rocketmq").schema(schema).load(str(root))
        frame.write.format("noop").mode("overwrite").save()
        batch = time.perf_counter() - started
        with tempfile.TemporaryDirectory() as checkpoint:
            query = _start(_stream(spark, root, schema, _LARGE), checkpoint, ends=True)
            query.awaitTermination()
        done = [progress for progress in query.recentProgress if progress.numInputRows]
        rows = sum(progress.numInputRows for progress in done)
        if turn:  # the first warms up
            times["batch"].append(batch)
            times["stream"].append(sum(p.durationMs["triggerExecution"] for p in done) / 1000)
    print(f"triggers of up to {_LARGE} messages, {name}: {rows} rows")
    return report(times, rows, "rows", LARGE_TARGET)


def measure_small(spark: SparkSession, root: Path) -> float:
    """The time of triggers of a few messages, by that of as many rows of the rate source."""
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _SMALL).load()
    spark.dataSource.register(ReadyMadeStream)
    contenders = {
        "rate": rate,
        "ready-made": spark.readStream.format(ReadyMadeStream.name()).load(),
        "rocketmq": _stream(spark, root, ROWS, _SMALL),
    }
    print(f"triggers of {_SMALL} rows, median ms")
    times: dict[str, list[float]] = {name: [] for name in contenders}
    phases: dict[str, list[Mapping[str, int]]] = {name: [] for name in contenders}
    for _ in range(_TURNS):
        for name, frame in contenders.items():
            done = _small_triggers(frame)
            phases[name] += done
            times[name].append(statistics.median(each["triggerExecution"] for each in done))
    for name, done in phases.items():
        parts = (f"{p} {statistics.median(each[p] for each in done):.0f}" for p in _PHASES)
        print(f"  {name:10} {statistics.median(times[name]):6.0f}: {', '.join(parts)}")
    first, ready, ours = (times[name] for name in contenders)
    ratio = statistics.median(b / a for a, b in zip(first, ours, strict=True))
    beside = statistics.median(b / a for a, b in zip(ready, ours, strict=True))
    print(f"  ratio      {ratio:.2f}, target at most {SMALL_TARGET}; of ready-made {beside:.2f}")
    return ratio


def _small_triggers(frame: DataFrame) -> list[Mapping[str, int]]:
    """What triggers that come one behind the other took, in all and in parts (ms)."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = _start(frame, checkpoint, ends=False)
        try:
            while len(query.recentProgress) < _WARM + _TRIGGERS:
                query.awaitTermination(1)  # raises what ended it
        finally:
            query.stop()
    return [progress.durationMs for progress in query.recentProgress[_WARM:]]


def _stream(spark: SparkSession, root: Path, schema: str, most: int) -> DataFrame:
    reader = spark.readStream.format("rocketmq").schema(schema)
    reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=most)
    return reader.load(str(root))


def _start(frame: DataFrame, checkpoint: str, *, ends: bool) -> StreamingQuery:
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    return (writer.trigger(availableNow=True) if ends else writer).start()


class ReadyMadeStream(DataSource):
    """A few rows for each trigger, always the same ones."""

    @classmethod
    def name(cls) -> str:
        return "ready-made-stream"

    def schema(self) -> str:
        return ROWS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ReadyMadeStreamReader(schema)


class ReadyMadeStreamReader(DataSourceStreamReader):
    def __init__(self, schema: StructType) -> None:
        columns = [pa.array(range(_SMALL), pa.int64()), pa.array([bytes(1024)] * _SMALL)]
        self.batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))

    def initialOffset(self) -> dict[str, int]:
        return {"triggers": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"triggers": start["triggers"] + 1}

    def partitions(self, start: object, end: object) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield self.batch
