"""The data source as Spark's workers call it, without Spark."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.errors import StoreCorrupt
from pocketmq.store.scan.errors import NoStore, NotVisible, RecordsLost
from pocketmq.store.scan.planning.partitioning import SPLIT_BYTES, WORTH_A_CORE
from pocketmq.store.scan.queues.segments import MappedSegment, Mappings
from pocketmq.store.scan.records.columns import ALL_COLUMNS, COLUMNS
from tests.store.made_store import NOW, MadeStore, comparable, damage, golden_rows, rows_of, write

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    InputPartition,
)
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pocketmq.spark.batch_reader import PushdownReader
from pocketmq.spark.options.options import OptionError, Options, Use
from pocketmq.spark.schema import SchemaError, arrow_schema
from pocketmq.spark.source import RocketMQDataSource
from pocketmq.spark.store_plans import limits_per_store

BODY = StructType([StructField("queueOffset", LongType()), StructField("body", BinaryType())])


def schema_of(source: RocketMQDataSource) -> StructType:
    """What Spark makes of the schema's text (which takes a session to parse)."""
    types = {"string": "string", "int": "integer", "bigint": "long"}
    fields = []
    for part in str(source.schema()).split(", "):
        name, kind = part.split(" ")
        if kind == "map<string,string>":
            json: Any = MapType(StringType(), StringType()).jsonValue()
        elif kind == "array<string>":
            json = {"type": "array", "elementType": "string", "containsNull": True}
        else:
            json = types.get(kind, kind)
        fields.append({"name": name, "type": json, "nullable": True, "metadata": {}})
    return StructType.fromJson({"type": "struct", "fields": fields})


def rows(reader: DataSourceReader) -> list[dict[str, Any]]:
    """All rows, each partition read by a reader that came over the wire."""
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    remote = pickle.loads(pickle.dumps(reader))
    return [row for partition in partitions for row in rows_of(remote.read(partition))]


def source(path: Path | str, **options: str) -> RocketMQDataSource:
    return RocketMQDataSource({"path": str(path), **options})


def test_the_schema_is_that_of_the_scan(golden_clean: Path) -> None:
    for options, columns in (({}, COLUMNS), ({"includeMetadata": "true"}, ALL_COLUMNS)):
        schema = schema_of(source(golden_clean, **options))
        arrow = arrow_schema(schema)
        assert dict(zip(arrow.names, arrow.types, strict=True)) == columns


def test_golden_stores_in_many_partitions(golden_clean: Path, golden_killed: Path) -> None:
    for name, root in (("clean", golden_clean), ("killed", golden_killed)):
        options = {"includeSystemTopics": "true", "includeMetadata": "true", "minPartitions": "7"}
        asked = source(root, **options)
        reader = asked.reader(schema_of(asked))
        assert len(reader.partitions()) >= 7
        found = [comparable(row) for row in rows(reader)]
        assert len(found) == len(golden_rows(name))
        assert {row["physicalOffset"]: row for row in found} == golden_rows(name)


def test_two_stores_read_as_one(golden_clean: Path, golden_killed: Path) -> None:
    reader = source(f"{golden_clean},{golden_killed}", minPartitions="4").reader(BODY)
    partitions = reader.partitions()
    assert len(partitions) >= 4
    assert len(rows(reader)) == 377 + 730


def two_brokers(tmp_path: Path) -> Path:
    """Two stores that have the same queues, as a load of `*`; without files that name a broker."""
    for broker in ("a", "b"):
        store = MadeStore(tmp_path / broker)
        for number in range(5):
            store.put(queue_id=number % 2, body=f"{broker}{number}".encode())
        store.write()
    return tmp_path / "*"


def bodies_of(reader: DataSourceReader) -> set[bytes]:
    found = [bytes(row["body"]) for row in rows(reader)]
    assert len(set(found)) == len(found)
    return set(found)


def test_rows_tell_the_broker(tmp_path: Path) -> None:
    asked = source(two_brokers(tmp_path))
    found = rows(asked.reader(schema_of(asked)))
    assert len(found) == 10
    assert all(row["body"].decode()[0] == row["brokerName"] for row in found)


def test_offsets_and_queues_of_each_broker(tmp_path: Path) -> None:
    root = two_brokers(tmp_path)
    offsets = '{"T":{"a":{"0":2},"b":{"0":1,"1":2}}}'
    found = bodies_of(source(root, startingOffsets=offsets).reader(BODY))
    assert found == {b"a4", b"a1", b"a3", b"b2", b"b4"}
    offsets = '{"T":{"a":{"0":1}}}'
    found = bodies_of(source(root, endingOffsets=offsets, assign='{"T":{"a":[0]}}').reader(BODY))
    assert found == {b"a0"}
    assert bodies_of(source(root, assign='{"T":{"a":[0],"b":[1]}}').reader(BODY)) == {
        b"a0", b"a2", b"a4", b"b1", b"b3",
    }  # fmt: skip


def test_conditions_on_the_broker_are_pushed(tmp_path: Path) -> None:
    asked = source(two_brokers(tmp_path))
    reader = PushdownReader(Options.parse(asked.options), BODY)
    assert list(reader.pushFilters([EqualTo(("brokerName",), "b")])) == []
    assert bodies_of(reader) == {b"b0", b"b1", b"b2", b"b3", b"b4"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assign": '{"T":{"c":[0]}}'}, "'c': no store of this broker is read; .*: a, b"),
        ({"startingOffsets": '{"T":{"c":{"0":0}}}'}, "'c': no store of this broker"),
        ({"assign": '{"T":{"a":[2]}}'}, "'T/a/2': there is no such queue"),
        (
            {"assign": '{"T":{"a":[0]}}', "endingOffsets": '{"T":{"b":{"0":1}}}'},
            "'T/b/0': the queue is not read",
        ),
    ],
)
def test_brokers_that_are_not_there(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source(two_brokers(tmp_path), **options).reader(BODY).partitions()


def test_columns_may_be_fewer_and_not_nullable(golden_killed: Path) -> None:
    schema = StructType(
        [StructField("tags", StringType()), StructField("storeTimestamp", TimestampType(), False)]
    )
    reader = source(golden_killed).reader(schema)
    (partition,) = reader.partitions()
    batch = next(iter(reader.read(partition)))
    assert batch.schema == arrow_schema(schema)
    assert not batch.schema.field("storeTimestamp").nullable


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([StructField("value", BinaryType())], "there is no column value; known: topic, queueId"),
        ([StructField("body", StringType())], "column body is binary, not string"),
        ([], "no column"),
    ],
)
def test_schemas_that_do_not_fit(
    golden_killed: Path, fields: list[StructField], message: str
) -> None:
    with pytest.raises(SchemaError, match=message):
        source(golden_killed).reader(StructType(fields))


def test_mistakes_show_at_load(tmp_path: Path, golden_clean: Path) -> None:
    with pytest.raises(NoStore, match="no store at"):
        source(tmp_path).schema()
    with pytest.raises(OptionError):
        source(golden_clean, subscribed="x").schema()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"subscribe": "Golden_plain,nothing"},
            "'nothing': no such topic; the topics are: .*Golden_big",
        ),
        ({"assign": '{"nothing":[0]}'}, "'nothing': no such topic"),
        ({"assign": '{"Golden_plain":[0,4]}'}, "'Golden_plain/4': there is no such queue"),
        ({"assign": '{"Golden_plain":[-1]}'}, "'Golden_plain/-1': there is no such queue"),
        ({"startingOffsets": '{"Golden_plain":{"9":0}}'}, "'Golden_plain/9': there is no such"),
        (
            {"subscribe": "Golden_big", "endingOffsets": '{"Golden_plain":{"0":1}}'},
            "'Golden_plain/0': the queue is not read",
        ),
    ],
)
def test_names_that_do_not_exist(golden_clean: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source(golden_clean, **options).reader(BODY).partitions()


def test_topics_of_the_broker_are_not_offered_for_one_that_does_not_exist(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    store.put("orders")
    store.put("%DLQ%billing")
    write(
        tmp_path / "config" / "topics.json",
        b'{"topicConfigTable":{"empty":{},"TBW102":{},"b":{},"rmq_sys_SYNC_BROKER_MEMBER_b":{}}}',
    )
    reader = source(store.write(), subscribe="ordres").reader(BODY)
    with pytest.raises(OptionError, match=r"the topics are: empty, orders$"):
        reader.partitions()


def test_a_topic_without_messages_is_empty(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    store.put()
    write(tmp_path / "config" / "topics.json", b'{"topicConfigTable":{"Empty":{}}}')
    reader = source(store.write(), subscribe="Empty").reader(BODY)
    assert reader.partitions() == []
    # Spark makes up a partition where there is none.
    assert list(reader.read(InputPartition(None))) == []


def test_queues_without_messages_may_be_named(tmp_path: Path) -> None:
    """They have no files; that they are there is written in topics.json."""
    store = MadeStore(tmp_path)
    for _ in range(3):
        store.put()
    topics = b'{"topicConfigTable":{"T":{"readQueueNums":2,"writeQueueNums":4},"odd":7}}'
    write(tmp_path / "config" / "topics.json", topics)
    root = store.write()
    offsets = '{"T":{"0":1,"1":0,"2":-2,"3":0}}'
    for options in ({"startingOffsets": offsets}, {"endingOffsets": '{"T":{"0":2,"3":0}}'}):
        assert len(rows(source(root, **options).reader(BODY))) == 2
    assert len(rows(source(root, assign='{"T":[0,3]}').reader(BODY))) == 3
    with pytest.raises(OptionError, match="'T/4': there is no such queue"):
        source(root, assign='{"T":[0,4]}').reader(BODY).partitions()
    with pytest.raises(RecordsLost, match="T/3: the records 0 to 8 are gone"):
        source(root, endingOffsets='{"T":{"3":9}}').reader(BODY).partitions()


def test_a_commit_log_elsewhere_by_a_link(tmp_path: Path) -> None:
    store = MadeStore(tmp_path / "store")
    for n in range(300):
        store.put(entry=n < 290)
    root = store.write(crashed=True)
    (root / "commitlog").rename(tmp_path / "elsewhere")
    with pytest.raises(NoStore, match="storePathCommitLog is elsewhere, make a link"):
        source(root).schema()
    (root / "commitlog").symlink_to(tmp_path / "elsewhere")
    assert source(root).schema()
    assert len(rows(source(root).reader(BODY))) == 300


def test_offsets_and_times(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    for _ in range(100):
        store.put(body=b"%d" % store.now)
    root = store.write()

    def offsets(**options: str) -> list[int]:
        return [row["queueOffset"] for row in rows(source(root, **options).reader(BODY))]

    assert offsets(startingOffsets='{"T":{"0":95}}') == list(range(95, 100))
    assert offsets(endingOffsets='{"T":{"0":3}}') == [0, 1, 2]
    times = {"startingTimestamp": str(store.now - 9), "endingTimestamp": str(store.now)}
    assert offsets(**times) == list(range(90, 99))
    assert offsets(maxRecordsPerPartition="7", minPartitions="3") == list(range(100))


def test_data_loss(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    places = [store.put(body=b"body") for _ in range(20)]
    root = store.write()
    damage(root / "commitlog" / f"{0:020d}", places[5] + 90)
    asked = source(root).reader(BODY)
    with pytest.raises(StoreCorrupt, match=f"00000 at byte {places[5]}: T/0 has its record 5"):
        rows(asked)
    lenient = source(root, failOnDataLoss="false").reader(BODY)
    assert [row["queueOffset"] for row in rows(lenient)] == [n for n in range(20) if n != 5]
    beyond = {"endingOffsets": '{"T":{"0":25}}'}
    with pytest.raises(RecordsLost, match="the records 20 to 24 are gone"):
        source(root, **beyond).reader(BODY).partitions()
    lenient = source(root, failOnDataLoss="false", **beyond).reader(BODY)
    assert len(rows(lenient)) == 19


def test_pushed_filters(golden_clean: Path) -> None:
    from pocketmq.spark.options.options import Options

    options = Options.parse({"path": str(golden_clean)})
    reader = PushdownReader(
        options, arrow_struct := StructType([*BODY, StructField("tags", StringType())])
    )
    tags = EqualTo(("tags",), "AaAa")
    rest = reader.pushFilters([EqualTo(("topic",), "Golden_tags"), EqualTo(("queueId",), 1), tags])
    assert list(rest) == [tags]
    found = rows(reader)
    assert {row["tags"] for row in found} == {"AaAa", "BBBB", "AaBB"}  # of one hash
    assert len(arrow_struct) == 3
    assert len(found) == 15


def test_filters_are_not_pushed_where_spark_does_not(golden_clean: Path) -> None:
    for value in ("oneQuery", "false", "auto"):
        reader = source(golden_clean, pushFilters=value).reader(BODY)
        assert type(reader).pushFilters is DataSourceReader.pushFilters


def test_files_that_go_while_partitions_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = MadeStore(tmp_path)
    for _ in range(400):
        made.put()
    root = made.write()
    first = min((root / "commitlog").iterdir())
    map_file = Mappings.bytes_of

    def bytes_of(self: Mappings, segment: MappedSegment) -> Any:
        if segment.path == first:
            first.unlink(missing_ok=True)
        return map_file(self, segment)

    monkeypatch.setattr(Mappings, "bytes_of", bytes_of)
    # To find the first record of that time, planning looks at the first there is.
    found = [
        row["queueOffset"] for row in rows(source(root, startingTimestamp=str(NOW)).reader(BODY))
    ]
    assert 0 < len(found) < 400
    assert found == list(range(400 - len(found), 400))


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_an_executor_that_does_not_see_the_store(tmp_path: Path, fail_on_data_loss: str) -> None:
    """It has lost nothing: no option makes up for a store that is not mounted."""
    made = MadeStore(tmp_path / "store")
    made.put()
    reader = source(made.write(), failOnDataLoss=fail_on_data_loss).reader(BODY)
    (partition,) = reader.partitions()
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    with pytest.raises(NotVisible, match=f"this executor does not see {tmp_path}/store"):
        list(reader.read(partition))


def test_streams_need_a_newer_spark(golden_clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(DataSourceStreamReader, "getDefaultReadLimit", raising=False)
    refused = source(golden_clean).streamReader(BODY)
    with pytest.raises(NotImplementedError, match=r"need pyspark 4\.2 or newer; this is 4\."):
        refused.initialOffset()


def test_reads_without_bodies_have_larger_partitions() -> None:
    options = Options.parse({"path": "/store"}, Use.BATCH, 3)
    size = 16 << 30

    def count(columns: list[str]) -> int:
        limits = limits_per_store(options, 1, columns)
        return limits.partitions(1 << 24, size, SPLIT_BYTES, WORTH_A_CORE)

    assert count(["queueOffset", "body"]) == 128
    assert count(["queueOffset", "tags"]) == count([]) == 8
    size = 1 << 30  # still one for each core
    assert count(["queueOffset"]) == 3


def test_the_only_column_that_can_be_null(tmp_path: Path) -> None:
    made = MadeStore(tmp_path)
    made.put()
    asked = source(made.write())
    tags = StructType([StructField("tags", StringType(), nullable=False)])
    with pytest.raises(SchemaError, match="column tags is null where a message has no tag"):
        asked.reader(tags)
    topic = StructType([StructField("topic", StringType(), nullable=False)])
    assert rows(asked.reader(topic)) == [{"topic": "T"}]
