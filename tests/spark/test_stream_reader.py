"""Streams as Spark's workers call them, without Spark."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.files import Files
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.scan.errors import NotVisible, QueueReplaced, RecordsLost, StoreRecovering
from tests.spark.stream_store import GrowingStore, offsets_alone
from tests.store.made_store import ENTRY, NOW, held_open, write

pytest.importorskip("pyspark")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need pyspark 4.2")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from pocketmq.spark.options.options import OptionError, Options, Use
from pocketmq.spark.source import RocketMQDataSource
from pocketmq.spark.streams.stream_queues import QueueEnds
from pocketmq.spark.streams.stream_reader import RocketMQStreamReader
from pocketmq.spark.streams.stream_stores import StreamStores
from pocketmq.store.scan.queues.queue_slice import FILLER_SIZE
from pocketmq.store.scan.stream_offsets import OffsetsError, StreamQueue

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("queueId", IntegerType()),
        StructField("queueOffset", LongType()),
        StructField("body", BinaryType()),
    ]
)
A = "broker-a"
Offsets = dict[str, Any]


def reader_of(*roots: Path, **options: str) -> RocketMQStreamReader:
    options = {"startingOffsets": "earliest", **options}
    source = RocketMQDataSource({"path": ",".join(map(str, roots)), **options})
    reader = source.streamReader(SCHEMA)
    assert isinstance(reader, RocketMQStreamReader), reader.initialOffset()
    return reader


def at(*queues: int, broker: str = A) -> Offsets:
    """Offsets of the queues 0, 1, ... of T."""
    return {"T": {broker: {str(number): offset for number, offset in enumerate(queues)}}}


def latest(reader: RocketMQStreamReader, start: Offsets) -> Offsets:
    return offsets_alone(reader.latestOffset(start, reader.getDefaultReadLimit()))


def read(reader: RocketMQStreamReader, start: Offsets, end: Offsets) -> list[tuple[str, int, int]]:
    found = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(pickle.loads(pickle.dumps(partition))):
            for row in batch.to_pylist():
                place = row["topic"], row["queueId"], row["queueOffset"]
                assert row["body"] == b"%s/%d/%d" % (place[0].encode(), *place[1:])
                found.append(place)
    return sorted(found)


def rows(queue_id: int, offsets: range, topic: str = "T") -> list[tuple[str, int, int]]:
    return [(topic, queue_id, offset) for offset in offsets]


def test_a_query_reads_what_is_there_and_then_what_comes(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path)
    store.add(5)
    store.add(3, queue_id=1)
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    assert offsets_alone(start) == at(0, 0)
    end = latest(reader, start)
    assert end == at(5, 3)
    assert read(reader, start, end) == rows(0, range(5)) + rows(1, range(3))
    assert latest(reader, end) == end
    store.add(2, queue_id=1)
    assert latest(reader, end) == at(5, 5)
    assert reader.reportLatestOffset() == at(5, 5)
    assert read(reader, end, at(5, 5)) == rows(1, range(3, 5))


def test_partitions_depend_only_on_the_offsets(tmp_path: Path) -> None:
    """After a restart Spark asks for the last batch again, from a reader that has seen nothing."""
    store = GrowingStore(tmp_path / "before")
    store.add(50)
    reader = reader_of(tmp_path / "before")
    assert read(reader, at(10), at(20)) == rows(0, range(10, 20))
    store.add(50, queue_id=1)
    shutil.move(tmp_path / "before", tmp_path / "after")
    again = reader_of(tmp_path / "after")
    assert read(again, at(10), at(20)) == rows(0, range(10, 20))


def test_where_a_new_query_begins(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path)
    store.add(5)
    store.add(5, queue_id=1)

    def begins(**options: str) -> Offsets:
        return offsets_alone(reader_of(tmp_path, **options).initialOffset())

    source = RocketMQDataSource({"path": str(tmp_path)})
    assert offsets_alone(source.streamReader(SCHEMA).initialOffset()) == at(5, 5)
    assert begins(startingOffsets="latest") == at(5, 5)
    assert begins(startingOffsets='{"T":{"0":3}}') == at(3, 0)
    assert begins(startingOffsets='{"T":{"0":-1,"1":-2}}') == at(5, 0)
    assert begins(startingOffsets='{"T":{"broker-a":{"1":2}}}') == at(0, 2)
    assert begins(startingTimestamp=str(NOW + 4)) == at(3, 0)
    assert begins(startingTimestamp=str(NOW + 8), startingOffsets="latest") == at(5, 2)
    assert begins(startingTimestamp=str(NOW + 1_000_000)) == at(5, 5)
    with pytest.raises(RecordsLost, match=rf"T/0: the records 5 to 8 are gone: broker {A} \("):
        begins(startingOffsets='{"T":{"0":9}}')
    assert begins(startingOffsets='{"T":{"0":9}}', failOnDataLoss="false") == at(5, 0)
    with pytest.raises(OptionError, match="'X': no such topic"):
        begins(subscribe="X")


def test_a_query_that_goes_on_does_not_look_at_where_it_began(tmp_path: Path) -> None:
    GrowingStore(tmp_path).add(5)
    reader = reader_of(tmp_path, startingTimestamp=str(NOW + 4))
    assert read(reader, at(0), latest(reader, at(0))) == rows(0, range(5))


def test_new_topics_and_queues_are_read_from_their_earliest(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path)
    store.add(5)
    reader = reader_of(tmp_path, subscribePattern="T.*", startingOffsets="latest")
    start = reader.initialOffset()
    store.add(3, queue_id=1)
    store.add(4, "T2")
    store.add(4, "other")
    joined = latest(reader, start)
    assert joined == {"T": {A: {"0": 5, "1": 0}}, "T2": {A: {"0": 0}}}
    assert read(reader, start, joined) == []
    end = latest(reader, joined)
    assert read(reader, joined, end) == rows(1, range(3)) + rows(0, range(4), "T2")


def test_brokers_go_by_their_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        GrowingStore(tmp_path / name, f"broker-{name}").add(5)
    both = reader_of(tmp_path / "a", tmp_path / "b", minPartitions="4")
    start = both.initialOffset()
    end = latest(both, start)
    assert end == {"T": {"broker-a": {"0": 5}, "broker-b": {"0": 5}}}
    assert len(both.partitions(start, end)) == 4
    assert read(both, start, end) == sorted(rows(0, range(5)) * 2)
    alone = reader_of(tmp_path / "a")
    with pytest.raises(OptionError, match="read from the broker broker-b, and none of the stores"):
        latest(alone, end)
    lenient = reader_of(tmp_path / "a", failOnDataLoss="false")
    assert latest(lenient, end) == end
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    both_paths = f"{tmp_path}/a,{tmp_path}/copy"
    twice = RocketMQDataSource({"path": both_paths}).streamReader(SCHEMA)
    with pytest.raises(OptionError, match=r"this is a store of the broker broker-a, like .*/a;"):
        twice.latestOffset(end, ReadAllAvailable())


def test_limits_of_a_trigger(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path)
    store.add(90)
    store.add(9, queue_id=1)
    reader = reader_of(tmp_path, maxOffsetsPerTrigger="11", maxRecordsPerPartition="4")
    assert reader.getDefaultReadLimit() == ReadMaxRows(11)
    position, found = reader.initialOffset(), []
    while (end := latest(reader, position)) != position:
        assert len(reader.partitions(position, end)) >= 3
        found += read(reader, position, end)
        assert len(found) % 11 == 0
        position = end
    assert sorted(found) == rows(0, range(90)) + rows(1, range(9))
    assert latest(reader, at(0, 0)) == at(10, 1)  # as 90 to 9
    assert reader.reportLatestOffset() == at(90, 9)
    # Trigger.Once reads everything in spite of the limit.
    assert offsets_alone(reader.latestOffset(at(0, 0), ReadAllAvailable())) == at(90, 9)


def test_a_trigger_waits_for_enough_offsets(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path)
    store.add(5)
    reader = reader_of(tmp_path, minOffsetsPerTrigger="10")
    assert reader.getDefaultReadLimit() == ReadMinRows(10)
    assert latest(reader, at(0)) == at(5)
    store.add(6)
    assert latest(reader, at(5)) == at(5)
    store.add(4, "T2")
    assert latest(reader, at(5)) == {"T": {A: {"0": 11}}, "T2": {A: {"0": 0}}}
    reader.prepareForTriggerAvailableNow()
    assert latest(reader, at(11) | {"T2": {A: {"0": 0}}}) == at(11) | {"T2": {A: {"0": 4}}}


def test_available_now_ends_where_the_stores_ended_at_the_start(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path)
    store.add(10)
    reader = reader_of(tmp_path, maxOffsetsPerTrigger="4")
    reader.prepareForTriggerAvailableNow()
    position, ends = reader.initialOffset(), []
    while (end := latest(reader, position)) != position:
        store.add(5)
        store.add(5, "new")
        ends.append(end)
        position = end
    assert ends == [at(4), at(8), at(10)]


def test_available_now_reads_queues_that_came_since_the_last_run(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path)
    store.add(10)
    store.add(3, queue_id=1)
    reader = reader_of(tmp_path)
    reader.prepareForTriggerAvailableNow()
    assert [latest(reader, at(10)), latest(reader, at(10, 0)), latest(reader, at(10, 3))] == [
        at(10, 0),
        at(10, 3),
        at(10, 3),
    ]


def test_expired_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = GrowingStore(tmp_path)
    store.add(300)
    strict = reader_of(tmp_path)
    assert offsets_alone(strict.initialOffset()) == at(0)
    store.expire_first_file()
    with pytest.raises(
        RecordsLost,
        match=rf"T/0: the records 7 to \d+ are gone: broker {A} \({tmp_path}\): the queue begins",
    ) as lost:
        strict.partitions(at(7), latest(strict, at(7)))
    first = lost.value.last + 1
    lenient = reader_of(tmp_path, failOnDataLoss="false")
    end = latest(lenient, at(7))
    assert read(lenient, at(7), end) == rows(0, range(first, 300))
    assert f"left out {first - 7} offsets: T/0: the records 7 to {first - 1}" in caplog.text


@pytest.mark.parametrize("how", ["cut", "replaced"])
def test_offsets_that_go_backwards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    root = tmp_path / "store"
    GrowingStore(root).add(40)
    strict, lenient = reader_of(root), reader_of(root, failOnDataLoss="false")
    assert latest(strict, at(40)) == latest(lenient, at(40)) == at(40)
    shutil.rmtree(root)
    store = GrowingStore(root)
    store.add(30 if how == "cut" else 2)
    ends = 30 if how == "cut" else 2
    with pytest.raises(
        RecordsLost,
        match=rf"T/0: the records {ends} to 39 are gone: broker {A} \({root}\): the queue ends at "
        rf"{ends}, but the stream has read up to 40; .* Set failOnDataLoss to false",
    ):
        latest(strict, at(40))
    assert latest(lenient, at(40)) == at(ends)
    assert f"left out {40 - ends} offsets" in caplog.text
    assert lenient.partitions(at(40), at(ends)) == []
    store.add(3)
    end = latest(lenient, at(ends))
    assert read(lenient, at(ends), end) == rows(0, range(ends, ends + 3))
    # The batch that was not finished when the messages were lost.
    with pytest.raises(RecordsLost, match=f"the records {ends + 3} to 39 are gone"):
        strict.partitions(at(1), at(40))
    assert read(lenient, at(1), at(40)) == rows(0, range(1, ends + 3))


def test_a_queue_that_is_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = GrowingStore(tmp_path)
    store.add(10)
    store.add(10, "gone")
    both: Offsets = at(10) | {"gone": {A: {"0": 4}}}
    strict, unread = reader_of(tmp_path), reader_of(tmp_path)
    lenient = reader_of(tmp_path, failOnDataLoss="false")
    for reader in (unread, lenient):
        assert latest(reader, both) == at(10) | {"gone": {A: {"0": 10}}}
    shutil.rmtree(tmp_path / "consumequeue" / "gone")
    with held_open(tmp_path):
        # Nothing is known to be unread: it may have expired.
        assert latest(strict, both) == both
        end = latest(unread, both)
        with pytest.raises(RecordsLost, match=r"gone/0: the records 4 to 9 .* no such queue any"):
            unread.partitions(both, end)
        assert read(lenient, both, latest(lenient, both)) == []
        assert "left out 6 offsets: gone/0" in caplog.text


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_an_executor_that_does_not_see_the_store(tmp_path: Path, fail_on_data_loss: str) -> None:
    store = GrowingStore(tmp_path / "store")
    store.add(5)
    reader = reader_of(store.root, failOnDataLoss=fail_on_data_loss)
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, latest(reader, start))
    store.root.rename(tmp_path / "elsewhere")
    with pytest.raises(NotVisible, match=f"this executor does not see {store.root}"):
        list(reader.read(partition))


def save_checkpoint(root: Path, flushed: int, timestamp: int) -> None:
    """As our broker writes it after a flush."""
    checkpoint = Checkpoint(Files(), root / "checkpoint")
    checkpoint.open()
    checkpoint.confirm_physical_offset = flushed
    checkpoint.physic_timestamp = timestamp
    checkpoint.save()
    checkpoint.close()


def test_only_what_is_flushed_is_read_of_an_open_store(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path)
    store.add(5)
    flushed, timestamp = len(store.log), store.now
    store.add(3)
    store.add(2, queue_id=1)
    reader, hasty = reader_of(tmp_path), reader_of(tmp_path, readUnflushed="true")
    with held_open(tmp_path):
        # Without a checkpoint nothing is known to be flushed.
        assert latest(reader, at(0, 0)) == at(0, 0)
        save_checkpoint(tmp_path, flushed, timestamp)
        assert latest(reader, at(0, 0)) == at(5, 0)
        assert latest(hasty, at(0, 0)) == at(8, 2)
        assert offsets_alone(reader_of(tmp_path, startingOffsets="latest").initialOffset()) == at(
            5, 0
        )
        # What has been read stays read, although it is not known to be flushed.
        assert latest(reader, at(7, 1)) == at(7, 1)
        save_checkpoint(tmp_path, len(store.log), store.now)
        assert latest(reader, at(7, 1)) == at(8, 2)
        # An official broker writes the times only.
        times = b"".join(value.to_bytes(8, "big") for value in (timestamp + 1, 0, 0, 0, 0))
        write(tmp_path / "checkpoint", times.ljust(4096, b"\0"))
        assert latest(reader, at(0, 0)) == at(6, 0)
    (tmp_path / "checkpoint").unlink()
    write(tmp_path / "abort", b"1")
    assert latest(reader, at(0, 0)) == at(8, 2)  # no broker has it open


def test_a_broker_that_recovers_is_waited_for(tmp_path: Path) -> None:
    """After a crash a broker builds the ends of its queues again."""
    store = GrowingStore(tmp_path)
    store.add(10)
    with held_open(tmp_path):
        save_checkpoint(tmp_path, len(store.log), store.now)
        write(tmp_path / "abort", b"1")  # of the process that crashed
        entries = store.entries["T", 0]
        whole = bytes(entries)
        del entries[4 * 20 :]
        store.write()
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 3:
                entries[:] = whole
                store.write()

        options = Options.parse({"path": str(tmp_path)}, Use.STREAM)
        reader = RocketMQStreamReader(options, SCHEMA, lambda: sum(slept), sleep)
        assert latest(reader, at(10)) == at(10)
        assert len(slept) == 3
        del entries[4 * 20 :]
        store.write()
        with pytest.raises(StoreRecovering, match=f"broker {A} .*: the broker was killed, and has"):
            latest(reader, at(10))
        assert sum(slept) > 60


def test_a_checkpoint_of_another_source(tmp_path: Path) -> None:
    GrowingStore(tmp_path).add(1)
    with pytest.raises(OffsetsError, match="Does the checkpoint belong to another source"):
        latest(reader_of(tmp_path), {"offset": 3})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets = 'latest': a stream does not have"),
        ({"endingTimestamp": "7"}, "option endingTimestamp = '7': a stream does not have"),
        ({"pushFilters": "oneQuery"}, "option pushFilters = 'oneQuery': a stream does not have"),
        ({"maxTriggerDelay": "soon"}, "need a time such as 500ms"),
        ({"maxOffsetsPerTrigger": "0"}, "need a number above 0"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "need at most maxOffsetsPerTrigger, which is 8",
        ),
    ],
)
def test_options_that_cannot_be_meant(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    GrowingStore(tmp_path).add(1)
    refused = RocketMQDataSource({"path": str(tmp_path), **options}).streamReader(SCHEMA)
    for call in (
        refused.initialOffset,
        lambda: refused.latestOffset(at(0), ReadAllAvailable()),
        lambda: refused.partitions(at(0), at(1)),
    ):
        with pytest.raises(OptionError, match=message):
            call()


def marked(reader: RocketMQStreamReader, start: Offsets) -> Offsets:
    """The next end with the marks that tell whether queues are still the same."""
    return reader.latestOffset(start, reader.getDefaultReadLimit())


@pytest.mark.parametrize("new", [3, 10, 25])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_that_is_created_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, new: int, restarted: bool
) -> None:
    store = GrowingStore(tmp_path)
    store.add(10)
    strict, lenient = reader_of(tmp_path), reader_of(tmp_path, failOnDataLoss="false")
    position = marked(strict, at(0))
    assert marked(lenient, at(0)) == position
    if restarted:
        strict, lenient = reader_of(tmp_path), reader_of(tmp_path, failOnDataLoss="false")
    store.delete()
    store.add(new)
    if new == 10 and not restarted:  # a queue that seems idle is not compared
        assert marked(strict, position) == position
        store.add(1)
        new += 1
    with pytest.raises(
        QueueReplaced,
        match=rf"T/0 was read up to offset 10, and is .*: broker {A} \({tmp_path}\): expected the "
        r"message 9 at the physical offset \d+, .*, but .* Begin with a new checkpoint, or set f",
    ):
        marked(strict, position)
    begun = marked(lenient, position)
    assert offsets_alone(begun) == at(0)
    assert "stream continues with newer messages" in caplog.text
    assert read(lenient, position, begun) == []
    assert read(lenient, begun, marked(lenient, begun)) == rows(0, range(new))


def test_a_batch_of_a_topic_that_is_created_again(tmp_path: Path) -> None:
    """After a restart Spark asks for the last batch again."""
    store = GrowingStore(tmp_path)
    store.add(10)
    start = marked(reader_of(tmp_path), at(0))
    store.add(10)
    end = marked(reader_of(tmp_path), start)
    assert read(reader_of(tmp_path), start, end) == rows(0, range(10, 20))
    store.delete()
    store.add(30)
    for begin in (start, at(10)):
        with pytest.raises(QueueReplaced, match="T/0 was read up to offset"):
            reader_of(tmp_path).partitions(begin, end)
        assert reader_of(tmp_path, failOnDataLoss="false").partitions(begin, end) == []


def test_a_topic_that_is_created_again_and_damaged(tmp_path: Path) -> None:
    """The message with which the queue would be compared is lost."""
    store = GrowingStore(tmp_path)
    store.add(3)
    start = marked(reader_of(tmp_path), at(0))
    store.delete()
    store.add(5)
    store.entries["T", 0][2 * ENTRY.size : 3 * ENTRY.size] = ENTRY.pack(0, FILLER_SIZE, 0)
    store.write()
    with pytest.raises(QueueReplaced, match=r"T/0 was read up to offset 3, .* the queue begins at"):
        marked(reader_of(tmp_path), start)


def test_a_batch_whose_last_messages_were_lost_has_the_others(tmp_path: Path) -> None:
    """After a power failure, their offsets are given to others, and Spark asks for the batch
    again."""
    root = tmp_path / "store"
    store = GrowingStore(root)
    store.add(10)
    start = reader_of(root).initialOffset()
    end = marked(reader_of(root), start)
    shutil.rmtree(root)
    store = GrowingStore(root)
    store.add(6)
    store.now += 60_000
    store.add(20)
    with pytest.raises(QueueReplaced, match="T/0 was read up to offset 10"):
        reader_of(root).partitions(start, end)
    lenient = reader_of(root, failOnDataLoss="false")
    assert read(lenient, start, end) == rows(0, range(6))
    begun = marked(lenient, end)
    assert read(lenient, begun, marked(lenient, begun)) == rows(0, range(6, 26))


def test_a_topic_that_is_deleted(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path)
    store.add(10)
    store.add(10, "T2")
    start = marked(reader_of(tmp_path), at(0) | {"T2": {A: {"0": 0}}})
    store.delete("T2")
    with held_open(tmp_path):
        save_checkpoint(tmp_path, len(store.log), store.now)
        with pytest.raises(QueueReplaced, match=r"T2/0 .* but there is no such queue"):
            marked(reader_of(tmp_path), start)
        lenient = reader_of(tmp_path, failOnDataLoss="false")
        left = marked(lenient, start)
        assert offsets_alone(left) == at(10)
        store.add(3, "T2")
        save_checkpoint(tmp_path, len(store.log), store.now)
        joined = marked(lenient, left)
        assert offsets_alone(joined) == at(10) | {"T2": {A: {"0": 0}}}
        assert read(lenient, joined, marked(lenient, joined)) == rows(0, range(3), "T2")


def test_a_queue_whose_messages_have_expired_is_the_same(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path)
    store.add(3)
    start = marked(reader_of(tmp_path, subscribe="T"), at(0))
    store.add(300, "other")
    store.add(5)
    store.expire_first_file()
    reader = reader_of(tmp_path, subscribe="T")
    assert read(reader, start, marked(reader, start)) == rows(0, range(3, 8))


def test_a_new_queue_whose_first_messages_have_expired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = GrowingStore(tmp_path)
    store.add(3)
    start = marked(reader_of(tmp_path), at(0))
    store.add(300, queue_id=1)
    store.add(3)
    late = marked(reader_of(tmp_path), at(0))
    store.expire_first_file()
    with pytest.raises(
        RecordsLost,
        match=r"T/1: the records 0 to \d+ are gone: .*: the queue is new to the stream, and begins "
        r"at \d+. Set failOnDataLoss to false to go on without them",
    ) as lost:
        marked(reader_of(tmp_path), start)
    first = lost.value.last + 1
    lenient = reader_of(tmp_path, failOnDataLoss="false")
    joined = marked(lenient, start)
    assert offsets_alone(joined) == at(6, first)
    assert f"left out {first} offsets: T/1" in caplog.text
    assert read(lenient, start, joined) == rows(0, range(3, 6))
    assert read(lenient, joined, marked(lenient, joined)) == rows(1, range(first, 300))

    # Where the log has all that came since a stream looked last, it has lost nothing.
    seen = {"T": {A: {"0": late["T"][A]["0"]}}}
    assert offsets_alone(marked(reader_of(tmp_path), seen)) == at(6, first)


def test_where_the_logs_of_new_queues_begin_behind_their_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files say it of queues whose first record they have, and brokers of the others."""
    from pocketmq.spark.streams import stream_hybrid

    store = GrowingStore(tmp_path)
    store.add(300)
    store.add(300, queue_id=1)
    store.expire_first_file()
    in_files, at_broker, unknown = (StreamQueue("T", A, number) for number in range(3))
    options = Options.parse({"path": str(tmp_path), "namesrv": "127.0.0.1:9"}, Use.STREAM)
    held = StreamStores(options).look()
    assert held[in_files].first > 1
    questions = []

    class Brokers:
        brokers = frozenset({A})

        def __init__(self, *options: object) -> None: ...

        def look(self, expected: object) -> dict[StreamQueue, QueueEnds]:
            return {
                in_files: held[in_files]._replace(first=held[in_files].first + 1),
                at_broker: held[at_broker]._replace(first=held[at_broker].first - 1),
                unknown: QueueEnds(7, 9, 9),
            }

        def log_begins(self, queues: list[StreamQueue]) -> dict[StreamQueue, int | None]:
            questions.append(sorted(queues))
            return {at_broker: 5, unknown: None}

    monkeypatch.setattr(stream_hybrid, "StreamBrokers", Brokers)
    assert options.live is not None
    both = stream_hybrid.StreamHybrid(options, options.live)
    found = both.log_begins(both.look())
    begin = int(min((tmp_path / "commitlog").iterdir()).name)
    assert found == {in_files: begin, at_broker: 5, unknown: None}
    assert begin > 5
    assert questions == [[at_broker, unknown]]


def test_a_queue_that_is_there_when_a_new_query_begins_may_have_lost_messages(
    tmp_path: Path,
) -> None:
    store = GrowingStore(tmp_path)
    store.add(300)
    store.expire_first_file()
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    first = offsets_alone(start)["T"][A]["0"]
    assert read(reader, start, marked(reader, start)) == rows(0, range(first, 300))


@pytest.mark.parametrize("new", [3, 5, 9])
def test_a_topic_that_is_created_again_when_all_its_messages_had_expired(
    tmp_path: Path, new: int
) -> None:
    store = GrowingStore(tmp_path)
    store.add(5)
    store.add(300, queue_id=1)
    store.expire_first_file()
    start = reader_of(tmp_path).initialOffset()
    assert offsets_alone(start)["T"][A]["0"] == 5
    store.delete()
    store.add(new)
    with pytest.raises(QueueReplaced, match="it began at 5, and now it begins at 0"):
        marked(reader_of(tmp_path), start)
    lenient = reader_of(tmp_path, failOnDataLoss="false")
    begun = marked(lenient, start)
    assert read(lenient, begun, marked(lenient, begun)) == rows(0, range(new))


def test_a_queue_that_lost_its_end_and_grew_again(tmp_path: Path) -> None:
    """Messages that were read before they were flushed may be lost in a power failure, and their
    offsets given to others."""
    root = tmp_path / "store"
    store = GrowingStore(root)
    store.add(10)
    start = marked(reader_of(root), at(0))
    shutil.rmtree(root)
    store = GrowingStore(root)
    store.add(6)
    store.now += 60_000
    store.add(20)
    with pytest.raises(QueueReplaced, match="T/0 was read up to offset 10"):
        marked(reader_of(root), start)
    lenient = reader_of(root, failOnDataLoss="false")
    begun = marked(lenient, start)
    assert offsets_alone(begun) == at(6)
    assert read(lenient, begun, marked(lenient, begun)) == rows(0, range(6, 26))
