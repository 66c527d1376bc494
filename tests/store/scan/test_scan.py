"""Scans of whole stores: every column of every record, as the record codec has it."""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pocketmq.message.compression import CompressionType, compress
from pocketmq.message.identity import pack_host
from pocketmq.message.record_layout import MAGIC_V2
from pocketmq.message.sysflag import COMPRESSED, COMPRESSION_TYPE_SHIFT
from pocketmq.message.tags import tag_hash
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore
from pocketmq.store.scan.direct_scan import scan
from pocketmq.store.scan.planning.plan import ScanRequest
from pocketmq.store.scan.queues.selection import Range, Selection
from pocketmq.store.scan.records.columns import ALL_COLUMNS, COLUMNS
from tests.store.made_store import (
    BROKER,
    NOW,
    V4,
    MadeStore,
    comparable,
    decoded,
    golden_rows,
    rows_of,
    unpack_golden,
)

EVERY_TOPIC = ScanRequest(wants=lambda topic, queue_id: True)
V6 = pack_host("2001:db8::77", 40002)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=20)
property_maps = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "own", "größe", "a" * 40]), texts
)
raw_properties = st.one_of(
    property_maps, st.binary(max_size=40), st.text("aK\x01\x02").map(str.encode)
)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """The arguments of one put: any kind of record."""
    kind = draw(st.sampled_from([None, *CompressionType]))
    plain = draw(st.binary(max_size=60) | st.binary(max_size=8).map(lambda part: part * 500))
    sys_flag = draw(st.sampled_from([0, 0x10, 0x20, 0x30]))
    return {
        "queue_id": draw(st.integers(0, 2)),
        "body": plain if kind is None else compress(plain, kind),
        "properties": draw(raw_properties),
        "magic": draw(st.sampled_from([None, MAGIC_V2])),
        "sys_flag": sys_flag | (1 | kind.flag if kind else 0),
        "born_host": V6 if sys_flag & 0x10 else V4,
        "store_host": V6 if sys_flag & 0x20 else BROKER,
        "flag": draw(st.integers(-(2**31), 2**31 - 1)),
        "reconsume_times": draw(st.integers(0, 16)),
        "prepared_transaction_offset": draw(st.integers(0, 2**62)),
    }


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_golden_stores_as_they_lie_there(name: str, tmp_path: Path) -> None:
    root = unpack_golden(name, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    rows = rows_of(scan(root, list(ALL_COLUMNS), EVERY_TOPIC))
    found = {row["physicalOffset"]: comparable(row) for row in rows}
    assert len(found) == len(rows)
    assert found == golden_rows(name)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(puts=st.lists(messages(), min_size=1, max_size=12))
def test_any_records(tmp_path_factory: pytest.TempPathFactory, puts: list[dict[str, Any]]) -> None:
    store = MadeStore(tmp_path_factory.mktemp("store"), segment_size=8192)
    places = [store.put(**arguments) for arguments in puts]
    rows = rows_of(scan(store.write(entries_per_file=3), list(ALL_COLUMNS)))
    found = {row["physicalOffset"]: comparable(row) for row in rows}
    assert found == {physical: decoded(store, physical) for physical in places}
    for queue_id in range(3):
        offsets = [row["queueOffset"] for row in rows if row["queueId"] == queue_id]
        assert offsets == list(range(len(offsets)))


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    store.put(properties={"TAGS": "TagA"})
    (batch,) = scan(store.write(), ["tags", "queueOffset", "topic"])
    assert batch.schema.names == ["tags", "queueOffset", "topic"]
    (batch,) = scan(tmp_path)
    assert dict(zip(batch.schema.names, batch.schema.types, strict=True)) == COLUMNS


def test_compressed_bodies_can_be_left_as_they_are(tmp_path: Path) -> None:
    from pocketmq.store.scan.planning.tail import take_snapshot
    from pocketmq.store.scan.reader import SliceReader
    from pocketmq.store.scan.records.topic_table import local_files

    store = MadeStore(tmp_path)
    packed = compress(b"again and " * 100, CompressionType.LZ4)
    store.put(body=packed, sys_flag=0x101)
    root = store.write()
    part = take_snapshot(root).queues["T", 0].slice()
    files = local_files(root)
    (row,) = rows_of(SliceReader(files, ["body", "sysFlag"], decompress=False).read(part))
    assert row == {"body": packed, "sysFlag": 0x101}
    (row,) = rows_of(SliceReader(files, ["body", "sysFlag"]).read(part))
    assert row == {"body": b"again and " * 100, "sysFlag": 0x100}
    (row,) = rows_of(SliceReader(files, ["sysFlag"]).read(part))
    assert row == {"sysFlag": 0x100}


def test_times_that_no_calendar_has_become_the_first_or_the_last(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    for time in (2**63 - 1, -(2**63), 0):
        store.put(born_timestamp=time)
    times = [row["bornTimestamp"] for row in rows_of(scan(store.write(), ["bornTimestamp"]))]
    assert [time.isoformat() for time in times] == [
        "9999-12-31T23:59:59.999000+00:00",
        "0001-01-01T00:00:00+00:00",
        "1970-01-01T00:00:00+00:00",
    ]


def test_internal_topics_are_read_when_asked_for(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    internal = ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"]
    internal += ["%RETRY%g", "%DLQ%g", "DefaultCluster_REPLY_TOPIC"]
    for topic in ("T", *internal):
        store.put(topic)
    root = store.write()
    assert [row["topic"] for row in rows_of(scan(root))] == ["T"]
    assert {row["topic"] for row in rows_of(scan(root, request=EVERY_TOPIC))} == {"T", *internal}


def test_light_queues_hold_records_of_other_queues(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    store.put("T", 3)
    physical = store.put("T", 3)
    store.enter("%LMQ%light", 0, physical, len(store.log) - physical)
    rows = rows_of(scan(store.write(), ["topic", "queueId", "queueOffset", "physicalOffset"]))
    assert rows[0] == {
        "topic": "%LMQ%light",
        "queueId": 0,
        "queueOffset": 0,
        "physicalOffset": physical,
    }
    assert [(row["topic"], row["queueOffset"]) for row in rows[1:]] == [("T", 0), ("T", 1)]


def test_messages_of_light_queues_without_entries_are_found_in_the_log(tmp_path: Path) -> None:
    """As a broker that was killed leaves them."""
    store = MadeStore(tmp_path)
    places = [
        store.put(
            "T", 3, entry=number < 2,
            properties={
                "INNER_MULTI_DISPATCH": "%LMQ%light", "INNER_MULTI_QUEUE_OFFSET": str(number)
            },
        )
        for number in range(4)
    ]  # fmt: skip
    for begin, end in pairwise(places[:3]):
        store.enter("%LMQ%light", 0, begin, end - begin)
    rows = rows_of(scan(store.write(crashed=True), ["topic", "queueOffset", "physicalOffset"]))
    for topic in ("T", "%LMQ%light"):
        of_topic = [row for row in rows if row["topic"] == topic]
        assert [row["queueOffset"] for row in of_topic] == [0, 1, 2, 3]
        assert [row["physicalOffset"] for row in of_topic] == places


def selected(root: Path, **ranges: Any) -> list[int]:
    request = ScanRequest(selection=Selection(**ranges))
    return [row["queueOffset"] for row in rows_of(scan(root, ["queueOffset"], request))]


def test_selections(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    tags = ["AaAa", "BBBB", "TagA"]
    places = [store.put(properties={"TAGS": tags[n % 3]}, born_timestamp=n) for n in range(9)]
    store.put(entry=False)  # found in the log: it has no hash to be told by
    root = store.write()
    assert selected(root, queue_offset=Range(3, 5)) == [3, 4]
    assert selected(root, physical_offset=Range(places[7])) == [7, 8, 9]
    assert selected(root, physical_offset=Range(None, places[2])) == [0, 1]
    assert selected(root, born_timestamp=Range(2, 4)) == [2, 3]
    assert selected(root, store_timestamp=Range(NOW + 9, NOW + 11)) == [8, 9]
    # Equal hashes cannot be told apart; that is left to who asks.
    assert selected(root, tag_codes=frozenset([tag_hash("AaAa")])) == [0, 1, 3, 4, 6, 7, 9]
    assert selected(root, tag_codes=frozenset([tag_hash("TagA")])) == [2, 5, 8, 9]
    both = Selection(queue_offset=Range(1)) & Selection(queue_offset=Range(None, 3))
    assert both.queue_offset == Range(1, 3)


def test_tags_of_delayed_messages_are_not_in_their_entries(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    physical = store.put("SCHEDULE_TOPIC_XXXX", properties={"TAGS": "TagA"}, entry=False)
    store.enter("SCHEDULE_TOPIC_XXXX", 0, physical, len(store.log) - physical, NOW + 5000)
    selection = Selection(tag_codes=frozenset([tag_hash("TagA")]))
    rows = rows_of(scan(store.write(), request=ScanRequest(EVERY_TOPIC.wants, selection=selection)))
    assert [row["tags"] for row in rows] == ["TagA"]


def test_many_blocks_over_many_files(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    for n in range(1500):
        store.put(queue_id=n % 2, body=b"%d" % n * (n % 40))
    batches = list(scan(store.write(), ["queueId", "queueOffset", "body"]))
    assert len(batches) > 4
    assert len(list((tmp_path / "commitlog").iterdir())) > 10
    for row in rows_of(batches):
        n = 2 * row["queueOffset"] + row["queueId"]
        assert row["body"] == b"%d" % n * (n % 40)
    assert sum(batch.num_rows for batch in batches) == 1500


async def test_a_store_that_a_broker_is_writing_to(tmp_path: Path) -> None:
    """Each scan gives what was committed when it was planned: a whole prefix of every queue."""
    config = StoreConfig(
        store_path_root_dir=str(tmp_path),
        mapped_file_size_commit_log=64 * 1024,
        mapped_file_size_consume_queue=40_000,
    )
    store = MessageStore(config, store_host=BROKER)
    store.open()
    store.start()
    written = 0

    def put(count: int) -> None:
        nonlocal written
        for _ in range(count):
            result = store.put(
                "T", written % 2, b"body %d" % written, "TAGS\x01TagA\x02",
                born_timestamp=NOW, born_host=V4, tags_code=tag_hash("TagA"),
            )  # fmt: skip
            assert result.queue_offset == written // 2
            written += 1

    def read() -> list[tuple[int, int, bytes]]:
        rows = rows_of(scan(tmp_path, ["queueId", "queueOffset", "body"]))
        return [(row["queueId"], row["queueOffset"], row["body"]) for row in rows]

    try:
        for _ in range(10):
            put(150)
            store.settle()
            before = written
            reading = asyncio.get_running_loop().run_in_executor(None, read)
            while not reading.done():
                put(10 if written < before + 2000 else 0)
                await asyncio.sleep(0)
            found = await reading
            assert before <= len(found) <= written
            for queue_id in range(2):
                part = [(offset, body) for number, offset, body in found if number == queue_id]
                assert part == [(n, b"body %d" % (2 * n + queue_id)) for n in range(len(part))]
    finally:
        await store.close()
    assert len(read()) == written


def test_what_the_queues_know_is_read_without_the_log(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    for number in range(300):
        store.put("AB"[number % 2], number % 3, b"body")
    root = store.write()
    columns = ["topic", "queueId", "brokerName", "queueOffset", "physicalOffset", "storeSize"]
    whole = rows_of(scan(root, [*columns, "flag"]))
    [log] = (root / "commitlog").glob(f"{0:020d}")
    few = scan(root, columns)
    first = next(few).to_pylist()
    with log.open("r+b") as file:  # in place: it is mapped
        file.write(bytes(log.stat().st_size))
    found = first + rows_of(few)
    assert found == [{name: row[name] for name in columns} for row in whole]


def test_a_codec_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MadeStore(tmp_path)
    body = compress(b"x" * 100, CompressionType.LZ4, 5)
    store.put(body=body, sys_flag=COMPRESSED | CompressionType.LZ4 << COMPRESSION_TYPE_SHIFT)
    root = store.write()
    monkeypatch.setitem(sys.modules, "lz4", None)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with pytest.raises(ModuleNotFoundError, match=r"compressed with LZ4, which needs .* lz4"):
        rows_of(scan(root, ["body"]))
    assert len(rows_of(scan(root, ["queueOffset", "flag"]))) == 1
