"""Spark's reads of the files of a store: all of it, few columns of it, and beside Kafka's source.

None of this is compared with the official broker, which has no source for Spark. What is missing
(Java, PySpark, Kafka) is noted, and its rows have no figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.contenders import OURS, Figures
from bench.filled_store import QUEUES, TOPIC, write_store
from bench.measures import Better, Measure
from tests.interop.harness.official import Unavailable

from .workload import Session, Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GIBIBYTES: Final = 1.0
#: A query costs Spark a third of a second, whatever it reads: of less, that would be all there is.
FEW_GIBIBYTES: Final = 4.0
KAFKA_GIBIBYTES: Final = 0.5
BODY: Final = 1024
LEAST: Final = 16 << 20


class Query(NamedTuple):
    """A query that needs few columns: as SQL on a table, and on a DataFrame."""

    sql: str
    of: Callable[[DataFrame], DataFrame]


FEW: Final = {
    "count": Query(
        f"SELECT count(*) FROM {TOPIC}",
        lambda messages: messages.groupBy().count(),
    ),
    "queue": Query(
        f"SELECT queueId, count(*) FROM {TOPIC} GROUP BY queueId",
        lambda messages: messages.groupBy("queueId").count(),
    ),
    "tag": Query(
        f"SELECT tags, count(*) FROM {TOPIC} GROUP BY tags",
        lambda messages: messages.groupBy("tags").count(),
    ),
    "time": Query(
        f"SELECT count(*) FROM {TOPIC} WHERE storeTimestamp >= '2020-01-01'",
        lambda messages: messages.where("storeTimestamp >= '2020-01-01'").groupBy().count(),
    ),
}


class _Missing(Exception):
    """Something that a workload needs is not there."""


def _noted(run: Callable[[Session, Figures], None]) -> Callable[[Session], Sequence[Figures]]:
    """What runs a workload, and notes what is missing for it."""

    def measured(session: Session) -> Sequence[Figures]:
        found = Figures(OURS)
        try:
            run(session, found)
        except (_Missing, Unavailable) as missing:
            session.note(f"Spark: not measured: {str(missing).splitlines()[0]}")
        return (found,)

    return measured


@contextmanager
def _spark() -> Iterator[SparkSession]:
    """A session, with Kafka's source if it can be had: the Java process begins with the first
    session, and only then can it be given what it shall have.

    Raises _Missing.
    """
    try:
        import pyspark

        from bench.kafka.server import jars
        from bench.scan import ReadyMade, start_session
        from pocketmq.spark.sessions.java import SparkUnavailable, find_java, use_java
    except ImportError as missing:
        raise _Missing(str(missing)) from missing
    try:
        use_java(find_java())
    except SparkUnavailable as missing:
        raise _Missing(str(missing)) from missing
    try:
        connector = ",".join(map(str, jars("connector", pyspark.__version__).glob("*.jar")))
    except Unavailable:
        connector = ""
    spark = start_session({"spark.jars": connector} if connector else None)
    try:
        spark.dataSource.register(ReadyMade)
        yield spark
    finally:
        spark.stop()


def _store(session: Session, gibibytes: float) -> Path:
    root = session.directory / "store"
    write_store(root, max(int(gibibytes * session.scale * 2**30), LEAST), BODY)
    return root


def _scan(session: Session, found: Figures) -> None:
    with _spark() as spark:
        from bench.paired_times import ratios
        from bench.scan import SHAPES, times_of_scans

        root = _store(session, GIBIBYTES)
        for key, schema in zip(("all", "bodies"), SHAPES.values(), strict=True):
            rows, _, times = times_of_scans(spark, root, schema, session.rounds)
            for seconds, ratio in zip(times["rocketmq"], ratios(times), strict=True):
                found.add(f"spark_{key}_rate", rows / seconds)
                found.add(f"spark_{key}", ratio)


def _few(session: Session, found: Figures) -> None:
    with _spark() as spark:
        from bench.paired_times import times_in_turn
        from pocketmq.cli.stored.query import answer
        from pocketmq.spark import pruned
        from pocketmq.store.scan.planning.tail import take_snapshot

        root = _store(session, FEW_GIBIBYTES)

        def load() -> DataFrame:
            return spark.read.format("rocketmq").load(str(root))

        def full() -> None:
            load().write.format("noop").mode("overwrite").save()

        def helper(query: Query) -> Callable[[], object]:
            return lambda: pruned(load(), query.of).collect()

        def command(query: Query) -> Callable[[], object]:
            options = argparse.Namespace(sql=query.sql, store=[root], json=False, metadata=False)
            return lambda: answer(spark, options, [take_snapshot(root)]).collect()

        contenders: dict[str, Callable[[], object]] = {"full": full}
        for name, query in FEW.items():
            contenders[f"spark_{name}_helper"] = helper(query)
            contenders[f"spark_{name}_query"] = command(query)
        times = times_in_turn(contenders, session.rounds)
        all_columns = times.pop("full")
        for name, taken in times.items():
            for one, other in zip(all_columns, taken, strict=True):
                found.add(name, one / other)


def _kafka(session: Session, found: Figures) -> None:
    with ExitStack() as cleanup:
        spark = cleanup.enter_context(_spark())
        import pyspark

        from bench.kafka.__main__ import copy, times_of_sources
        from bench.kafka.server import jars, start
        from bench.live_reads import running_broker
        from bench.scan import SHAPES

        jars("connector", pyspark.__version__)  # raises Unavailable
        root = _store(session, KAFKA_GIBIBYTES)
        kafka = start(session.directory / "kafka", QUEUES)
        cleanup.callback(kafka.process.kill)
        copy(spark, root, kafka.address)
        namesrv = cleanup.enter_context(running_broker(root))
        for key, (name, schema) in zip(("all", "bodies"), SHAPES.items(), strict=True):
            _, times = times_of_sources(
                spark, root, namesrv, kafka.address, name, schema, session.rounds
            )
            for theirs, ours in zip(times["kafka"], times["files"], strict=True):
                found.add(f"spark_kafka_{key}", theirs / ours)


def _ratio(key: str, title: str, aim: float) -> Measure:
    return Measure(key, title, "×", Better.HIGHER, aim, relative=False)


_TITLES: Final = {
    "count": "count(*)", "queue": "count by queue", "tag": "count by tag", "time": "time range",
}  # fmt: skip
_WAYS: Final = {"helper": "DataFrame helper", "query": "pocketmq query"}

SPARK_SCAN = Workload(
    "spark-scan",
    (
        Measure("spark_all_rate", "Spark: full scan, all columns", "rows/s", Better.HIGHER),
        _ratio("spark_all", "Spark: full scan ÷ ready-made Arrow, all columns", 0.85),
        Measure("spark_bodies_rate", "Spark: full scan, bodies", "rows/s", Better.HIGHER),
        _ratio("spark_bodies", "Spark: full scan ÷ ready-made Arrow, bodies and offsets", 0.85),
    ),
    _noted(_scan),
)
SPARK_FEW = Workload(
    "spark-few-columns",
    tuple(
        _ratio(f"spark_{name}_{way}", f"Spark: {title} ÷ full scan, by {how}", 6.0)
        for name, title in _TITLES.items()
        for way, how in _WAYS.items()
    ),
    _noted(_few),
)
SPARK_KAFKA = Workload(
    "spark-kafka",
    (
        _ratio("spark_kafka_all", "Spark: files of a store ÷ Kafka's source, all columns", 2.0),
        _ratio(
            "spark_kafka_bodies",
            "Spark: files of a store ÷ Kafka's source, bodies",
            2.0,
        ),
    ),
    _noted(_kafka),
)
