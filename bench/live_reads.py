"""Measure reads from a running broker against reads of the files of its store.

Both give the same rows, in turn, while the broker runs. The broker takes its share of the same
cores, so the ratio says what a read costs in all, not only in Spark's tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from bench.filled_store import QUEUES, TOPIC
from bench.paired_times import report, times_of_reads
from bench.work_directory import work_directory
from pocketmq.client.admin.admin import Admin
from tests.interop.harness import ours

LIVE_TARGET = 0.7


def measure_live(spark: SparkSession, root: Path, name: str, schema: str, rounds: int) -> float:
    """The ratio of the rates of reads from a broker of the store at `root` and of reads of its
    files, printed with both. The broker writes its tables there."""
    with running_broker(root) as namesrv:

        def reader() -> DataFrameReader:
            return spark.read.format("rocketmq").schema(schema).option("subscribe", TOPIC)

        contenders: dict[str, Callable[[], DataFrame]] = {
            "files": lambda: reader().load(str(root)),
            "brokers": lambda: reader().option("namesrv", namesrv).load(),
        }
        counts = {load().count() for load in contenders.values()}
        if len(counts) != 1:
            raise RuntimeError(f"files and brokers differ: {counts} rows")
        times = times_of_reads(contenders, rounds)
    rows = counts.pop()
    print(f"from a running broker, {name}: {rows} rows")
    return report(times, rows, "rows", LIVE_TARGET)


@contextmanager
def running_broker(root: Path) -> Iterator[str]:
    """Run a broker of the store at `root`, with the topic that `write_store` has filled. The result
    is the address of its name server."""
    with work_directory("pocketmq-live-") as directory:
        name_server = ours.start_name_server(directory)
        broker = ours.start_broker(
            directory,
            name_server.address,
            store=root,
            settings={"mappedFileSizeCommitLog": 1 << 30},
        )
        asyncio.run(_create_topic(name_server.address))
        yield name_server.address
        broker.process.terminate()
        name_server.process.terminate()


async def _create_topic(namesrv: str) -> None:
    async with Admin(namesrv=namesrv) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
