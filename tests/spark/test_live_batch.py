"""Batch reads from running brokers, as Spark's workers call them, without Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.message import Message
from pocketmq.sync import Producer
from pocketmq.testing import RocketMQ
from tests.spark.kept_history import kept
from tests.store.made_store import comparable, rows_of

pytest.importorskip("pyspark")

from pyspark.sql.datasource import DataSourceReader, EqualTo
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from pocketmq.spark.batch_reader import PushdownReader
from pocketmq.spark.live.errors import BrokersNotRead, QueueNotRead
from pocketmq.spark.live.partition import LivePartition
from pocketmq.spark.options.option_error import OptionError
from pocketmq.spark.options.options import Options
from pocketmq.spark.slice_partition import SlicePartition
from pocketmq.spark.source import RocketMQDataSource
from pocketmq.store.scan.errors import RecordsLost
from tests.spark.test_batch_reader import schema_of

BODY = StructType([StructField("queueOffset", LongType()), StructField("body", BinaryType())])


@pytest.fixture(scope="session")
def rocketmq_properties() -> dict[str, str]:
    return {"enablePropertyFilter": "true"}


@pytest.fixture(scope="module")
def filled(rocketmq_module: RocketMQ) -> RocketMQ:
    """A broker with two topics of many kinds of messages; read only."""
    server = rocketmq_module
    server.sync.create_topic("T", queues=3)
    server.sync.create_topic("Empty", queues=2)
    with Producer("tests", namesrv=server.namesrv, compress_over=2000) as producer:
        for number in range(600):
            producer.send(
                Message(
                    "T",
                    b"%d" % number + b"x" * (number * 7 % 3000),
                    tags=[None, "paid", "open"][number % 3],
                    keys=[f"k{number}", "all"][: number % 3],
                    properties={"number": str(number)} if number % 2 else {},
                )
            )
        for number in range(50):
            producer.send(Message("Other", b"%d" % number))
    return server


def source(server: RocketMQ, **options: str) -> RocketMQDataSource:
    return RocketMQDataSource({"namesrv": server.namesrv, **options})


def rows(reader: DataSourceReader) -> list[dict[str, Any]]:
    """All rows, each partition read by a reader that came over the wire."""
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    remote = pickle.loads(pickle.dumps(reader))
    return [row for partition in partitions for row in rows_of(remote.read(partition))]


def all_rows(asked: RocketMQDataSource) -> list[dict[str, Any]]:
    """All columns of all rows, in the order of the log."""
    found = [comparable(row) for row in rows(asked.reader(schema_of(asked)))]
    return sorted(found, key=lambda row: row["physicalOffset"])


def of_files(server: RocketMQ, **options: str) -> list[dict[str, Any]]:
    """The same of the broker's files."""
    return all_rows(RocketMQDataSource({"path": str(server.store), **options}))


MIDDLE = '{"T":{"0":20,"1":-2,"2":150}}'


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"includeMetadata": "true", "minPartitions": "5"},
        {"includeMetadata": "true", "decompress": "false"},
        {"includeSystemTopics": "true"},
        {"subscribe": "T", "maxRecordsPerPartition": "37"},
        {"subscribePattern": "O.*"},
        {"assign": '{"T":{"broker-a":[0,2]}}'},
        {"subscribe": "T", "startingOffsets": MIDDLE},
        {"subscribe": "T", "endingOffsets": '{"T":{"broker-a":{"0":20,"1":-1}}}'},
        {"subscribe": "Empty"},
    ],
    ids=str,
)
def test_rows_are_those_of_the_files(filled: RocketMQ, options: dict[str, str]) -> None:
    expected = of_files(filled, **options)
    assert expected or options == {"subscribe": "Empty"}
    assert all_rows(source(filled, **options)) == expected


def test_rows_of_a_time(filled: RocketMQ) -> None:
    times = [row["storeTimestamp"] for row in of_files(filled, subscribe="T")]
    start, stop = times[100], times[500]
    options = {
        "subscribe": "T",
        "startingTimestamp": str(start),
        "endingTimestamp": str(stop),
    }
    found = all_rows(source(filled, **options))
    assert found == of_files(filled, **options)
    assert len(found) == sum(start <= time < stop for time in times)


def test_brokers_filter_by_tags(filled: RocketMQ) -> None:
    expected = [row for row in of_files(filled) if row["tags"] in ("paid", "none")]
    assert all_rows(source(filled, tags="paid || none", minPartitions="3")) == expected


def test_brokers_filter_by_properties(filled: RocketMQ) -> None:
    expected = [
        row for row in of_files(filled) if 300 < int(row["properties"].get("number", 0)) < 400
    ]
    assert len(expected) == 50
    assert all_rows(source(filled, sql="number > 300 AND number < 400")) == expected


def test_tags_with_the_same_hash_are_told_apart(rocketmq: RocketMQ) -> None:
    with Producer("tests", namesrv=rocketmq.namesrv) as producer:
        for tag in ("Aa", "BB"):
            producer.send(Message("T", b"-", tags=tag))
    assert [row["tags"] for row in all_rows(source(rocketmq, tags="BB"))] == ["BB"]


def test_partitions_are_as_asked(filled: RocketMQ) -> None:
    partitions = source(filled, minPartitions="7").reader(BODY).partitions()
    assert len(partitions) == 7
    sizes = []
    for partition in source(filled, maxRecordsPerPartition="100").reader(BODY).partitions():
        assert isinstance(partition, LivePartition)
        sizes.append(sum(part.stop - part.start for part in partition.ranges))
    assert sum(sizes) == 650
    assert max(sizes) <= 100


def test_pushed_filters(filled: RocketMQ) -> None:
    asked = source(filled)
    reader = PushdownReader(Options.parse(asked.options), BODY)
    conditions = [EqualTo(("topic",), "T"), EqualTo(("queueOffset",), 7)]
    assert list(reader.pushFilters(list(conditions))) == []
    assert [row["queueOffset"] for row in rows(reader)] == [7, 7, 7]
    reader = PushdownReader(Options.parse(asked.options), BODY)
    reader.pushFilters([EqualTo(("brokerName",), "another")])
    assert reader.partitions() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "Missing"}, r"subscribe = 'Missing': no such topic; .*Empty.*Other.*T"),
        ({"assign": '{"T":[3]}'}, "assign = 'T/3': there is no such queue"),
        ({"assign": '{"T":{"b":[0]}}'}, "assign = 'b': no such broker has a queue; .*broker-a"),
        ({"subscribe": "T", "endingOffsets": '{"Other":{"0":1}}'}, "the queue is not read"),
        ({"path": "/store", "tags": "a"}, "tags = .a.: cannot go with option path"),
        ({"namesrv": "?"}, "namesrv"),
        ({"consumerGroup": "a b"}, "consumerGroup = 'a b'"),
        ({"tags": "a", "sql": "b = 1"}, "sql = 'b = 1': either tags .* or SQL92"),
        ({"tags": " || "}, "tags = ' || '"),
        ({"timeout": "soon"}, "timeout = 'soon': need seconds"),
        ({"secretKey": "hunter2"}, r"secretKey = '\(hidden\)': needs both"),
        ({"secret": "hunter2"}, r"secret = '\(hidden\)': there is no such option"),
    ],
)
def test_what_cannot_be_meant(filled: RocketMQ, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source(filled, **options).reader(BODY).partitions()


def test_options_of_brokers_need_brokers() -> None:
    with pytest.raises(OptionError, match="option timeout = '3': needs the option namesrv"):
        RocketMQDataSource({"path": "/store", "timeout": "3"}).schema()


def test_no_secret_is_shown(filled: RocketMQ) -> None:
    asked = source(filled, accessKey="ak", secretKey="hunter2", securityToken="hunter3")
    reader = asked.reader(BODY)
    shown = f"{Options.parse(asked.options)!r} {reader!r} {reader.partitions()!r}"
    assert "hunter" not in shown


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ('"startingOffsets":{"T":{"0":1000}}', "T/0: .*broker broker-a: the queue ends at 200"),
        ('"endingOffsets":{"T":{"0":1000}}', "T/0: .*200 to 999 are gone"),
        ('"startingOffsets":{"Empty":{"1":3}}', "Empty/1: .*the queue ends at 0"),
    ],
)
def test_offsets_that_are_not_there(filled: RocketMQ, offsets: str, message: str) -> None:
    options = {name: json.dumps(value) for name, value in json.loads(f"{{{offsets}}}").items()}
    with pytest.raises(RecordsLost, match=message):
        source(filled, **options).reader(BODY).partitions()
    source(filled, failOnDataLoss="false", **options).reader(BODY).partitions()


def test_nobody_answers() -> None:
    asked = RocketMQDataSource({"namesrv": "127.0.0.1:1", "timeout": "0.2"})
    with pytest.raises(BrokersNotRead, match=r"name server 127.0.0.1:1: .*no name server"):
        asked.reader(BODY).partitions()


def send(server: RocketMQ, count: int, topic: str = "T") -> None:
    with Producer("tests", namesrv=server.namesrv) as producer:
        for number in range(count):
            producer.send(Message(topic, b"%d" % number))


def test_a_pull_that_fails_is_tried_again(rocketmq: RocketMQ) -> None:
    send(rocketmq, 100)
    reader = source(rocketmq, minPartitions="1").reader(BODY)
    with rocketmq.fail("PULL_MESSAGE", "SYSTEM_BUSY", times=2):
        assert len(rows(reader)) == 100


def test_a_broker_that_restarts_costs_no_row(rocketmq: RocketMQ) -> None:
    send(rocketmq, 1000)
    reader = source(rocketmq, maxRecordsPerPartition="10000").reader(BODY)
    batches: Iterator[Any] = (
        batch for partition in reader.partitions() for batch in reader.read(partition)
    )
    found = [row["body"] for row in rows_of([next(batches)])]
    rocketmq.sync.restart_broker()
    found += [row["body"] for row in rows_of(batches)]
    assert sorted(map(int, found)) == list(range(1000))


def test_a_broker_that_refuses_is_not_asked_again(rocketmq: RocketMQ) -> None:
    send(rocketmq, 10)
    reader = source(rocketmq).reader(BODY)
    partitions = reader.partitions()
    with (
        rocketmq.fail("PULL_MESSAGE", "NO_PERMISSION"),
        pytest.raises(QueueNotRead, match=r"cannot pull T/broker-a/\d from offset 0 on: .*NO_PERM"),
    ):
        rows_of(reader.read(partitions[0]))


@pytest.mark.parametrize("kind", ["copy", "archive"])
def test_files_and_brokers_together(rocketmq: RocketMQ, tmp_path: Path, kind: str) -> None:
    rocketmq.sync.create_topic("T", queues=2)
    send(rocketmq, 300)
    rocketmq.sync.restart_broker()  # only what is flushed is archived
    path = kept(rocketmq.store, tmp_path, kind)
    rocketmq.sync.advance(1000)
    middle = rocketmq.clock()
    rocketmq.sync.advance(1000)
    send(rocketmq, 200)
    send(rocketmq, 50, "New")
    expected = of_files(rocketmq)
    asked = source(rocketmq, path=path)
    partitions = asked.reader(BODY).partitions()
    of_brokers = [
        (part.topic, part.queue_id, part.start)
        for partition in partitions
        if isinstance(partition, LivePartition)
        for part in partition.ranges
    ]
    assert any(isinstance(partition, SlicePartition) for partition in partitions)
    ends = {
        queue_id: 1 + max(row["queueOffset"] for row in of_files_at(path, queue_id))
        for queue_id in (0, 1)
    }
    assert {(topic, at) for topic, _, at in of_brokers if topic == "New"} == {("New", 0)}
    assert [(number, at) for topic, number, at in of_brokers if topic == "T"] == [*ends.items()]
    assert all_rows(asked) == expected
    with pytest.raises(OptionError, match="'X': neither the stores nor the brokers have"):
        source(rocketmq, path=path, subscribe="X").reader(BODY).partitions()
    for options in (
        {"startingTimestamp": str(middle)},
        {"endingTimestamp": str(middle)},
        {"startingTimestamp": "0", "endingTimestamp": str(middle + 10_000_000)},
        {"subscribe": "T", "startingOffsets": '{"T":{"0":100,"1":220}}'},
        {"subscribe": "T", "endingOffsets": '{"T":{"0":100,"1":220}}'},
    ):
        assert all_rows(source(rocketmq, path=path, **options)) == of_files(rocketmq, **options)


def of_files_at(path: str, queue_id: int) -> list[dict[str, Any]]:
    return all_rows(RocketMQDataSource({"path": path, "assign": json.dumps({"T": [queue_id]})}))
