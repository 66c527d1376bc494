"""Bodies that are decoded by a schema, and bodies that are not what it says."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
from io import BytesIO
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.tables.body_decoder import BodyDecoder, decode_batches
from pocketmq.tables.errors import BodySchemaError

ALL_TYPES = """
    yes boolean, i8 tinyint, i16 smallint, i32 int, id bigint NOT NULL, f float, d double,
    name string, raw binary, day date, at timestamp, sum decimal(4,2), tags array<string>,
    counts map<string,int>, `odd name` struct<a: int, b: array<struct<c: string>>>
"""


def batch(*bodies: bytes | None) -> Any:
    return pa.RecordBatch.from_pydict(
        {"topic": ["T"] * len(bodies), "body": pa.array(bodies, pa.binary())}
    )


def test_json_of_all_types() -> None:
    body = {
        "yes": True, "i8": -128, "i16": 7, "i32": 8, "id": 2**63 - 1, "f": 0.5, "d": 1, "name": "ä",
        "raw": "aGk=", "day": "2026-11-24", "at": "2026-11-24T01:00:00+01:00", "sum": "12.25",
        "tags": ["a", None], "counts": {"x": 1}, "odd name": {"a": 1, "b": [{"c": "d"}]},
        "unknown": [[]],
    }  # fmt: skip
    decoder = pickle.loads(pickle.dumps(BodyDecoder("json", ALL_TYPES)))
    decoded = decoder.decode(batch(json.dumps(body).encode()))
    assert decoded.dead.num_rows == 0
    [row] = decoded.rows.to_pylist()
    assert row["topic"] == "T"
    assert row["body"] | {"at": None} == {
        "yes": True, "i8": -128, "i16": 7, "i32": 8, "id": 2**63 - 1, "f": 0.5, "d": 1.0,
        "name": "ä", "raw": b"hi", "day": datetime.date(2026, 11, 24), "at": None,
        "sum": decimal.Decimal("12.25"), "tags": ["a", None], "counts": [("x", 1)],
        "odd name": {"a": 1, "b": [{"c": "d"}]},
    }  # fmt: skip
    assert row["body"]["at"].timestamp() == 1795478400


def test_msgpack() -> None:
    decoder = BodyDecoder("msgpack", "id bigint, raw binary")
    good = msgspec.msgpack.encode({"id": 1, "raw": b"\0"})
    decoded = decoder.decode(batch(good, good[:-1], b""))
    assert decoded.rows["body"].to_pylist() == [{"id": 1, "raw": b"\0"}]
    assert decoded.dead["body"].to_pylist() == [good[:-1], b""]
    assert all(decoded.dead["reason"].to_pylist())


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"id":"1"}', "Expected `int`, got `str` - at `$.id`"),
        (b"{}", "missing required field `id`"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"id":9223372036854775808}', "<= 9223372036854775807 - at `$.id`"),
        (b'{"id":1,"i8":128}', "at `$.i8`"),
        (b'{"id":1,"sum":12345}', "Decimal"),
        (b'{"id":1,"name":"\\ud800"}', "truncated"),
        (b'{"id":1', "truncated"),
        (b"\xff", "malformed"),
        (b'{"id":1,"x":' + b"[" * 100_000, "recursion"),
        (None, "null"),
    ],
)
def test_what_does_not_decode_is_kept_with_the_reason(body: bytes | None, reason: str) -> None:
    decoded = BodyDecoder("json", ALL_TYPES).decode(batch(b'{"id":1}', body, b'{"id":2}'))
    assert [row["id"] for row in decoded.rows["body"].to_pylist()] == [1, 2]
    assert decoded.dead["body"].to_pylist() == [body]
    assert reason in decoded.dead["reason"][0].as_py()


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_every_body_ends_up_on_one_side(bodies: list[bytes]) -> None:
    for format, schema in (("json", ALL_TYPES), ("msgpack", ALL_TYPES), ("avro", RECORD)):
        decoded = BodyDecoder(format, schema).decode(batch(*bodies))  # type: ignore[arg-type]
        assert decoded.rows.num_rows + decoded.dead.num_rows == len(bodies)


def test_all_rows_of_a_batch_for_spark() -> None:
    decode = decode_batches(BodyDecoder("json", "id bigint"))
    [rows] = decode([batch(b"x", b'{"id":1}', b"y")])
    assert rows["body"].to_pylist() == [None, {"id": 1}, None]
    assert rows["rawBody"].to_pylist() == [b"x", None, b"y"]
    assert [reason is None for reason in rows["reason"].to_pylist()] == [False, True, False]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("id\n  bigin", "line 2, column 8: there is no type bigin"),
        ("id", "need a name, found the end"),
        ("id array<int", "need >, found the end"),
        ("", "a schema needs at least one column"),
        ("a int, a int", "two columns named a"),
        ("a int b int", "need a comma, found b"),
        ("a map<int,int>", "the keys of a map must be strings"),
        ("a decimal(39)", "there is no decimal(39,0)"),
        ("a int not", "NOT needs NULL"),
        ("a; int", "cannot read"),
        ("a " + "array<" * 100, "nested more than 50 deep"),
    ],
)
def test_schemas_that_cannot_be_read(schema: str, problem: str) -> None:
    with pytest.raises(BodySchemaError) as error:
        BodyDecoder("json", schema)
    assert problem in str(error.value)


RECORD = json.dumps({
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", {"type": "string", "logicalType": "uuid"}]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5,
                                 "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "noon", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "before", "type": {"type": "array", "items": "State"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ],
})  # fmt: skip


def test_avro() -> None:
    fastavro = pytest.importorskip("fastavro", reason="pip install 'pocketmq[tables]'")
    at = datetime.datetime(2026, 11, 24, tzinfo=datetime.UTC)
    order = {
        "id": 1, "note": "x", "state": "OPEN", "sum": decimal.Decimal("1.25"), "at": at,
        "noon": datetime.time(12), "before": ["PAID"], "counts": {"x": 1},
    }  # fmt: skip
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(RECORD)), order)
    body = stream.getvalue()
    decoded = BodyDecoder("avro", RECORD).decode(batch(body, body + b"x", body[:-3], b""))
    [row] = decoded.rows["body"].to_pylist()
    assert row | {"at": at} == order | {"noon": 12 * 3600 * 1000, "counts": [("x", 1)]}
    assert row["at"] == at
    assert decoded.dead["body"].to_pylist() == [body + b"x", body[:-3], b""]
    assert "1 bytes are left behind the record" in decoded.dead["reason"][0].as_py()


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "an Avro schema is JSON"),
        ('"long"', "must be a record"),
        ({"type": "record", "name": "R", "fields": []}, "needs at least one field"),
        (["null", "int", "string"], "the body.x: a union must be of null and one type"),
        ("Missing", "the body.x: there is no type Missing"),
        ({"type": "array", "items": "R"}, "the body.x[]: R contains itself"),
        ({"type": "array", "items": "null"}, "there is no type null"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50}, "no decimal of 50 digits"),
    ],
)
def test_avro_schemas_that_no_table_can_hold(schema: Any, problem: str) -> None:
    pytest.importorskip("fastavro", reason="pip install 'pocketmq[tables]'")
    whole = isinstance(schema, dict) and schema["type"] == "record"
    if not whole and schema not in ("{", '"long"'):
        schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": schema}]}
    with pytest.raises(BodySchemaError) as error:
        BodyDecoder("avro", schema if isinstance(schema, str) else json.dumps(schema))
    assert problem in str(error.value)
