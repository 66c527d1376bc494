"""Kills the driver of a stream again and again while messages are stored, and counts what arrived.

    python -m tests.spark.stream_kills --kills 20 --sink delta

A query copies a store to Parquet files, or to a table of pocketmq's. Its process is killed
(SIGKILL) at any moment of a trigger, and started again on the same checkpoint. At the end each
message has to be there once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from pocketmq.spark import session, table_sink
from tests.spark.stream_store import OpenStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PROJECT = Path(__file__).parents[2]
TOPICS = ("T", "T2")
QUEUES = 2
FINISHES = 5
TRIGGERED = "a trigger is done"

Sink: TypeAlias = Literal["files", "parquet", "delta"]
"""Parquet files of Spark, or a table of pocketmq's."""

# Follows the store and says when a trigger is done, until it is killed.
DRIVER = """
import sys
from pathlib import Path
from pocketmq.spark import session
from tests.spark.stream_kills import TRIGGERED, start

directory, sink = sys.argv[1:]
spark = session(master="local[2]", short_lived=True)
try:
    query = start(spark, Path(directory), sink)
    while query.lastProgress is None:
        query.awaitTermination(1)
    print(TRIGGERED, flush=True)
    query.awaitTermination()
except Exception as error:
    print(repr(error), flush=True)
"""


class Outcome(NamedTuple):
    """How many messages there are, and whether each was stored and copied once."""

    sent: int
    rows: int
    distinct: int
    kills: int


def start(spark: SparkSession, directory: Path, sink: Sink) -> StreamingQuery:
    """Start the query that copies the store, or go on with it."""
    target = directory / "copy"
    query = (
        spark.readStream.format("rocketmq")
        .schema("topic string, queueId int, queueOffset bigint, body binary")
        .options(startingOffsets="earliest", maxOffsetsPerTrigger="5000", minPartitions="2")
        .load(str(directory / "store"))
        .writeStream.option("checkpointLocation", str(target / "checkpoint"))
    )
    if sink == "files":
        return query.format("parquet").start(str(target / "rows"))
    return query.foreachBatch(table_sink(str(target / "rows"), sink)).start()


def finish(spark: SparkSession, directory: Path, sink: Sink) -> tuple[int, int]:
    """Read what is left, and return how many rows there are, and how many different ones."""
    for left in reversed(range(FINISHES)):
        query = start(spark, directory, sink)
        try:
            query.processAllAvailable()
            break
        except Exception:  # a worker that was too late on a busy machine, as in `run`
            if not left:
                raise
        finally:
            query.stop()
    # The sink's log, or the table's, says which files are of finished triggers.
    files = [str(directory / "copy" / "rows")]
    if sink == "delta":
        from deltalake import DeltaTable

        files = DeltaTable(files[0]).file_uris()
    rows = spark.read.parquet(*files)
    return rows.count(), rows.distinct().count()


def run(
    spark: SparkSession, directory: Path, kills: int, seed: int = 1, sink: Sink = "files"
) -> Outcome:
    """Kill a query so many times, each time after it has gone on by some triggers. Its last run is
    in the session `spark`."""
    chance = random.Random(seed)
    done = threading.Event()

    def write(store: OpenStore) -> int:
        sent = 0
        while not done.is_set():
            topic, queue_id = chance.choice(TOPICS), chance.randrange(QUEUES)
            count = chance.randrange(1, 400)
            store.add(count, topic, queue_id)
            sent += count
            done.wait(0.5)  # a trigger has to keep up, also on a busy machine
        return sent

    with OpenStore(directory / "store") as store, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write, store)
        try:
            killed = failed = 0
            while killed < kills and not writing.done():
                with running_driver(directory, sink) as driver:
                    told = first_line(driver)
                    if told == TRIGGERED:
                        time.sleep(chance.random() * 1.5)
                        killed += 1
                    else:
                        failed += 1
                # On a busy machine a query may fail, since Spark waits 10 s for its Python workers.
                # That is as good as a kill, but does not count.
                assert failed <= kills, told
                print(f"killed {killed} of {kills}", flush=True)
        finally:
            done.set()
        sent = writing.result()
        rows, distinct = finish(spark, directory, sink)
    return Outcome(sent, rows, distinct, kills)


@contextmanager
def running_driver(directory: Path, sink: Sink) -> Iterator[subprocess.Popen[str]]:
    """Run the driver. At the end it is killed, with its Java process and its workers."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(directory), sink],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield driver
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        if driver.stdout is not None:
            driver.stdout.close()


def first_line(driver: subprocess.Popen[str]) -> str:
    """Return what the driver tells: `TRIGGERED`, or the error that has ended the query."""
    assert driver.stdout is not None
    return driver.stdout.readline().rstrip("\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.stream_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sink", choices=("files", "parquet", "delta"), default="files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pocketmq-kills-") as directory:
        spark = session(master="local[2]", short_lived=True)
        outcome = run(spark, Path(directory), options.kills, options.seed, options.sink)
    print(outcome)
    return 0 if outcome.sent == outcome.rows == outcome.distinct else 1


if __name__ == "__main__":
    sys.exit(main())
