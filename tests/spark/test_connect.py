"""Spark Connect: a client that reads through a server, as docs/spark.md describes it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
pytest.importorskip("grpc_status", reason="pip install 'pyspark[connect]'")
pytest.importorskip("zstandard", reason="pip install 'pyspark[connect]'")
pytest.importorskip("pandas", reason="pip install 'pyspark[connect]'")

from pocketmq.cli import main
from pocketmq.client.admin import Admin
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.testing import RocketMQ
from tests.spark.test_shipping import READING, python_with
from tests.store.made_store import MadeStore

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # on a loaded machine

PROJECT = Path(__file__).parents[2]

JOB = """
import json, sys
store, zip, copy, *path = sys.argv[1:]
sys.path[:0] = path  # the client's alone: PYTHONPATH would be the server's, too
from pyspark.sql import SparkSession
# Starts a server with a Java process of its own.
spark = SparkSession.builder.remote("local[2]").getOrCreate()
results = {"client": type(spark).__module__}

def note(name, get):
    try:
        results[name] = get()
    except Exception as error:
        results[name] = str(error)

def read():
    return spark.read.format("rocketmq").load(store)

def sunk():
    stream = spark.readStream.format("rocketmq").option("startingOffsets", "earliest").load(store)
    query = (
        stream.writeStream.foreachBatch(table_sink(copy + "/table")).trigger(availableNow=True)
        .option("checkpointLocation", copy + "/sunk").start()
    )
    query.awaitTermination()

def streamed():
    stream = spark.readStream.format("rocketmq").option("startingOffsets", "earliest").load(store)
    query = (
        stream.writeStream.format("parquet").trigger(availableNow=True)
        .option("checkpointLocation", copy + "/checkpoint").start(copy + "/rows")
    )
    query.awaitTermination()
    results["lag"] = {queue.queue_id: left for queue, left in lag(query.lastProgress).items()}
    return spark.read.parquet(copy + "/rows").count()

note("by itself", lambda: read().count())
from pocketmq.spark import lag, pruned, register, table_sink
if zip:
    spark.addArtifacts(zip, pyfile=True)
register(spark)
note("registered", lambda: read().count())
tags = lambda: pruned(read(), lambda t: t.groupBy("tags").count()).collect()
note("tags", lambda: {row.tags: row["count"] for row in tags()})
note("streamed", streamed)
if not zip:
    note("sunk", sunk)
spark.stop()
print(json.dumps(results))
"""


WRITING_JOB = """
import json, sys
from threading import Event
namesrv, checkpoint, *path = sys.argv[1:]
sys.path[:0] = path
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
from pocketmq.spark import GroupOffsets
from pyspark.sql.streaming.listener import StreamingQueryListener

class Told(StreamingQueryListener):
    def __init__(self):
        self.of_progress = Event()
    def onQueryProgress(self, event):
        self.of_progress.set()
    def onQueryStarted(self, event): pass
    def onQueryIdle(self, event): pass
    def onQueryTerminated(self, event): pass

told = Told()
spark.streams.addListener(GroupOffsets("Listening", query="copying", namesrv=namesrv))
spark.streams.addListener(told)  # listeners are called in this order

brokers = {"namesrv": namesrv}
new = [(b"new", "A"), (b"newer", "B")]
batch = spark.createDataFrame(new, ["body", "tags"]).write.format("rocketmq").options(**brokers)
batch.option("topic", "T").mode("append").save()

begin = {"subscribe": "T", "startingOffsets": "earliest"}
stream = spark.readStream.format("rocketmq").options(**brokers, **begin).load()
copy = stream.select("body", "tags").writeStream.format("rocketmq").options(**brokers)
query = (
    copy.option("topic", "Copy").option("checkpointLocation", checkpoint).queryName("copying")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
GroupOffsets("Asking", namesrv=namesrv).commit(query.lastProgress)
heard = told.of_progress.wait(600)
spark.stop()
print(json.dumps({"client": type(spark).__module__, "heard": heard}))
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = MadeStore(tmp_path / "store", segment_size=4096)
    for number in range(100):
        made.put("T", number % 2, b"body %d" % number, {"TAGS": "ab"[number % 2]})
    return made.write()


def run(
    tmp_path: Path, store: Path, python: Path | str, *, package: Path | None, server_path: str
) -> dict[str, Any]:
    """What a client finds at a server whose workers run `python` with PYTHONPATH `server_path`."""
    arguments = (store, package or "", tmp_path / "copy")
    return results_of(tmp_path, JOB, *arguments, python=python, server_path=server_path)


def results_of(
    tmp_path: Path, text: str, *arguments: Path | str, python: Path | str, server_path: str
) -> dict[str, Any]:
    """What a job prints at last. Skip the test without a Java runtime."""
    from pocketmq.spark.sessions.java import SparkUnavailable, find_java, use_java

    try:
        use_java(find_java())
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    job = tmp_path / "job.py"
    job.write_text(text)
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            job,
            *arguments,
            *filter(None, sys.path),
        ],
        env=os.environ
        | {
            "PYTHONPATH": server_path,
            "PYSPARK_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert "connect" in results["client"]
    return results


def test_a_server_that_has_pocketmq(tmp_path: Path, store: Path) -> None:
    found = run(tmp_path, store, sys.executable, package=None, server_path=str(PROJECT))
    assert (found["by itself"], found["registered"], found["streamed"]) == (100, 100, 100)
    assert found["tags"] == {"a": 50, "b": 50}
    assert found["lag"] == {"0": 0, "1": 0}
    assert "table_sink does not work with Spark Connect" in found["sunk"]


def test_writes_and_the_offsets_of_a_group(tmp_path: Path, rocketmq: RocketMQ) -> None:
    for topic in ("T", "Copy"):
        rocketmq.sync.create_topic(topic, queues=1)
    found = results_of(
        tmp_path,
        WRITING_JOB,
        rocketmq.namesrv,
        tmp_path / "checkpoint",
        python=sys.executable,
        server_path=str(PROJECT),
    )
    assert found["heard"]
    copied = rocketmq.sync.drain("Copy")
    assert sorted((message.body, message.tags) for message in copied) == [
        (b"new", "A"),
        (b"newer", "B"),
    ]

    async def committed(group: str) -> int | None:
        async with Admin(namesrv=rocketmq.namesrv) as admin:
            return await admin.group_offset(group, MessageQueue("T", "broker-a", 0))

    # Listeners run in the client's process.
    assert asyncio.run(committed("Listening")) == 2
    assert asyncio.run(committed("Asking")) == 2


def test_a_client_brings_the_source_for_batches(tmp_path: Path, store: Path) -> None:
    package = tmp_path / "pocketmq.zip"
    assert main(["spark-pack", str(package)]) == ExitCode.OK
    python = python_with(tmp_path / "venv", READING)
    found = run(tmp_path, store, python, package=package, server_path="")
    assert "DATA_SOURCE_NOT_FOUND" in found["by itself"]
    assert found["registered"] == 100
    assert found["tags"] == {"a": 50, "b": 50}
    # Spark makes the readers of streams in a process that does not see what clients have added.
    assert "No module named 'pocketmq'" in found["streamed"]


@pytest.mark.long  # test_shipping.py streams with such a PYTHONPATH, without Spark Connect
def test_a_server_that_is_started_with_the_zip(tmp_path: Path, store: Path) -> None:
    package = tmp_path / "pocketmq.zip"
    assert main(["spark-pack", str(package)]) == ExitCode.OK
    python = python_with(tmp_path / "venv", READING)
    found = run(tmp_path, store, python, package=None, server_path=str(package))
    assert (found["by itself"], found["registered"], found["streamed"]) == (100, 100, 100)
