"""Executors whose Python has no pocketmq read with what `pocketmq spark-pack` sends."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")

from pocketmq.cli import main
from pocketmq.message.compression import CompressionType, compress
from pocketmq.message.sysflag import COMPRESSED, COMPRESSION_TYPE_SHIFT
from pocketmq.remoting.service import ExitCode
from tests.store.made_store import MadeStore

pytestmark = pytest.mark.spark

PACKAGES = ("numpy", "numpy.libs", "pyarrow", "msgspec")

JOB = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local-cluster[1,1,1024]")
for setting, value in {
    "spark.executor.memory": "512m",
    "spark.log.level": "OFF",
    "spark.submit.pyFiles": sys.argv[1],
    "spark.ui.enabled": "false",
}.items():
    builder = builder.config(setting, value)
spark = builder.getOrCreate()
from pocketmq.spark import pruned, register
register(spark)
frame = spark.read.format("rocketmq").load(sys.argv[2])
print("counted", pruned(frame, lambda messages: messages.groupBy().count()).first()[0])
plain = spark.read.format("rocketmq").option("subscribe", "T").load(sys.argv[2])
print("read", plain.selectExpr("max(CAST(body AS STRING))").first()[0])
try:
    frame.select("body").collect()
except Exception as error:
    print("failed", str(error))
spark.stop()
"""


def python_without_pocketmq(directory: Path) -> Path:
    """A Python that has only what the source needs."""
    venv.create(directory, with_pip=False)
    [packages] = directory.glob("lib/python*/site-packages")
    origin = find_spec("numpy")
    assert origin is not None
    assert origin.origin is not None
    for name in PACKAGES:
        source = Path(origin.origin).parents[1] / name
        if source.exists():
            (packages / name).symlink_to(source)
    return directory / "bin" / "python"


def test_executors_read_with_the_zip(tmp_path: Path) -> None:
    from pocketmq.spark.java import SparkUnavailable, find_java, use_java

    try:
        use_java(find_java())
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    store = MadeStore(tmp_path / "store")
    for number in range(10):
        store.put(body=b"body %d" % number)
    packed = compress(b"x" * 100, CompressionType.LZ4)
    store.put("Z", body=packed, sys_flag=COMPRESSED | CompressionType.LZ4 << COMPRESSION_TYPE_SHIFT)
    store.write()
    package = tmp_path / "pocketmq.zip"
    assert main(["spark-pack", str(package)]) == ExitCode.OK
    # A home of its own, since workers write into it.
    home = tmp_path / "spark"
    home.mkdir()
    installed = find_spec("pyspark")
    assert installed is not None
    assert installed.origin is not None
    for path in Path(installed.origin).parent.iterdir():
        (home / path.name).symlink_to(path)
    job = tmp_path / "job.py"
    job.write_text(JOB)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", str(job), str(package), str(tmp_path / "store")],
        env=kept
        | {
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": str(python_without_pocketmq(tmp_path / "venv")),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "counted 11" in done.stdout, done.stderr
    assert "read body 9" in done.stdout, done.stdout
    assert "a body is compressed with LZ4, which needs the package lz4" in done.stdout
