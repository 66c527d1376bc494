"""The source in each minor version of PySpark that pyproject.toml allows.

POCKETMQ_SPARK_VERSIONS names those to try in place of the one that is installed, such as "4.0 4.1
4.2". Each is fetched once into .cache/spark (0.5 GB), without what it depends on. Spark Connect is
tried in the first of them only, and in all with `--long`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pocketmq.testing import RocketMQ
from tests.store.made_store import golden_rows
from tests.unpacking import unpack

pytest.importorskip("pyspark")
pytest.importorskip("grpc_status", reason="pip install 'pyspark[connect]'")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # on a loaded machine

PROJECT = Path(__file__).parents[2]
CACHE = PROJECT / ".cache" / "spark"
# All other tests here are those of the installed one.
VERSIONS = os.environ.get("POCKETMQ_SPARK_VERSIONS", "").split() or ["installed"]

CLIENT = """
import json, sys
from pyspark.sql import SparkSession
from pocketmq.spark import pruned, register

golden, directory, port = sys.argv[1:]
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
register(spark)
options = {"includeSystemTopics": "true", "startingOffsets": "earliest"}
read = lambda: spark.read.format("rocketmq").options(**options).load(golden)
rows = pruned(read(), lambda rows: rows.groupBy("queueId").count()).collect()
found = {"client": type(spark).__module__, "batch": {row.queueId: row["count"] for row in rows}}
try:
    stream = spark.readStream.format("rocketmq").options(**options).load(golden)
    writer = stream.select("physicalOffset").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", f"{directory}/connect.checkpoint")
    writer.trigger(availableNow=True).start(f"{directory}/connect").awaitTermination()
    rows = spark.read.parquet(f"{directory}/connect").collect()
    found["stream"] = sorted(row.physicalOffset for row in rows)
except Exception as error:
    found["stream"] = str(error)
print(json.dumps(found))
"""

JOB = """
import json, socket, subprocess, sys, pyspark
from pyspark.sql import SparkSession
from pocketmq.spark import pruned, register, table_sink

golden, directory, namesrv, client, *features = sys.argv[1:]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
settings = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.warehouse.dir": f"{directory}/warehouse",
    "spark.default.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
if "connect" in features:  # a server of it in this process
    settings |= {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
    }
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
options = {"includeSystemTopics": "true", "startingOffsets": "earliest"}

def read():
    return spark.read.format("rocketmq").options(**options).load(golden)

def stream():
    return spark.readStream.format("rocketmq").options(**options).load(golden)

def run(name, writer):
    writer = writer.option("checkpointLocation", f"{directory}/{name}.checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()

def batch():
    rows = read().where("queueId = 1").select("brokerName", "physicalOffset").collect()
    return [list(row) for row in rows]

def pruned_rows():
    rows = pruned(read(), lambda rows: rows.groupBy("queueId").count()).collect()
    return {row["queueId"]: row["count"] for row in rows}

def sunk():
    rows = stream().select("physicalOffset", "storeTimestamp", "properties")
    run("sink", rows.writeStream.foreachBatch(table_sink(f"{directory}/table")))
    table = spark.read.parquet(f"{directory}/table")
    return table.join(read(), ["physicalOffset", "storeTimestamp"]).count()

def tables():
    given = f"OPTIONS (path '{golden}', includeSystemTopics 'true')"
    spark.sql(f"CREATE TABLE kept USING rocketmq {given}")
    spark.sql(f"CREATE TEMPORARY VIEW passing USING rocketmq {given}")
    joined = "SELECT count(*) FROM kept JOIN passing USING (physicalOffset)"
    counted = spark.sql(joined).first()[0]
    spark.sql("DROP TABLE kept")
    return counted

def connect():
    command = [sys.executable, "-c", client, golden, directory, port]
    ended = subprocess.run(command, capture_output=True, text=True)
    return json.loads(ended.stdout) if ended.returncode == 0 else ended.stderr

def written():
    rows = spark.sql("SELECT 'T' AS topic, CAST(id AS STRING) AS body FROM range(5)")
    rows.write.format("rocketmq").option("namesrv", namesrv).mode("append").save()
    live = spark.read.format("rocketmq").options(namesrv=namesrv, subscribe="T").load()
    return sorted(row[0] for row in live.selectExpr("CAST(body AS STRING)").collect())

def write_stream():
    bodies = stream().selectExpr("'S' AS topic", "CAST(physicalOffset AS STRING) AS body")
    run("written", bodies.writeStream.format("rocketmq").option("namesrv", namesrv))
    live = spark.read.format("rocketmq").options(namesrv=namesrv, subscribe="S").load()
    return sorted(int(row[0]) for row in live.selectExpr("CAST(body AS STRING)").collect())

register(spark)
found = {"version": pyspark.__version__}
for feature in features:
    try:
        found[feature] = globals()[feature]()
    except Exception as error:
        found[feature] = str(error)
print(json.dumps(found))
"""


def fetched(version: str) -> Path:
    """A directory to import PySpark of a minor version from.

    There is no wheel of PySpark, and to build one takes a minute of CPU time, of which the unpacked
    archive has no need.
    """
    directory = CACHE / version
    if directory.exists():
        return directory
    arriving = CACHE / f"{version}.part"
    shutil.rmtree(arriving, ignore_errors=True)
    arriving.mkdir(parents=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        "pyspark",
    ]
    subprocess.run([*pip, "--dest", arriving, f"pyspark=={version}.*"], check=True)
    [archive] = arriving.glob("pyspark-*.tar.gz")
    unpack(archive, arriving)
    archive.unlink()
    [unpacked] = arriving.iterdir()
    for name in ("bin", "jars"):  # where a wheel has them
        (unpacked / "deps" / name).rename(unpacked / "pyspark" / name)
    unpacked.rename(directory)
    arriving.rmdir()
    return directory


@pytest.mark.parametrize("version", VERSIONS)
def test_each_feature(
    version: str,
    golden_clean: Path,
    tmp_path: Path,
    rocketmq: RocketMQ,
    request: pytest.FixtureRequest,
) -> None:
    from pocketmq.spark.sessions.java import SparkUnavailable, find_java, use_java

    try:
        use_java(find_java())
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    features = ["batch", "pruned_rows", "sunk", "written", "write_stream", "tables"]
    with_connect = version == VERSIONS[0] or request.config.getoption("--long")
    if with_connect:
        features.append("connect")
    for topic in ("T", "S"):
        rocketmq.sync.create_topic(topic, queues=1)
    path = [PROJECT]
    own = dict(os.environ)
    if version != "installed":
        path.insert(0, fetched(version))
        del own["SPARK_HOME"]
        # What one of the processes has compiled, the others need not, nor the next run.
        own["PYTHONDONTWRITEBYTECODE"] = ""
    ended = subprocess.run(
        [sys.executable, "-c", JOB, golden_clean, tmp_path, rocketmq.namesrv, CLIENT, *features],
        env=own | {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["version"].startswith("4." if version == "installed" else f"{version}.")
    golden = golden_rows("clean")
    by_queue = Counter(str(row["queueId"]) for row in golden.values())
    expected = sorted(offset for offset, row in golden.items() if row["queueId"] == 1)
    assert sorted(found["batch"]) == [["golden", offset] for offset in expected]
    assert found["pruned_rows"] == by_queue
    assert found["written"] == list("01234")
    assert found["tables"] == len(golden)
    streams = not found["version"].startswith(("4.0.", "4.1."))
    if streams:
        assert found["write_stream"] == sorted(golden)
        assert found["sunk"] == len(golden)
    else:
        refused = [found[feature] for feature in ("sunk", "write_stream")]
        assert all("need pyspark 4.2 or newer" in error for error in refused)
    if with_connect:
        connect = found["connect"]
        assert "connect" in connect["client"], connect
        assert connect["batch"] == by_queue
        if streams:
            assert connect["stream"] == sorted(golden)
        else:
            assert isinstance(connect["stream"], str)  # the error; a server may cut it short
