"""The source in each minor version of PySpark that pyproject.toml allows.

POCKETMQ_SPARK_VERSIONS names those to try beside the one that is installed, such as "4.0 4.1 4.2".
Each is installed once into .cache/spark (0.5 GB), without what it depends on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
frame = spark.read.format("rocketmq").option("includeSystemTopics", "true").load(sys.argv[1])
rows = frame.where("queueId = 1").select("brokerName", "physicalOffset").collect()
print(json.dumps([pyspark.__version__, *map(list, rows)]))
"""


def installed(version: str) -> Path:
    """A directory to import PySpark of a minor version from."""
    directory = CACHE / version
    if not (directory / "pyspark" / "version.py").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", directory, f"pyspark=={version}.*"], check=True)
    return directory


@pytest.mark.skipif(not VERSIONS, reason="set POCKETMQ_SPARK_VERSIONS, such as '4.0 4.1'")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_read(version: str, golden_clean: Path) -> None:
    path = os.pathsep.join(map(str, (installed(version), PROJECT)))
    ended = subprocess.run(
        [sys.executable, "-c", JOB, golden_clean],
        env=os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    used, *rows = json.loads(ended.stdout)
    assert used.startswith(f"{version}.")
    expected = {offset for offset, row in golden_rows("clean").items() if row["queueId"] == 1}
    assert {broker for broker, _ in rows} == {"golden"}
    assert sorted(offset for _, offset in rows) == sorted(expected)
