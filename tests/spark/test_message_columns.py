from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pocketmq.spark.message_columns import FIELDS, check_columns
from pocketmq.spark.schema import SchemaError
from pocketmq.store.scan.records.columns import ALL_COLUMNS

TEXT, WHOLE, BYTES, TIME = StringType(), IntegerType(), BinaryType(), TimestampType()
TEXTS, TEXT_MAP = ArrayType(TEXT), MapType(TEXT, TEXT)
BODY = ("body", BYTES)


def check(*columns: tuple[str, DataType], topic: bool = True, json: bool = False) -> None:
    schema = StructType([StructField(name, kind) for name, kind in columns])
    check_columns(schema, topic_given=topic, json_body=json)


def test_every_field_in_each_of_its_types() -> None:
    check(
        ("topic", TEXT), BODY, ("tags", TEXT), ("keys", TEXTS), ("properties", TEXT_MAP),
        ("flag", WHOLE), ("shardingKey", TEXT), ("delayLevel", ByteType()), ("deliverAt", TIME),
        ("priority", WHOLE), topic=False,
    )  # fmt: skip
    check(("body", TEXT), ("keys", TEXT), ("shardingKey", LongType()))


def test_what_a_read_gives_is_accepted() -> None:
    left_out = ("queueId", "queueOffset", "physicalOffset", "flag", "reconsumeTimes", "sysFlag")
    check(
        ("topic", TEXT), BODY, ("tags", TEXT), ("keys", TEXTS), ("properties", TEXT_MAP),
        *((name, WHOLE) for name in left_out), ("storeTimestamp", TIME), ("msgId", TEXT),
        topic=False,
    )  # fmt: skip


def test_the_remaining_columns_as_json() -> None:
    inner = StructType([StructField("at", TIME), StructField("day", DateType())])
    check(
        ("id", LongType()), ("price", DecimalType(10, 2)), ("list", ArrayType(inner)),
        ("map", MapType(TEXT, TimestampNTZType())), ("keys", TEXT), ("body", TEXT), json=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([("id", WHOLE), BODY], "column id is not part of a message; drop it, or set bodyFormat"),
        ([("Tags", TEXT), BODY], "did you mean tags"),
        ([("sharding_key", TEXT), BODY], "did you mean shardingKey"),
        ([("body", WHOLE)], "column body is int, not binary or string: cast it"),
        ([("keys", ArrayType(WHOLE)), BODY], r"column keys is array<int>, not array<string> or"),
        ([("properties", MapType(TEXT, WHOLE)), BODY], "properties is map<string,int>, not map"),
        ([("deliverAt", TimestampNTZType()), BODY], "deliverAt is timestamp_ntz, not timestamp"),
        ([("shardingKey", TIME), BODY], "not string, int or bigint"),
        ([BODY, BODY], "there are 2 columns body"),
        ([("tags", TEXT)], "no body: add a column body"),
    ],
)
def test_columns_that_make_no_message(columns: list[tuple[str, DataType]], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check(*columns)


def test_the_error_lists_what_is_accepted() -> None:
    with pytest.raises(SchemaError) as caught:
        check(("id", WHOLE), BODY)
    for name, (kind, _) in FIELDS.items():
        assert f"{name} ({kind})" in str(caught.value)
    not_sent = str(caught.value).partition("; not sent: ")[2].split(", ")
    assert set(not_sent) == set(ALL_COLUMNS) - set(FIELDS)


def test_no_topic() -> None:
    with pytest.raises(SchemaError, match="set the option topic, or add a column topic"):
        check(BODY, topic=False)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([("keys", TEXT)], "no column is left for the body: keys"),
        ([("a", BYTES)], "column a is binary, which has no form in JSON: cast it to string"),
        ([("a", ArrayType(MapType(WHOLE, TEXT)))], r"column a\[\] is map<int,string>"),
        ([("tags", WHOLE), ("a", TEXT)], "column tags is int, not string"),
    ],
)
def test_columns_that_make_no_json(columns: list[tuple[str, DataType]], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check(*columns, json=True)


def test_docs_have_every_column() -> None:
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    writing = text.partition("\n## Writing")[2].partition("\n## ")[0]
    assert [name for name in FIELDS if f"\n| `{name}` |" not in writing] == []
