"""Measure Spark's Kafka source and this one on the same messages, in turn (A B A B).

The messages of a store are copied to Kafka by Spark, with their keys, bodies and properties (as
headers), into as many partitions as the store has queues. Both brokers run on this machine, and
their clients and Spark share its cores with them.

Spark's Kafka source has to be of the release of PySpark, and may be published later. The test of
other versions of PySpark fetches some; this is how one of them is measured:

    PYTHONPATH=.cache/spark/4.2:. python -m bench.kafka --connector 4.2.0
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession

from bench.filled_store import QUEUES, TOPIC, write_store
from bench.kafka.server import jars, start
from bench.live_reads import running_broker
from bench.paired_times import report, times_of_reads
from bench.scan import SHAPES, start_session
from bench.work_directory import work_directory
from pocketmq.spark.sessions.java import SparkUnavailable, find_java, use_java
from tests.interop.harness.official import Unavailable

ALL, FEW = SHAPES
COLUMNS = {ALL: ["*"], FEW: ["offset", "value"]}
"""What of Kafka's source corresponds to the shapes."""


def main() -> int:
    options = arguments()
    try:
        use_java(find_java())
        connector = ",".join(map(str, jars("connector", options.connector).glob("*.jar")))
        with ExitStack() as cleanup:
            directory = cleanup.enter_context(work_directory("pocketmq-kafka-"))
            root = options.store or directory / "store"
            if not (root / "commitlog").is_dir():
                write_store(root, int(options.gib * 2**30), options.body)
            kafka = start(directory / "kafka", QUEUES)
            cleanup.callback(kafka.process.kill)
            spark = start_session({"spark.jars": connector})
            cleanup.callback(spark.stop)
            copy(spark, root, kafka.address)
            namesrv = cleanup.enter_context(running_broker(root))
            for name, schema in SHAPES.items():
                measure(spark, root, namesrv, kafka.address, name, schema, options.rounds)
    except (SparkUnavailable, Unavailable) as missing:
        print(f"no benchmark: {missing}")
        return 1
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.kafka", description=__doc__)
    parser.add_argument("--gib", type=float, default=0.5, help="size of the store (0.5)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body (1024)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--store", type=Path, help="keep the store here, or use the one there")
    parser.add_argument(
        "--connector",
        default=pyspark.__version__,
        help="release of Spark's Kafka source (that of PySpark)",
    )
    return parser.parse_args()


def copy(spark: SparkSession, root: Path, kafka: str) -> None:
    """Write the messages of the store to Kafka."""
    messages = spark.read.format("rocketmq").option("subscribe", TOPIC).load(str(root))
    rows = messages.selectExpr(
        "topic",
        "queueId AS partition",
        "CAST(keys[0] AS BINARY) AS key",
        "body AS value",
        "transform(map_entries(properties), "
        "e -> struct(e.key AS key, CAST(e.value AS BINARY) AS value)) AS headers",
    )
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", kafka)
    writer.option("includeHeaders", "true").save()


def times_of_sources(
    spark: SparkSession,
    root: Path,
    namesrv: str,
    kafka: str,
    name: str,
    schema: str,
    rounds: int,
) -> tuple[int, dict[str, list[float]]]:
    """The rows, and what reads from Kafka, from files and from a running broker take in turn, for
    one choice of columns.

    Raises RuntimeError if they do not have the same number of rows.
    """

    def ours() -> DataFrame:
        return spark.read.format("rocketmq").schema(schema).load(str(root))

    def live() -> DataFrame:
        reader = spark.read.format("rocketmq").schema(schema).option("subscribe", TOPIC)
        return reader.option("namesrv", namesrv).load()

    def theirs() -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka)
        reader = reader.options(subscribe=TOPIC, includeHeaders="true")
        return reader.load().select(*COLUMNS[name])

    contenders: dict[str, Callable[[], DataFrame]] = {"kafka": theirs, "files": ours, "live": live}
    counts = {contender: load().count() for contender, load in contenders.items()}
    if len(set(counts.values())) != 1:
        raise RuntimeError(f"they differ: {counts} rows")
    return counts["kafka"], times_of_reads(contenders, rounds)


def measure(
    spark: SparkSession,
    root: Path,
    namesrv: str,
    kafka: str,
    name: str,
    schema: str,
    rounds: int,
) -> None:
    """Print the rates of both sources for one choice of columns."""
    rows, times = times_of_sources(spark, root, namesrv, kafka, name, schema, rounds)
    for contender, what in ("files", "files of the store"), ("live", "a running broker"):
        print(f"Kafka, and {what}, {name}: {rows} rows")
        pair = {each: times[each] for each in ("kafka", contender)}
        report(pair, rows, "rows")


if __name__ == "__main__":
    sys.exit(main())
