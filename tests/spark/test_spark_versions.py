"""The source in each minor version of PySpark that pyproject.toml allows.

POCKETMQ_SPARK_VERSIONS names those to try beside the one that is installed, such as "4.0 4.1 4.2".
Each is fetched once into .cache/spark (0.5 GB), without what it depends on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.store.made_store import golden_rows

pytest.importorskip("pyspark")

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).parents[2]
CACHE = PROJECT / ".cache" / "spark"
VERSIONS = os.environ.get("POCKETMQ_SPARK_VERSIONS", "").split()

JOB = """
import json, sys, pyspark
from pyspark.sql import SparkSession

settings = {"spark.ui.enabled": "false", "spark.log.level": "OFF"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
options = {"includeSystemTopics": "true", "startingOffsets": "earliest"}
frame = spark.read.format("rocketmq").options(**options).load(sys.argv[1])
rows = frame.where("queueId = 1").select("brokerName", "physicalOffset").collect()
try:
    stream = spark.readStream.format("rocketmq").options(**options).load(sys.argv[1])
    copy = stream.select("physicalOffset").writeStream.format("memory").queryName("copy")
    copy.trigger(availableNow=True).start().awaitTermination()
    streamed = [row[0] for row in spark.table("copy").collect()]
except Exception as error:
    streamed = str(error)
print(json.dumps([pyspark.__version__, streamed, *map(list, rows)]))
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
    with tarfile.open(archive) as content:
        content.extractall(arriving, filter="data")
    archive.unlink()
    [unpacked] = arriving.iterdir()
    for name in ("bin", "jars"):  # where a wheel has them
        (unpacked / "deps" / name).rename(unpacked / "pyspark" / name)
    unpacked.rename(directory)
    arriving.rmdir()
    return directory


@pytest.mark.skipif(not VERSIONS, reason="set POCKETMQ_SPARK_VERSIONS, such as '4.0 4.1'")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_and_a_stream(version: str, golden_clean: Path) -> None:
    path = os.pathsep.join(map(str, (fetched(version), PROJECT)))
    ended = subprocess.run(
        [sys.executable, "-c", JOB, golden_clean],
        env=os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    used, streamed, *rows = json.loads(ended.stdout)
    assert used.startswith(f"{version}.")
    expected = {offset for offset, row in golden_rows("clean").items() if row["queueId"] == 1}
    assert {broker for broker, _ in rows} == {"golden"}
    assert sorted(offset for _, offset in rows) == sorted(expected)
    if version in ("4.0", "4.1"):
        assert "need pyspark 4.2 or newer" in streamed
    else:
        assert sorted(streamed) == sorted(golden_rows("clean"))
