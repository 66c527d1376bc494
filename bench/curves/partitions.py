"""The curve of Spark: rows per second against partitions of a read, on two cores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.contenders import OURS
from bench.filled_store import write_store
from bench.full.workload import Session

from .curve import Curve, Points

GIBIBYTES = 1.0
BODY = 1024


def _measure(session: Session, sizes: Sequence[int], points: Points) -> None:
    # Spark is imported only where it is used: the other curves do without.
    from bench.paired_times import times_of_reads
    from bench.scan import SHAPES, start_session
    from pocketmq.spark.sessions.java import SparkUnavailable, find_java, use_java

    try:
        use_java(find_java())
    except SparkUnavailable as missing:
        raise RuntimeError(str(missing)) from None
    root = session.directory / "store"
    write_store(root, max(int(GIBIBYTES * session.scale * 2**30), 16 << 20), BODY)
    spark = start_session()
    try:
        schema = SHAPES["all columns"]
        reader = spark.read.format("rocketmq").schema(schema)
        rows = reader.load(str(root)).count()
        for size in sizes:
            read = partial(reader.option("minPartitions", size).load, str(root))
            partitions = read().rdd.getNumPartitions()
            for seconds in times_of_reads({"read": read}, session.rounds)["read"]:
                points.add(partitions, OURS, rows / seconds)
    finally:
        spark.stop()


PARTITIONS = Curve(
    "partitions", "Spark reads all columns of 1 GiB, local[2]", "partitions of the read",
    "rows/s", (1, 2, 4, 8, 16, 64), _measure,
)  # fmt: skip
