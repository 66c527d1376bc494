"""Measure the triggers of a stream: large ones against a batch read of the same messages, and small
ones against Spark's own rate source.

What Spark does for each trigger (planning, its log, the commit) takes the same time whatever the
source is; the targets hold the source to what it adds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.paired_times import report

LARGE_TARGET = 0.85
SMALL_TARGET = 1.3
_LARGE = 1_000_000
_SMALL = 4
_WARM = 10
_TRIGGERS = 50


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
    medians = {
        "rate": _small_triggers(rate),
        "rocketmq": _small_triggers(
            _stream(spark, root, "queueOffset bigint, body binary", _SMALL)
        ),
    }
    ratio = medians["rocketmq"] / medians["rate"]
    print(f"triggers of {_SMALL} rows: " + ", ".join(f"{n} {t:.0f} ms" for n, t in medians.items()))
    print(f"  ratio      {ratio:.2f}, target at most {SMALL_TARGET}")
    return ratio


def _small_triggers(frame: DataFrame) -> float:
    """The median time (ms) of triggers that come one behind the other."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = _start(frame, checkpoint, ends=False)
        try:
            while query.isActive and len(query.recentProgress) < _WARM + _TRIGGERS:
                time.sleep(0.1)
        finally:
            query.stop()
    done = query.recentProgress[_WARM:]
    return statistics.median(progress.durationMs["triggerExecution"] for progress in done)


def _stream(spark: SparkSession, root: Path, schema: str, most: int) -> DataFrame:
    reader = spark.readStream.format("rocketmq").schema(schema)
    reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=most)
    return reader.load(str(root))


def _start(frame: DataFrame, checkpoint: str, *, ends: bool) -> StreamingQuery:
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    return (writer.trigger(availableNow=True) if ends else writer).start()
