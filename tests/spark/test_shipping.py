"""Executors whose Python has no pocketmq work with what `pocketmq spark-pack` sends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")

from pocketmq.archive.location import Location
from pocketmq.archive.sync import sync
from pocketmq.cli import main
from pocketmq.message.compression import CompressionType, compress
from pocketmq.message.message import Message
from pocketmq.message.sysflag import COMPRESSED, COMPRESSION_TYPE_SHIFT
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.sync import Producer
from pocketmq.testing import RocketMQ
from tests.archive.conftest import s3_bucket, s3_endpoint
from tests.spark.unpacked_home import unpacked_home
from tests.store.made_store import NOW, MadeStore

__all__ = ["s3_bucket", "s3_endpoint"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # on a loaded machine

READING = ("numpy", "numpy.libs", "pyarrow")
"""All that a Python needs to read files, and what its wheels bring."""

START = """
import json, sys
from pyspark.sql import SparkSession
zip, directory, arguments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
builder = SparkSession.builder.master("local-cluster[1,1,1024]")
for setting, value in {
    "spark.executor.memory": "512m",
    "spark.log.level": "OFF",
    "spark.executorEnv.PYTHONPATH": "",  # they have nothing but what is sent
    "spark.submit.pyFiles": zip,
    "spark.ui.enabled": "false",
    **arguments["settings"],
}.items():
    builder = builder.config(setting, value)
spark = builder.getOrCreate()
from pocketmq.spark import pruned, register
register(spark)
results = {}

def note(name, get):
    try:
        results[name] = get()
    except Exception as error:
        results[name] = str(error)

def read(place, **options):
    return spark.read.format("rocketmq").options(**options).load(place)

def streamed(place, name):
    stream = spark.readStream.format("rocketmq").option("startingOffsets", "earliest").load(place)
    query = (
        stream.selectExpr("CAST(body AS STRING) AS text").writeStream.format("parquet")
        .trigger(availableNow=True).option("checkpointLocation", f"{directory}/marks/{name}")
        .start(f"{directory}/rows/{name}")
    )
    query.awaitTermination()
    return spark.read.parquet(f"{directory}/rows/{name}").count()
"""
END = """
spark.stop()
print(json.dumps(results))
"""

FILES = """
for name, place in arguments["places"].items():
    note(f"{name} counted", lambda: pruned(read(place), lambda t: t.groupBy().count()).first()[0])
    note(f"{name} read", lambda: read(place).selectExpr("max(CAST(body AS STRING))").first()[0])
# The readers of a stream are the same in each place: the farthest is tried.
note("streamed", lambda: streamed(place, name))
note("packed", lambda: read(arguments["packed"]).select("body").collect())
"""

BROKERS = """
from pathlib import Path
Path(arguments["hidden_for_plans"]).unlink()
options = arguments["options"]
rows = spark.sql("SELECT 'U' AS topic, 'body' AS body")
for name in "without", "with":
    note(f"read {name}", lambda: read(None, subscribe="T", **options).count())
    writer = rows.write.format("rocketmq").options(**options).mode("append")
    note(f"written {name}", lambda: writer.save())
    Path(arguments["hidden"]).unlink(missing_ok=True)
"""

HIDE = """
import os, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "msgspec" and os.path.exists(os.environ["HIDDEN"]):
            raise ModuleNotFoundError("No module named 'msgspec'", name="msgspec")
if "HIDDEN" in os.environ:
    sys.meta_path.insert(0, Hidden())
"""


def python_with(directory: Path, packages: tuple[str, ...]) -> Path:
    """A Python that has only these packages. As long as there is a file of the name that the
    environment variable HIDDEN has, msgspec is as if it were not installed."""
    venv.create(directory, with_pip=False)
    [own] = directory.glob("lib/python*/site-packages")
    origin = find_spec("numpy")
    assert origin is not None
    assert origin.origin is not None
    for name in packages:
        source = Path(origin.origin).parents[1] / name
        if source.exists():
            (own / name).symlink_to(source)
    # Not `sitecustomize`: Debian's Python has one, which comes first.
    (own / "hide_msgspec.py").write_text(HIDE)
    (own / "hide_msgspec.pth").write_text("import hide_msgspec\n")
    return directory / "bin" / "python"


def run(tmp_path: Path, hidden_for_plans: Path, **arguments: Any) -> dict[str, Any]:
    """What a job notes whose workers, and whose plans, run a Python with what files and brokers
    need; msgspec seems to be missing in plans as long as there is a file `hidden_for_plans`."""
    arguments["hidden_for_plans"] = str(hidden_for_plans)
    from pocketmq.spark.sessions.java import SparkUnavailable, find_java, use_java

    try:
        use_java(find_java())
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    package = tmp_path / "pocketmq.zip"
    assert main(["spark-pack", str(package)]) == ExitCode.OK
    # A home of its own, since workers write into it.
    home = unpacked_home(tmp_path / "spark")
    program = tmp_path / "job.py"
    program.write_text(START + FILES + BROKERS + END)
    done = subprocess.run(
        [sys.executable, "-P", program, package, tmp_path, json.dumps(arguments)],
        env=os.environ
        | {
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": str(python_with(tmp_path / "venv", (*READING, "msgspec"))),
            "HIDDEN": str(hidden_for_plans),
            # Spark starts the readers of streams in a process that does not see what is sent.
            "PYTHONPATH": str(package),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


def test_executors_read_files_with_numpy_and_pyarrow_and_use_brokers_if_they_have_msgspec_too(
    tmp_path: Path, rocketmq: RocketMQ, request: pytest.FixtureRequest
) -> None:
    """For files, so does the Python on the driver's machine that plans; for brokers, it has
    msgspec in any case."""
    store = MadeStore(tmp_path / "store", segment_size=1024)
    for number in range(50):
        store.put(queue_id=number % 2, body=b"body %02d" % number)
    store.write()
    places = {"store": str(tmp_path / "store"), "archive": f"file://{tmp_path}/archive"}
    if find_spec("moto") is not None and find_spec("boto3") is not None:
        places["s3"] = request.getfixturevalue("s3_bucket").url("archive")
    for url in (url for name, url in places.items() if name != "store"):
        sync(tmp_path / "store", Location(url).open(), everything=True, clock=lambda: NOW)
    packed = MadeStore(tmp_path / "packed")
    flag = COMPRESSED | CompressionType.LZ4 << COMPRESSION_TYPE_SHIFT
    packed.put(body=compress(b"x" * 100, CompressionType.LZ4), sys_flag=flag)
    server = rocketmq
    server.sync.create_topic("T", queues=1)
    server.sync.create_topic("U", queues=1)
    with Producer("tests", namesrv=server.namesrv) as producer:
        producer.send(Message("T", b"body"))
    hidden, hidden_for_plans = tmp_path / "hidden", tmp_path / "hidden for plans"
    hidden.touch()
    hidden_for_plans.touch()
    found = run(
        tmp_path,
        hidden_for_plans,
        places=places,
        packed=str(packed.write()),
        options={"namesrv": server.namesrv},
        hidden=str(hidden),
        settings={"spark.executorEnv.HIDDEN": str(hidden)},
    )
    needs = "needs the package msgspec, which this Python does not have"
    assert f"reading from running brokers {needs}" in found.pop("read without")
    assert f"writing to brokers {needs}" in found.pop("written without")
    assert found.pop("read with") == 1
    assert found.pop("written with") is None
    assert [message.body for message in server.sync.drain("U")] == [b"body"]
    assert "a body is compressed with LZ4, which needs the package lz4" in found.pop("packed")
    copied = found.pop("streamed")
    if find_spec("pyspark.sql.streaming.datasource") is not None:  # streams need PySpark 4.2
        assert copied == 50
    expected = {"counted": 50, "read": "body 49"}
    assert found == {f"{name} {what}": value for name in places for what, value in expected.items()}
