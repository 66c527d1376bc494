"""Rows as messages, without Spark."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.limits import MAX_BODY
from pocketmq.message.message import Message
from pocketmq.store.scan.direct_scan import scan
from pocketmq.store.scan.planning.plan import ScanRequest
from tests.store.made_store import MadeStore

pytest.importorskip("pyspark")

from pocketmq.spark.rows import ROW_ID, Block, RowError, Rows
from pocketmq.spark.writing.json_body import json_bodies

PROPERTIES = pa.map_(pa.string(), pa.string())


def batch(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def rows(topic: str | None = "T", **options: Any) -> Rows:
    return Rows(topic, **{"most_messages": 100, "most_bytes": 10**6, **options})


def blocks(made: Rows, *batches: Any) -> list[Block]:
    return [block for each in batches for block in made.blocks(each)]


def messages(made: Rows, *batches: Any) -> list[Message]:
    return [message for block in blocks(made, *batches) for message in block.messages]


def test_body_alone() -> None:
    assert messages(rows(), batch(body=[b"1", b"2"])) == [Message("T", b"1"), Message("T", b"2")]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_a_body_is_text_or_bytes(kind: Any) -> None:
    bodies = pa.array(["é", "b"]).cast(kind)
    assert [each.body for each in messages(rows(), batch(body=bodies))] == ["é".encode(), b"b"]


def test_every_field() -> None:
    at = datetime(2027, 1, 2, 3, 4, 5, 678_901, UTC)
    made = batch(
        topic=["A", "B", "C"],
        body=[b"1", b"2", b"3"],
        tags=["paid", None, None],
        keys=pa.array([["k1", "k2"], None, None]),
        properties=pa.array([[("region", "eu")], None, None], PROPERTIES),
        flag=pa.array([7, None, None], pa.int32()),
        shardingKey=pa.array(["s", None, None]),
        delayLevel=pa.array([None, 3, None], pa.int16()),
        deliverAt=pa.array([at, None, None], pa.timestamp("us", "Asia/Shanghai")),
        priority=pa.array([None, None, 0], pa.int32()),
    )
    [block] = rows(None).blocks(made)
    assert block.messages == [
        Message(
            "A",
            b"1",
            tags="paid",
            keys=["k1", "k2"],
            properties={"region": "eu"},
            flag=7,
            deliver_at=1_798_859_045_678,
        ),
        Message("B", b"2", delay_level=3),
        Message("C", b"3", priority=0),
    ]
    assert list(block.sharding_keys) == ["s", None, None]


def test_the_option_topic_wins_over_the_column() -> None:
    made = messages(rows("T"), batch(topic=["A", None], body=[b"1", b"2"]))
    assert [each.topic for each in made] == ["T", "T"]


def test_keys_in_a_text_have_spaces_between_them() -> None:
    made = messages(rows(), batch(body=[b"1", b"2", b"3"], keys=["a  b", "", None]))
    assert [list(each.keys) for each in made] == [["a", "b"], [], []]


def test_ids_count_the_rows_of_a_task() -> None:
    made = messages(
        rows(id_prefix="w/3/", most_messages=2),
        batch(body=[b"1", b"2", b"3"]),
        batch(body=[b"4"], properties=pa.array([[("a", "1")]], PROPERTIES)),
    )
    assert [each.properties[ROW_ID] for each in made] == ["w/3/0", "w/3/1", "w/3/2", "w/3/3"]
    assert made[3].properties == {"a": "1", ROW_ID: "w/3/3"}


def test_a_row_that_was_read_gets_a_new_id() -> None:
    read = batch(body=[b"1"], properties=pa.array([[(ROW_ID, "old")]], PROPERTIES))
    assert messages(rows(id_prefix="new/"), read)[0].properties == {ROW_ID: "new/0"}


def test_blocks_end_at_either_limit() -> None:
    sizes = [4, 4, 4, 30, 1, 1, 1, 1]
    made = blocks(rows(most_messages=3, most_bytes=10), batch(body=[b"x" * size for size in sizes]))
    assert [[len(each.body) for each in block.messages] for block in made] == [
        [4, 4],
        [4],
        [30],
        [1, 1, 1],
        [1],
    ]
    assert [block.first_row for block in made] == [0, 2, 3, 4, 7]


def test_a_property_that_is_null_or_empty_is_left_out() -> None:
    maps = pa.array([[("a", None), ("b", "1"), ("c", "")]], PROPERTIES)
    [made] = messages(rows(), batch(body=[b"1"], properties=maps))
    assert {name: value for name, value in made.properties.items() if name != ROW_ID} == {"b": "1"}


def test_a_slice_of_a_batch() -> None:
    """Arrow's buffers have more than the rows; a null map may even have entries there."""
    maps = pa.MapArray.from_arrays(
        pa.array([0, 1, 2, 4], pa.int32()), ["a", "b", "c", "d"], ["1", "2", "3", "4"], PROPERTIES
    )
    whole = batch(body=[b"1", b"2", b"3"], properties=maps, keys=[["a"], ["b"], ["c"]])
    made = messages(rows(most_messages=1), whole.slice(1))
    assert [(each.properties, each.keys) for each in made] == [
        ({"b": "2"}, ["b"]),
        ({"c": "3", "d": "4"}, ["c"]),
    ]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"body": [b"1", None]}, r"row 1 \(topic T\): its body is null"),
        ({"body": [b"1", b""]}, r"row 1 \(topic T\): its body is empty"),
        ({"body": [b"1", b"x" * (MAX_BODY + 1)]}, rf"row 1 .*has {MAX_BODY + 1} bytes, over the"),
    ],
)
def test_nothing_of_a_batch_with_a_wrong_body_is_made(columns: Any, text: str) -> None:
    made = rows(most_messages=1)
    with pytest.raises(RowError, match=text):
        next(made.blocks(batch(**columns)))


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        (None, r"row 1 \(no topic\): the column topic is null"),
        ("a b", r"row 1 \(topic a b\): .*characters outside"),
        ("", r"row 1 .*blank"),
        ("SCHEDULE_TOPIC_XXXX", r"row 1 .*RocketMQ's own"),
    ],
)
def test_a_wrong_topic(topic: str | None, text: str) -> None:
    with pytest.raises(RowError, match=text):
        next(rows(None).blocks(batch(topic=["A", topic], body=[b"1", b"2"])))


def test_the_number_of_a_wrong_row_counts_earlier_batches() -> None:
    made = rows()
    messages(made, batch(body=[b"1", b"2"]))
    with pytest.raises(RowError, match="row 3 "):
        messages(made, batch(body=[b"3", b""]))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "__RMQ.TRANSIENT.x", "a", "b", "c"])


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "topic": st.sampled_from(["A", "B-1"]),
                "body": st.binary(min_size=1, max_size=20),
                "tags": st.none() | texts,
                "keys": st.none() | st.lists(st.none() | texts, max_size=3),
                "properties": st.none() | st.dictionaries(names, st.none() | texts, max_size=4),
                "flag": st.none() | st.integers(-(2**31), 2**31 - 1),
                "shardingKey": st.none() | st.integers(-(2**63), 2**63 - 1),
            }
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 3),
    st.integers(1, 5),
    st.integers(1, 60),
)
def test_each_row_is_its_message(
    given_rows: list[dict[str, Any]], skipped: int, most_messages: int, most_bytes: int
) -> None:
    schema = pa.schema(
        {
            "topic": pa.string(),
            "body": pa.binary(),
            "tags": pa.string(),
            "keys": pa.list_(pa.string()),
            "properties": PROPERTIES,
            "flag": pa.int32(),
            "shardingKey": pa.int64(),
        }
    )
    made = Rows(None, most_messages=most_messages, most_bytes=most_bytes)
    found = blocks(made, pa.RecordBatch.from_pylist(given_rows, schema).slice(skipped))
    given_rows = given_rows[skipped:]
    kept = ("a", "b", "c")
    assert [message for block in found for message in block.messages] == [
        Message(
            row["topic"],
            row["body"],
            tags=row["tags"] or None,
            keys=() if row["keys"] is None else [key for key in row["keys"] if key],
            properties={n: v for n, v in (row["properties"] or {}).items() if v and n in kept},
            flag=row["flag"] or 0,
        )
        for row in given_rows
    ]
    assert [key for block in found for key in block.sharding_keys] == [
        row["shardingKey"] for row in given_rows
    ]
    for block in found:
        assert len(block.messages) <= most_messages
        sizes = [len(message.body) for message in block.messages]
        assert len(sizes) == 1 or sum(sizes) <= most_bytes


def test_what_was_read_is_written_as_copies(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    theirs = {"UNIQ_KEY": "U1", "CLUSTER": "c", "WAIT": "true", "__SHARDINGKEY": "s"}
    store.put("Orders", 0, b"1", {"TAGS": "t", "KEYS": "a b", "own": "é"} | theirs, flag=3)
    store.put("%RETRY%g", 0, b"2", {"RETRY_TOPIC": "Orders", "RECONSUME_TIME": "2", "own": "x"})
    read = scan(store.write(), request=ScanRequest(wants=lambda topic, queue_id: True))
    made = messages(rows(None), *read)
    assert sorted(made, key=lambda each: each.body) == [
        Message("Orders", b"1", tags="t", keys=["a", "b"], properties={"own": "é"}, flag=3),
        Message("Orders", b"2", properties={"own": "x"}, keys=[]),
    ]


def test_json_of_every_kind() -> None:
    zone = ZoneInfo("Asia/Shanghai")
    at = datetime(2026, 11, 23, 8, 0, 0, 500_000, zone)
    value: dict[str, Any] = {
        "whole": 2**60,
        "float": 0.1,
        "nan": float("nan"),
        "exact": Decimal("12345678901234567890.12"),
        "text": 'é"',
        "none": None,
        "flag": True,
        "day": date(2026, 11, 23),
        "at": at,
        "naive": datetime(2026, 11, 23, 8),
        "list": [at, None],
        "map": {"a": {"at": at}, "b": None},
        "empty": {},
        "struct": {"m": {"x": 1}, "l": [{"y": 2}]},
    }
    times = pa.timestamp("us", "Asia/Shanghai")
    inner = pa.map_(pa.string(), pa.int32())
    schema = pa.schema(
        {
            "whole": pa.int64(),
            "float": pa.float64(),
            "nan": pa.float64(),
            "exact": pa.decimal128(38, 2),
            "text": pa.string(),
            "none": pa.null(),
            "flag": pa.bool_(),
            "day": pa.date32(),
            "at": times,
            "naive": pa.timestamp("us"),
            "list": pa.list_(times),
            "map": pa.map_(pa.string(), pa.struct({"at": times})),
            "empty": inner,
            "struct": pa.struct({"m": inner, "l": pa.list_(inner)}),
        }
    )
    as_pairs = {
        **value,
        "map": list(value["map"].items()),
        "empty": [],
        "struct": {"m": [("x", 1)], "l": [[("y", 2)]]},
    }
    table = pa.RecordBatch.from_pylist([as_pairs, {}], schema)
    first, second = json_bodies(schema.names, table.columns)
    utc = "2026-11-23T00:00:00.500000Z"
    assert json.loads(first, parse_float=Decimal) == {
        **value,
        "float": Decimal("0.1"),
        "nan": None,
        "day": "2026-11-23",
        "at": utc,
        "naive": "2026-11-23T08:00:00",
        "list": [utc, None],
        "map": {"a": {"at": utc}, "b": None},
    }
    assert list(json.loads(first)) == schema.names
    assert json.loads(second) == dict.fromkeys(schema.names)


def test_json_of_the_remaining_columns() -> None:
    made = messages(
        rows(None, json_body=True),
        batch(topic=["T"], keys=["k"], id=[1], body=["text"], queueId=[2]),
    )
    assert made == [Message("T", b'{"id":1,"body":"text","queueId":2}', keys=["k"])]


@given(st.datetimes(datetime(2001, 1, 1), datetime(2199, 1, 1)), st.integers(-12, 12))
def test_a_time_of_delivery_is_the_same_in_every_zone(at: datetime, hours: int) -> None:
    zone = f"{'-' if hours < 0 else '+'}{abs(hours):02}:00"
    at = at.replace(tzinfo=UTC)
    column = pa.array([at], pa.timestamp("us", zone))
    [message] = messages(rows(), batch(body=[b"1"], deliverAt=column))
    assert message.deliver_at == (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        milliseconds=1
    )
