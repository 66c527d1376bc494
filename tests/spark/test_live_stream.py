"""Streams over running brokers, as Spark's workers call them, without Spark."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.message import Message, MessageQueue
from pocketmq.sync import Admin, Producer
from pocketmq.testing import RocketMQ

pytest.importorskip("pyspark")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from pocketmq.spark.live.errors import BrokersNotRead
from pocketmq.spark.live.partition import LivePartition
from pocketmq.spark.options.option_error import OptionError
from pocketmq.spark.slice_partition import SlicePartition
from pocketmq.spark.source import RocketMQDataSource
from pocketmq.spark.streams.stream_reader import RocketMQStreamReader
from pocketmq.store.scan.errors import QueueReplaced, RecordsLost
from tests.spark.kept_history import kept
from tests.spark.stream_store import offsets_alone

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("queueOffset", LongType()),
        StructField("body", BinaryType()),
    ]
)
Offsets = dict[str, Any]


def stream(options: dict[str, str]) -> RocketMQStreamReader:
    source = RocketMQDataSource({"startingOffsets": "earliest", **options})
    reader = source.streamReader(SCHEMA)
    assert isinstance(reader, RocketMQStreamReader), reader.initialOffset()
    return reader


def live(server: RocketMQ, **options: str) -> RocketMQStreamReader:
    return stream({"namesrv": server.namesrv, **options})


def send(server: RocketMQ, count: int, topic: str = "T") -> None:
    with Producer("tests", namesrv=server.namesrv) as producer:
        producer.send_batch([Message(topic, b"-") for _ in range(count)])


def delete(server: RocketMQ, topic: str = "T") -> None:
    with Admin(namesrv=server.namesrv) as admin:
        admin.delete_topic(topic)


def at(offset: int, topic: str = "T", broker: str = "broker-a") -> Offsets:
    return {topic: {broker: {"0": offset}}}


def latest(reader: RocketMQStreamReader, start: Offsets) -> Offsets:
    return offsets_alone(reader.latestOffset(start, reader.getDefaultReadLimit()))


def read(reader: RocketMQStreamReader, start: Offsets, end: Offsets) -> list[tuple[str, int]]:
    return sorted(
        (row["topic"], row["queueOffset"])
        for partition in pickle.loads(pickle.dumps(reader.partitions(start, end)))
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    )


def rows(offsets: range, topic: str = "T") -> list[tuple[str, int]]:
    return [(topic, offset) for offset in offsets]


@pytest.fixture
def server(rocketmq: RocketMQ) -> RocketMQ:
    """A broker with the topics T, which has 5 messages in its one queue, and New without any."""
    for topic in ("T", "New"):
        rocketmq.sync.create_topic(topic, queues=1)
    send(rocketmq, 5)
    return rocketmq


def test_a_query_reads_what_is_there_and_then_what_comes(server: RocketMQ) -> None:
    reader = live(server)
    start = reader.initialOffset()
    assert offsets_alone(start) == at(0)
    end = latest(reader, start)
    assert end == at(5)
    assert read(reader, start, end) == rows(range(5))
    assert latest(reader, end) == end
    send(server, 3)
    send(server, 2, "New")
    joined = latest(reader, end)
    assert joined == at(8) | at(0, "New")
    assert reader.reportLatestOffset() == at(8) | at(2, "New")
    assert read(reader, end, joined) == rows(range(5, 8))
    last = latest(reader, joined)
    assert read(reader, joined, last) == rows(range(2), "New")


def test_a_stream_moves_between_files_and_brokers(server: RocketMQ) -> None:
    files = stream({"path": str(server.store), "readUnflushed": "true"})
    end = latest(files, files.initialOffset())
    send(server, 5)
    later = latest(live(server), end)
    assert read(live(server), end, later) == rows(range(5, 10))
    send(server, 5)
    assert read(files, later, latest(files, later)) == rows(range(10, 15))


@pytest.fixture(params=["copy", "archive"])
def history(server: RocketMQ, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The store with the first 5 messages of T, elsewhere. Then the broker gets 5 more."""
    server.sync.restart_broker()  # only what is flushed is archived
    place = kept(server.store, tmp_path, request.param)
    server.sync.advance(60)
    send(server, 5)
    return place


def test_history_from_files_and_the_rest_from_brokers(server: RocketMQ, history: str) -> None:
    both = live(server, path=history)
    start = both.initialOffset()
    end = latest(both, start)
    assert (offsets_alone(start), end) == (at(0), at(10))
    of_files, of_brokers = both.partitions(start, end)
    assert isinstance(of_files, SlicePartition)
    assert isinstance(of_brokers, LivePartition)
    assert [(part.start, part.stop) for part in of_files.slices] == [(0, 5)]
    assert [(part.start, part.stop) for part in of_brokers.ranges] == [(5, 10)]
    assert read(both, start, end) == rows(range(10))
    # After a restart the batch is the same, whatever it is read from.
    for again in (live(server, path=history), live(server), stream({"path": str(server.store)})):
        assert read(again, at(3), at(7)) == rows(range(3, 7))
    send(server, 2, "New")
    joined = latest(both, end)
    assert joined == at(10) | at(0, "New")
    assert read(both, joined, latest(both, joined)) == rows(range(2), "New")
    with pytest.raises(OptionError, match="'X': neither the stores nor the brokers have"):
        live(server, path=history, subscribe="X").initialOffset()


def test_a_run_over_history_ends(server: RocketMQ, history: str) -> None:
    reader = live(server, path=history, maxOffsetsPerTrigger="4")
    reader.prepareForTriggerAvailableNow()
    position, found = reader.initialOffset(), []
    while (end := latest(reader, position)) != position:
        send(server, 5)
        found += read(reader, position, end)
        position = end
    assert found == rows(range(10))


def test_times_over_history(server: RocketMQ, history: str) -> None:
    server.sync.advance(60)
    later = server.clock()
    server.sync.advance(60)
    send(server, 5)

    def begins(time: int) -> Offsets:
        reader = live(server, path=history, startingTimestamp=str(time))
        return offsets_alone(reader.initialOffset())

    assert begins(0) == at(0)
    assert begins(later - 90_000) == at(5)
    assert begins(later) == at(10)


def test_history_of_a_broker_that_is_away(server: RocketMQ, golden_clean: Path) -> None:
    with pytest.raises(BrokersNotRead, match=r"which is not registered for 0\.1 s"):
        live(server, path=str(golden_clean), timeout="0.1").initialOffset()
    lenient = live(server, path=str(golden_clean), timeout="0.1", failOnDataLoss="false")
    assert offsets_alone(lenient.initialOffset()) == at(0)


def test_files_that_are_longer_than_the_queue_of_the_broker(server: RocketMQ, history: str) -> None:
    """The offsets behind its end will be those of other messages."""
    both = live(server, path=history)
    with pytest.raises(RecordsLost, match="the queue ends at 10, but the stream has read up to 12"):
        latest(both, at(12))


def test_where_a_new_query_begins(server: RocketMQ) -> None:
    server.sync.advance(60)
    between = server.clock()
    server.sync.advance(60)
    send(server, 5)

    def begins(**options: str) -> Offsets:
        return offsets_alone(live(server, **options).initialOffset())

    assert begins(startingOffsets="latest") == at(10)
    assert begins(startingOffsets='{"T":{"0":3}}') == at(3)
    assert begins(startingOffsets='{"T":{"broker-a":{"0":-1}}}') == at(10)
    assert begins(startingTimestamp=str(between)) == at(5)
    assert begins(startingTimestamp=str(between + 1_000_000)) == at(10)
    with pytest.raises(RecordsLost, match="T/0: the records 10 to 10 are gone: broker broker-a"):
        begins(startingOffsets='{"T":{"0":11}}')
    with pytest.raises(OptionError, match="'X': no such topic"):
        begins(subscribe="X")
    with pytest.raises(OptionError, match="readUnflushed = 'true': cannot go with option namesrv"):
        begins(readUnflushed="true")


def test_limits_and_the_end_of_a_run(server: RocketMQ) -> None:
    reader = live(server, maxOffsetsPerTrigger="2", maxRecordsPerPartition="1")
    reader.prepareForTriggerAvailableNow()
    position, ends = reader.initialOffset(), []
    while (end := latest(reader, position)) != position:
        send(server, 5)
        send(server, 5, "New")
        assert len(reader.partitions(position, end)) == len(read(reader, position, end))
        ends.append(end)
        position = end
    assert ends == [at(2), at(4), at(5)]


def test_offsets_that_go_backwards(server: RocketMQ, caplog: pytest.LogCaptureFixture) -> None:
    text = r"T/0: the records 5 to 8 are gone: broker broker-a: the queue ends at 5, but the stream"
    with pytest.raises(RecordsLost, match=text):
        latest(live(server), at(9))
    lenient = live(server, failOnDataLoss="false")
    assert latest(lenient, at(9)) == at(5)
    assert "left out 4 offsets" in caplog.text
    with pytest.raises(RecordsLost, match="the records 5 to 8 are gone"):
        live(server).partitions(at(1), at(9))
    assert read(lenient, at(1), at(9)) == rows(range(1, 5))


def test_a_broker_that_is_away(server: RocketMQ, caplog: pytest.LogCaptureFixture) -> None:
    start = at(2) | at(2, "Elsewhere", "broker-b")
    with pytest.raises(BrokersNotRead, match=r"from the broker broker-b, which is not registered"):
        latest(live(server, timeout="0.1"), start)
    lenient = live(server, timeout="0.1", failOnDataLoss="false")
    assert latest(lenient, start) == start | at(5)
    assert "goes on with the others" in caplog.text


def test_a_broker_that_restarts_is_waited_for(server: RocketMQ) -> None:
    reader = live(server)
    end = latest(reader, at(0))
    server.sync.restart_broker()
    assert latest(reader, end) == end
    send(server, 5)
    assert read(reader, end, latest(reader, end)) == rows(range(5, 10))


def marked(reader: RocketMQStreamReader, start: Offsets) -> Offsets:
    """The next end with the marks that tell whether queues are still the same."""
    return reader.latestOffset(start, reader.getDefaultReadLimit())


@pytest.mark.parametrize("new", [3, 9])
def test_a_topic_that_is_created_again(
    server: RocketMQ, new: int, caplog: pytest.LogCaptureFixture
) -> None:
    start = marked(live(server), at(0))
    files = stream({"path": str(server.store), "readUnflushed": "true"})
    assert start == marked(files, at(0))
    delete(server)
    with pytest.raises(QueueReplaced, match=r"T/0 .* but there is no such queue"):
        marked(live(server), start)
    left = marked(live(server, failOnDataLoss="false"), start)
    server.sync.create_topic("T", queues=1)
    with pytest.raises(QueueReplaced, match=r"T/0 .* but there is no such queue"):
        marked(live(server), start)  # it has no message yet
    assert offsets_alone(marked(live(server, failOnDataLoss="false"), start)) == {}
    server.sync.advance(1)
    send(server, new)
    for reader in (live(server), stream({"path": str(server.store), "readUnflushed": "true"})):
        with pytest.raises(QueueReplaced, match="T/0 was read up to offset 5, and is not the same"):
            marked(reader, start)
    lenient = live(server, failOnDataLoss="false")
    begun = marked(lenient, start)
    assert begun == marked(lenient, left)
    assert offsets_alone(begun) == at(0)
    assert read(lenient, start, begun) == []
    assert read(lenient, begun, marked(lenient, begun)) == rows(range(new))
    assert "stream continues with newer messages" in caplog.text


def test_a_topic_that_loses_a_queue_and_gets_it_back(
    server: RocketMQ, caplog: pytest.LogCaptureFixture
) -> None:
    """The messages of the queue are read once."""

    def resize(queues: int) -> None:
        server.sync.create_topic("T", queues=queues, allow_shrink=True)

    def send_to_second() -> None:
        with Producer("tests", namesrv=server.namesrv) as producer:
            producer.send(Message("T", b"-"), queue=MessageQueue("T", "broker-a", 1))

    resize(2)
    send_to_second()
    lenient = live(server, failOnDataLoss="false")
    start = marked(lenient, lenient.initialOffset())
    assert offsets_alone(start) == {"T": {"broker-a": {"0": 5, "1": 1}}}
    resize(1)
    with pytest.raises(QueueReplaced, match=r"T/1 .* but there is no such queue"):
        marked(live(server), start)
    assert marked(lenient, start) == marked(lenient, start) == start
    assert caplog.text.count("stream continues with newer messages") == 1
    resize(2)
    assert marked(live(server), start) == start
    send_to_second()
    end = marked(live(server), start)
    assert read(live(server), start, end) == [("T", 1)]


def test_a_topic_that_is_created_again_behind_its_history(server: RocketMQ, history: str) -> None:
    start = marked(live(server, path=history), at(0))
    delete(server)
    server.sync.create_topic("T", queues=1)
    server.sync.advance(1)
    send(server, 15)
    with pytest.raises(QueueReplaced, match="T/0 was read up to offset 10, and is not the same"):
        marked(live(server, path=history), start)


def test_what_brokers_refuse_is_known_before_a_query_runs(server: RocketMQ) -> None:
    broker_and_cluster = {"broker-a", "DefaultCluster"}
    with pytest.raises(OptionError, match="no such topic; the topics are: ") as unknown:
        live(server, subscribe="nope").initialOffset()
    shown = str(unknown.value).rpartition("are: ")[2].split(", ")
    assert {"T", "New"} <= set(shown)
    assert broker_and_cluster.isdisjoint(shown)
    text = r"option sql = 'a > 1': the broker broker-a: .*enablePropertyFilter=false"
    with pytest.raises(OptionError, match=text):
        live(server, sql="a > 1").initialOffset()
    batch = RocketMQDataSource({"namesrv": server.namesrv, "subscribe": "T", "sql": "a > 1"})
    with pytest.raises(OptionError, match=text):
        batch.reader(SCHEMA).partitions()
