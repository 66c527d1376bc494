"""What Spark's workers can do in a Python that has no more than numpy and pyarrow.

Spark plans in such a worker, too, on the driver's machine. `test_shipping` does this with Spark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bare_python import EXECUTOR, run_with
from tests.spark.stream_store import OpenStore
from tests.store.made_store import NOW, MadeStore, rows_of, unpack_golden

pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")

from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from pocketmq.archive.location import Location
from pocketmq.archive.sync import sync
from pocketmq.message.compression import CompressionType, compress
from pocketmq.message.sysflag import COMPRESSED, COMPRESSION_TYPE_SHIFT
from pocketmq.spark.slice_partition import NotedPartition
from pocketmq.spark.source import RocketMQDataSource

SCHEMA = StructType([StructField("physicalOffset", LongType()), StructField("body", BinaryType())])

#: Reads what came over the wire, and prints the rows.
TASK = """
import json, pickle
with open(sys.argv[1], "rb") as file:
    source, reader, partitions = pickle.load(file)
batches = [batch for partition in partitions for batch in reader.read(partition)]
rows = [row for batch in batches for row in batch.to_pylist()]
print(json.dumps([[row["physicalOffset"], row["body"].hex()] for row in rows]))
"""

#: Does what workers do on the driver's machine as well.
JOB = """
import json, pickle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType
from pyspark_rocketmq import DefaultSource
source = DefaultSource({"path": sys.argv[1]})
assert "physicalOffset" in source.schema()
schema = StructType([StructField("physicalOffset", LongType()), StructField("body", BinaryType())])
if sys.argv[2] == "stream":
    source = DefaultSource({"path": sys.argv[1], "startingOffsets": "earliest"})
    reader = source.streamReader(schema)
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
else:
    reader = source.reader(schema)
    partitions = reader.partitions()
reader, partitions = pickle.loads(pickle.dumps((reader, partitions)))
batches = [batch for partition in partitions for batch in reader.read(partition)]
rows = [row for batch in batches for row in batch.to_pylist()]
print(json.dumps([[row["physicalOffset"], row["body"].hex()] for row in rows]))
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Stores and archives of every kind."""
    directory = tmp_path_factory.mktemp("places")
    made = MadeStore(directory / "made", segment_size=4096)
    for number in range(100):
        made.put(queue_id=number % 2, body=b"body %d" % number, properties={"TAGS": "a"})
    made.write()
    archives = Location(str(directory / "archive")).open()
    sync(directory / "made", archives, everything=True, clock=lambda: NOW)
    with OpenStore(directory / "noted") as store:
        for number in range(300):
            store.add(1, "T", number)
    return {
        "made": directory / "made",
        "archive": directory / "archive",
        "noted": directory / "noted",
        "killed": unpack_golden("killed", directory / "killed"),
        "tiered": unpack_golden("tiered", directory / "golden") / "tiered",
    }


KINDS = ("made", "archive", "noted", "killed", "tiered")


def listed(rows: list[dict[str, Any]]) -> list[list[Any]]:
    return [[row["physicalOffset"], bytes(row["body"]).hex()] for row in rows]


def batch_rows(place: Path) -> list[list[Any]]:
    reader = RocketMQDataSource({"path": str(place)}).reader(SCHEMA)
    return listed([row for part in reader.partitions() for row in rows_of(reader.read(part))])


def sent(tmp_path: Path, *things: Any) -> Path:
    """A file with what Spark would send to an executor."""
    file = tmp_path / "sent"
    file.write_bytes(cloudpickle.dumps(things))  # type: ignore[no-untyped-call]
    return file


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_reads_what_was_planned(places: dict[str, Path], kind: str, tmp_path: Path) -> None:
    source = RocketMQDataSource({"path": str(places[kind])})
    reader = source.reader(SCHEMA)
    partitions = list(reader.partitions())
    assert any(isinstance(part, NotedPartition) for part in partitions) == (kind == "noted")
    done = run_with(EXECUTOR, TASK, sent(tmp_path, source, reader, partitions))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) >= 100
    assert found == batch_rows(places[kind])


@pytest.mark.parametrize("use", ["batch", "stream"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_takes_no_more(places: dict[str, Path], kind: str, use: str) -> None:
    done = run_with(EXECUTOR, JOB, places[kind], use)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)) == sorted(batch_rows(places[kind]))


def test_the_package_of_a_codec_is_named(tmp_path: Path) -> None:
    store = MadeStore(tmp_path / "store")
    flag = COMPRESSED | CompressionType.LZ4 << COMPRESSION_TYPE_SHIFT
    store.put(body=compress(b"x" * 100, CompressionType.LZ4), sys_flag=flag)
    reader = RocketMQDataSource({"path": str(store.write())}).reader(SCHEMA)
    file = sent(tmp_path, None, reader, list(reader.partitions()))
    assert "LZ4, which needs the package lz4" in run_with(EXECUTOR, TASK, file).stderr
    assert run_with((*EXECUTOR, "lz4"), TASK, file).returncode == 0


NAMESRV = {"namesrv": "127.0.0.1:1"}


def test_a_task_that_pulls_names_the_package_that_it_needs(tmp_path: Path) -> None:
    reader = RocketMQDataSource(NAMESRV).reader(SCHEMA)
    done = run_with(EXECUTOR, TASK, sent(tmp_path, RocketMQDataSource(NAMESRV), reader, []))
    assert "reading from running brokers needs the package msgspec" in done.stderr
    assert f"{sys.executable} -m pip install msgspec" in done.stderr


def test_a_task_that_sends_names_the_package_that_it_needs(tmp_path: Path) -> None:
    options = NAMESRV | {"topic": "T"}
    columns = StructType([StructField("body", BinaryType())])
    writer = RocketMQDataSource(options).writer(columns, overwrite=False)
    done = run_with(EXECUTOR, TASK, sent(tmp_path, None, writer, []))
    assert "writing to brokers needs the package msgspec" in done.stderr


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("schema()", "reading from running brokers"),
        ("reader(schema)", "reading from running brokers"),
        ("streamReader(schema).initialOffset()", "reading from running brokers"),
        ("writer(schema, False)", "writing to brokers"),
    ],
)
def test_so_does_a_worker_on_the_driver(call: str, what: str) -> None:
    program = (
        "from pyspark.sql.types import BinaryType, StructField, StructType\n"
        "from pyspark_rocketmq import DefaultSource\n"
        "schema = StructType([StructField('body', BinaryType())])\n"
        f"DefaultSource({NAMESRV}).{call}\n"
    )
    error = run_with(EXECUTOR, program).stderr.strip().splitlines()[-1]
    assert f"{what} needs the package msgspec" in error


def test_a_table_sink_names_the_package_that_it_needs() -> None:
    done = run_with(EXECUTOR, "from pocketmq.spark import table_sink")
    assert "table_sink needs the package msgspec" in done.stderr
