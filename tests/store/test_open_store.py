"""Reading a store from Python, without Java and without a broker."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from pocketmq.archive.open_store import open_store
from pocketmq.client.admin import Admin
from pocketmq.client.producer.producer import Producer
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.message import Message
from pocketmq.store.errors import StoreClosed, StoreCorrupt
from tests.store.conftest import StoreBench
from tests.store.made_store import (
    NOW,
    MadeStore,
    comparable,
    damage,
    golden_rows,
    unpack_golden,
    write,
)

pa = pytest.importorskip("pyarrow", reason="pip install 'pocketmq[arrow]'")

from pocketmq.store.scan.errors import NoStore, NoTopic, RecordsLost  # noqa: E402
from pocketmq.store.scan.records.topic_table import configured_queues  # noqa: E402

PROJECT = Path(__file__).parents[2]
SMALL_FILE = {"mappedFileSizeCommitLog": str(1 << 20)}


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A store with 100 orders in two queues, a message to be retried, and a topic without any."""
    store = MadeStore(tmp_path / "store")
    for number in range(100):
        # "AaBB" and "BBBB" have one hash.
        tag = ("AaBB", "BBBB", "paid", "")[number % 4]
        properties = {"KEYS": f"key{number} all"} | ({"TAGS": tag} if tag else {})
        store.put("orders", number % 2, b"%d" % number, properties)
    store.put("%RETRY%group", body=b"again")
    topics = b'{"topicConfigTable":{"orders":{"readQueueNums":2},"empty":{"readQueueNums":1}}}'
    write(tmp_path / "store" / "config" / "topics.json", topics)
    return store.write()


def bodies(table: Any) -> list[int]:
    return sorted(int(body) for body in table.column("body").to_pylist())


def test_every_column_of_an_official_store(tmp_path: Path) -> None:
    root = unpack_golden("clean", tmp_path)
    expected = golden_rows("clean")
    with open_store(root) as store:
        columns = next(iter(expected.values())).keys()
        rows = store.to_arrow(columns=columns, include_system_topics=True).to_pylist()
        assert store.to_arrow().schema.names == list(columns)[:14]
    assert {row["physicalOffset"]: comparable(row) for row in rows} == expected


def test_topics(orders: Path) -> None:
    with open_store(str(orders)) as store:
        assert store.topics == ["empty", "orders"]
        assert store.directory == orders
        assert store.to_arrow().num_rows == 100
        assert store.to_arrow(include_system_topics=True).num_rows == 101
        assert store.to_arrow("%RETRY%group").num_rows == 1
        assert store.to_arrow(["orders", "%RETRY%group"]).num_rows == 101
        assert store.to_arrow("empty").num_rows == 0
        assert store.to_arrow("empty", columns=["tags"]).schema.names == ["tags"]


def test_topics_of_the_broker_itself_are_not_listed(tmp_path: Path) -> None:
    """Not even those that bear its name and that of its cluster."""
    root = unpack_golden("killed", tmp_path)
    assert {"golden", "DefaultCluster", "Flood"} <= configured_queues(root).keys()
    with open_store(root) as store:
        assert store.topics == ["Flood"]


def test_columns_come_in_the_order_that_is_asked_for(orders: Path) -> None:
    with open_store(orders) as store:
        table = store.to_arrow(columns=["storeSize", "tags", "body"])
    assert table.schema.names == ["storeSize", "tags", "body"]
    assert bodies(table) == list(range(100))


def test_tags_are_compared_not_only_their_hashes(orders: Path) -> None:
    with open_store(orders) as store:
        assert bodies(store.to_arrow(tags="AaBB", columns=["body"])) == list(range(0, 100, 4))
        both = store.to_arrow(tags=["AaBB", "paid"])
        assert set(both.column("tags").to_pylist()) == {"AaBB", "paid"}
        assert both.num_rows == 50
        assert store.to_arrow(tags="unknown").num_rows == 0


def test_times_of_storing(orders: Path) -> None:
    # Message n was stored at NOW + 1 + n ms.
    with open_store(orders) as store:
        table = store.to_arrow("orders", start_time=NOW + 11, end_time=NOW + 21)
        assert bodies(table) == list(range(10, 20))
        start = datetime.fromtimestamp((NOW + 91) / 1000, UTC)
        assert bodies(store.to_arrow("orders", start_time=start)) == list(range(90, 100))
        later = start.replace(microsecond=start.microsecond + 1)
        assert bodies(store.to_arrow("orders", start_time=later)) == list(range(91, 100))


def test_a_time_without_a_zone_is_local(orders: Path, in_shanghai: None) -> None:
    start = datetime.fromtimestamp((NOW + 91) / 1000, timezone(timedelta(hours=8)))
    with open_store(orders) as store:
        table = store.to_arrow("orders", start_time=start.replace(tzinfo=None))
    assert bodies(table) == list(range(90, 100))


def test_offsets(orders: Path) -> None:
    with open_store(orders) as store:
        table = store.to_arrow(
            "orders",
            start_offsets={"orders": {0: 48, 1: -1}},
            end_offsets={"orders": {0: 50}},
        )
        assert bodies(table) == [96, 98]
        with pytest.raises(RecordsLost, match="orders/1: the records 50 to 59 are gone"):
            store.to_arrow("orders", start_offsets={"orders": {1: 60}})


def test_batches_are_read_as_they_are_asked_for(orders: Path) -> None:
    with open_store(orders) as store:
        reader = store.batches("orders", columns=["body"])
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema.names == ["body"]
    assert sum(batch.num_rows for batch in reader) == 100


def test_batches_stay_small(tmp_path: Path) -> None:
    made = MadeStore(tmp_path, segment_size=1 << 20)
    for _ in range(400):
        made.put(body=bytes(50_000))
    with open_store(made.write(entries_per_file=500)) as store:
        sizes = [batch.nbytes for batch in store.batches()]
    assert sum(sizes) > 400 * 50_000
    assert max(sizes) < 8 << 20


def test_a_corrupt_record(tmp_path: Path) -> None:
    made = MadeStore(tmp_path)
    places = [made.put(body=b"body") for _ in range(20)]
    root = made.write()
    damage(root / "commitlog" / f"{0:020d}", places[7] + 90)
    with open_store(root) as store:
        with pytest.raises(StoreCorrupt, match=f"at byte {places[7]}: T/0 has its record 7"):
            store.to_arrow()
        with pytest.raises(StoreCorrupt, match="T/0 has its record 7"):
            list(store.batches())
        assert store.to_arrow(fail_on_data_loss=False).num_rows == 19


async def test_while_a_broker_writes(bench: StoreBench) -> None:
    writing = bench.open()
    writing.start()
    bench.put(writing, "orders", body=b"0")
    writing.settle()
    with open_store(bench.root) as store:
        begun = store.batches("orders", columns=["body"])
        for number in range(1, 60):  # goes on in new files
            bench.put(writing, "orders", body=b"%d" % number + bytes(900))
        writing.settle()
        assert [batch.num_rows for batch in begun] == [1], "a read sees what was stored before it"
        assert store.to_arrow("orders").num_rows == 60, "and the next one the rest"
    await writing.close()


def test_pandas(orders: Path) -> None:
    pytest.importorskip("pandas", reason="pip install pandas")
    with open_store(orders) as store:
        frame = store.to_pandas("orders", tags="paid")
    assert len(frame) == 25
    assert frame.iloc[0]["properties"] == {"KEYS": "key2 all", "TAGS": "paid"}
    assert list(frame.iloc[0]["keys"]) == ["key2", "all"]
    assert frame.groupby("queueId").size().to_dict() == {0: 25}


def test_polars(orders: Path) -> None:
    pytest.importorskip("polars", reason="pip install polars")
    with open_store(orders) as store:
        frame = store.to_polars("orders", tags="paid")
    assert frame.shape == (25, 14)
    assert frame["body"][0] == b"2"
    assert frame["keys"][0].to_list() == ["key2", "all"]
    assert "properties" in frame.columns  # versions of polars differ in how they show a map


def test_no_store(orders: Path, tmp_path: Path) -> None:
    with pytest.raises(NoStore, match=r"no store at .*/nowhere: there is no such directory"):
        open_store(tmp_path / "nowhere")
    with pytest.raises(NoStore, match="no directory named commitlog; it has store"):
        open_store(tmp_path)
    file = orders / "commitlog" / f"{0:020d}"
    with pytest.raises(NoStore, match="it is a file"):
        open_store(file)
    with pytest.raises(TypeError, match="directory is None"):
        open_store(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"topic": "order"}, NoTopic, r"no topic 'order' in .*; its topics: empty, orders$"),
        ({"topic": []}, ValueError, r"topic is \[\]: need a name"),
        ({"columns": ["Body"]}, ValueError, "columns names 'Body', which does not exist; known: t"),
        ({"columns": ["body", "body"]}, ValueError, "need each column once"),
        ({"colums": ["body"]}, TypeError, "unexpected keyword argument 'colums'"),
        ({"tags": ["a", 1]}, ValueError, r"tags is \['a', 1\]"),
        ({"start_time": "2026"}, TypeError, "start_time is '2026': need a datetime, or ms"),
        ({"end_time": datetime(1, 1, 1)}, ValueError, "end_time is .*, which is out of range"),
        ({"start_offsets": 5}, TypeError, "start_offsets is 5: need offsets by topic"),
        ({"end_offsets": {"orders": 5}}, TypeError, "end_offsets is .*: need offsets by topic"),
        ({"end_offsets": {"orders": {0: -3}}}, ValueError, "end_offsets has orders/0 = -3"),
        ({"end_offsets": {"orders": {7: 1}}}, ValueError, "orders/7, which has no messages"),
        (
            {"topic": "empty", "start_offsets": {"orders": {0: 1}}},
            ValueError,
            "start_offsets names the queue orders/0, which is not read",
        ),
    ],
)
def test_bad_arguments(
    orders: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with open_store(orders) as store, pytest.raises(error, match=message):
        store.batches(**options)


def test_a_closed_store(orders: Path) -> None:
    with open_store(orders) as store:
        pass
    with pytest.raises(StoreClosed, match="was closed; open it again"):
        store.to_arrow()
    with pytest.raises(StoreClosed, match="was closed"):
        _ = store.topics
    store.close()


def test_without_pyarrow_the_error_says_what_to_install() -> None:
    program = (
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"
        "from pocketmq.archive.open_store import open_store\n"
        "open_store('.')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: open_store needs pyarrow, which is not installed; "
        "type: pip install 'pocketmq[arrow]'"
    )


@pytest.mark.parametrize("others", [True, False])
async def test_messages_of_deleted_topics_stay_away(tmp_path: Path, others: bool) -> None:
    """The log of a closed store still has them, and no queue is left that says otherwise."""
    async with (
        EmbeddedServer(store=tmp_path, properties=SMALL_FILE) as server,
        Admin(namesrv=server.namesrv) as admin,
        Producer("tests", namesrv=server.namesrv) as producer,
    ):
        for topic in ["kept", "gone", "again"] if others else ["gone", "again"]:
            await admin.create_topic(topic, queues=1)
            await producer.send(Message(topic, b"old"))
        await admin.delete_topic("gone")
        await admin.delete_topic("again")
        await admin.create_topic("again", queues=1)
    with open_store(tmp_path) as store:
        found = store.to_arrow(columns=["topic"]).column("topic").to_pylist()
        assert found == (["kept"] if others else [])
        assert "gone" not in store.topics


def test_only_the_reply_topic_of_the_own_cluster_is_hidden(tmp_path: Path) -> None:
    topics = ("orders_REPLY_TOPIC", "DefaultCluster_REPLY_TOPIC", "c0_REPLY_TOPIC")
    store = MadeStore(tmp_path)
    for topic in topics:
        store.put(topic)
    write(tmp_path / "config" / "topics.json", b'{"topicConfigTable":{"rmq_sys_REVIVE_LOG_c0":{}}}')
    with open_store(store.write()) as opened:
        found = opened.to_arrow(columns=["topic"]).column("topic").to_pylist()
        assert found == opened.topics == sorted(topics[:2])
