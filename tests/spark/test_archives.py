"""Archives of `pocketmq sync` as Spark reads them: in batches, streams and SQL."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from pocketmq.archive.errors import ArchiveError
from pocketmq.archive.location import Location
from pocketmq.archive.manifest import read_manifest
from pocketmq.archive.sync import sync
from pocketmq.cli import main
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.spark import register
from pocketmq.spark.options.options import OptionError
from pocketmq.spark.source import RocketMQDataSource
from pocketmq.store.errors import StoreError
from tests.archive.conftest import (
    CREDENTIALS,
    Bucket,
    GcsBucket,
    S3Bucket,
    bucket,
    gcs_bucket,
    gcs_endpoint,
    s3_bucket,
    s3_endpoint,
)
from tests.spark.stream_store import GrowingStore
from tests.store.made_store import NOW, rows_of, unpack_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bucket", "gcs_bucket", "gcs_endpoint", "s3_bucket", "s3_endpoint"]

SCHEMA = StructType(
    [
        StructField("brokerName", StringType()),
        StructField("topic", StringType()),
        StructField("queueOffset", LongType()),
        StructField("body", BinaryType()),
    ]
)


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    store = GrowingStore(tmp_path / "store", segment_size=4096)
    store.add(100)
    store.add(30, queue_id=1)
    store.add(20, topic="U")
    return store


def archive(store: GrowingStore, url: str) -> None:
    sync(store.root, Location(url).open(), everything=True, clock=lambda: NOW)


def offsets_in(positions: Any) -> dict[str, int]:
    """The queue offsets of a stream's positions; the rest tells which message came before them."""
    return {queue: position[0] for queue, position in positions["T"]["broker-a"].items()}


def rows(path: str | Path, **options: str) -> list[dict[str, Any]]:
    reader = RocketMQDataSource({"path": str(path), **options}).reader(SCHEMA)
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    remote = pickle.loads(pickle.dumps(reader))
    found = [row for partition in partitions for row in rows_of(remote.read(partition))]
    return sorted(found, key=lambda row: (row["topic"], row["body"], row["queueOffset"]))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subscribe": "U"},
        {"startingOffsets": '{"T":{"0":17,"1":3}}', "endingOffsets": '{"T":{"0":60}}'},
        {"startingTimestamp": str(NOW + 40), "endingTimestamp": str(NOW + 90)},
        {"minPartitions": "5"},
    ],
)
def test_an_archive_has_the_rows_of_its_store(
    store: GrowingStore, tmp_path: Path, options: dict[str, str]
) -> None:
    url = f"file://{tmp_path}/archives"
    archive(store, url)
    expected = rows(store.root, **options)
    assert expected
    assert rows(url, **options) == expected
    assert rows(tmp_path / "archives", **options) == expected


def test_archives_and_stores_are_read_as_one(store: GrowingStore, tmp_path: Path) -> None:
    url = str(tmp_path / "archives")
    archive(store, url)
    other = GrowingStore(tmp_path / "other", "broker-b", segment_size=4096)
    other.add(50)
    archive(other, url)
    third = GrowingStore(tmp_path / "third", "broker-c", segment_size=4096)
    third.add(5)
    found = rows(f"{url},{third.root}")
    brokers = [row["brokerName"] for row in found]
    counts = {name: brokers.count(name) for name in ("broker-a", "broker-b", "broker-c")}
    assert counts == {"broker-a": 150, "broker-b": 50, "broker-c": 5}


@pytest.mark.parametrize("local", [False, True])
def test_a_stream_sees_what_a_sync_adds(
    store: GrowingStore, bucket: Bucket, tmp_path: Path, local: bool
) -> None:
    datasource = pytest.importorskip("pyspark.sql.streaming.datasource", reason="pyspark 4.2")
    url = str(tmp_path / "archives") if local else bucket.url("archives")
    archive(store, url)
    options = {"path": url, "startingOffsets": "earliest", "subscribe": "T"}
    reader: Any = RocketMQDataSource(options).streamReader(SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, datasource.ReadAllAvailable())
    assert offsets_in(end) == {"0": 100, "1": 30}
    store.add(200)
    assert reader.latestOffset(end, datasource.ReadAllAvailable()) == end
    archive(store, url)
    later = reader.latestOffset(end, datasource.ReadAllAvailable())
    assert offsets_in(later) == {"0": 300, "1": 30}
    partitions = pickle.loads(pickle.dumps(reader.partitions(end, later)))
    found = [row for part in partitions for row in rows_of(reader.read(part))]
    assert [row["queueOffset"] for row in found] == list(range(100, 300))


def test_a_tiered_storage_in_batches_and_streams(tmp_path: Path) -> None:
    place = unpack_golden("tiered", tmp_path) / "tiered"
    assert len(rows(place)) == 407
    datasource = pytest.importorskip("pyspark.sql.streaming.datasource", reason="pyspark 4.2")
    options = {"path": str(place), "startingOffsets": '{"Audit":{"0":1}}', "subscribe": "Audit"}
    reader: Any = RocketMQDataSource(options).streamReader(SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, datasource.ReadAllAvailable())
    assert end == {"Audit": {"golden": {"0": 2, "1": 1, "2": 1, "3": 1}}}
    partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    found = [row for part in partitions for row in rows_of(reader.read(part))]
    assert len(found) == 4


def test_a_stream_refuses_a_store_and_its_archive(store: GrowingStore, tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="pyspark 4.2")
    url = str(tmp_path / "archives")
    archive(store, url)
    reader = RocketMQDataSource({"path": f"{store.root},{url}"}).streamReader(SCHEMA)
    with pytest.raises(OptionError, match=r"broker-a, like .*; offsets are kept"):
        reader.initialOffset()


def test_a_batch_refuses_a_store_and_its_archive(store: GrowingStore, tmp_path: Path) -> None:
    url = str(tmp_path / "archives")
    archive(store, url)
    archive(store, f"{url}-2")
    for places in (f"{store.root},{url}", f"{url},{url}-2"):
        with pytest.raises(OptionError, match=r"broker-a, like .*; each message .* read twice"):
            rows(places)
    assert len(rows(f"{url},{url}")) == 150


def test_a_query_refuses_a_store_and_its_archive(
    store: GrowingStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(tmp_path / "archives")
    archive(store, url)
    arguments = ["query", "SELECT 1", "--store", str(store.root), "--store", url]
    assert main(arguments) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert f"is of the broker broker-a, like {store.root}: each message that both have" in said


@pytest.mark.parametrize("part", ["missing", "half"])
@pytest.mark.parametrize("kind", ["log", "queues"])
def test_an_object_that_is_gone_or_half_there(
    store: GrowingStore,
    bucket: Bucket,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    part: str,
) -> None:
    url = bucket.url("archives")
    archive(store, url)
    manifest = read_manifest(Location(bucket.url("archives/broker-a")).open())
    assert manifest is not None
    stored = getattr(manifest.parts[1], kind).name
    key = f"archives/broker-a/{stored}"
    content = bucket.get(key)
    bucket.delete(key)
    expected = "is missing"
    if part == "half":
        bucket.put(key, content[: len(content) // 2])
        expected = f"it has {len(content) // 2} bytes; {len(content)} were uploaded"
    with pytest.raises(StoreError, match=rf"{bucket.shown}/{key}.* {expected}"):
        rows(url)
    with caplog.at_level(logging.WARNING):
        left = rows(url, failOnDataLoss="false")
    assert len(left) == 150 - manifest.parts[1].messages
    assert f"{bucket.shown}/{key}" in caplog.text


def test_no_archive(bucket: Bucket) -> None:
    with pytest.raises(ArchiveError, match=r"no archive at .*`pocketmq sync STORE URL` makes"):
        rows(bucket.url("archives"))


@pytest.mark.spark
def test_spark_reads_s3_in_batches_and_streams(
    spark: SparkSession, store: GrowingStore, s3_bucket: S3Bucket, tmp_path: Path, s3_endpoint: str
) -> None:
    archive(store, s3_bucket.url("archives"))
    # The workers of the session have the environment of an earlier test.
    key, secret = CREDENTIALS.values()
    server = f"scheme=http&endpoint_override={urlsplit(s3_endpoint).netloc}&region=us-east-1"
    url = f"s3a://{key}:{secret}@{s3_bucket.name}/archives?{server}"
    check_spark(spark, store, url, tmp_path)

    with pytest.raises(Exception, match="no archive at s3a://") as raised:
        spark.read.format("rocketmq").load(url.replace("/archives", "/none"))
    assert secret not in str(raised.value)


@pytest.mark.spark
def test_spark_reads_google_cloud_storage_in_batches_and_streams(
    spark: SparkSession, store: GrowingStore, gcs_bucket: GcsBucket, tmp_path: Path
) -> None:
    url = gcs_bucket.url("archives")
    archive(store, url)
    check_spark(spark, store, url, tmp_path)


def check_spark(spark: SparkSession, store: GrowingStore, url: str, tmp_path: Path) -> None:
    """Compare the rows of an archive with those of its store."""
    register(spark)
    order = "physicalOffset"
    read = spark.read.format("rocketmq").option("minPartitions", "3")
    expected = read.load(str(store.root)).orderBy(order).collect()
    assert len(expected) == 150
    assert read.load(url).orderBy(order).collect() == expected

    pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")
    stream = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
    query = (
        stream.load(url)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "copy"))
    )
    assert query.awaitTermination(60)
    assert spark.read.parquet(str(tmp_path / "copy")).orderBy(order).collect() == expected


def test_a_query_says_that_there_is_no_archive(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", "SELECT 1", "--store", bucket.url("none")]) == 7
    assert f"no archive at {bucket.shown}/none" in capsys.readouterr().err
    assert main(["query", "SELECT 1", "--store", "sftp://host/x"]) == 2
    assert "cannot be opened by PyArrow" in capsys.readouterr().err
