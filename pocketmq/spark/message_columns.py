"""Checks on the driver which columns of a DataFrame become which part of a message.

Columns are named as in the DataFrames that this source reads. Columns that a new message cannot
have (offsets, times, ids) are accepted but not sent, so that a DataFrame that was read can be
written unchanged. Any other column is an error, unless it is part of the body (`bodyFormat=json`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pocketmq.spark.options.option_error import nearest
from pocketmq.spark.schema import SchemaError
from pocketmq.store.scan.records.columns import ALL_COLUMNS

_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_PLAIN_JSON: Final = (
    *_INTEGERS,
    BooleanType,
    FloatType,
    DoubleType,
    DecimalType,
    StringType,
    DateType,
    TimestampType,
    TimestampNTZType,
    NullType,
)


def _is(*kinds: type[Any]) -> Callable[[DataType], bool]:
    return lambda kind: isinstance(kind, kinds)


def _is_texts(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)


def _is_text_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and all(
        isinstance(each, StringType) for each in (kind.keyType, kind.valueType)
    )


#: The columns that make a message: their types, in Spark's words, and the test for them.
FIELDS: Final[dict[str, tuple[str, Callable[[DataType], bool]]]] = {
    "topic": ("string", _is(StringType)),
    "body": ("binary or string", _is(BinaryType, StringType)),
    "tags": ("string", _is(StringType)),
    "keys": (
        "array<string> or string",
        lambda kind: isinstance(kind, StringType) or _is_texts(kind),
    ),
    "properties": ("map<string,string>", _is_text_map),
    "flag": ("int", _is(*_INTEGERS)),
    "shardingKey": ("string, int or bigint", _is(StringType, *_INTEGERS)),
    "delayLevel": ("int", _is(*_INTEGERS)),
    "deliverAt": ("timestamp", _is(TimestampType)),
    "priority": ("int", _is(*_INTEGERS)),
}
_LEFT_OUT: Final = frozenset(ALL_COLUMNS) - FIELDS.keys()


def check_columns(schema: StructType, *, topic_given: bool, json_body: bool) -> None:
    """Check that messages can be made from the columns of a DataFrame.

    Raises:
        SchemaError: a column is unknown, has a wrong type, or occurs twice; or the topic or the
            body is missing. The text lists the accepted columns.
    """
    names = [field.name for field in schema.fields]
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"there are {names.count(name)} columns {name}: keep one of them")
    in_body = []
    for field in schema.fields:
        if field.name in FIELDS and not (json_body and field.name == "body"):
            wanted, fits = FIELDS[field.name]
            if not fits(field.dataType):
                raise SchemaError(
                    f"column {field.name} is {field.dataType.simpleString()}, not {wanted}: "
                    f"cast it; {_accepted(json_body)}"
                )
        elif json_body:
            in_body.append(field.name)
            _check_json(field.name, field.dataType)
        elif field.name not in _LEFT_OUT:
            raise SchemaError(
                f"column {field.name} is not part of a message{_near(field.name)}; drop it, or set "
                f"bodyFormat=json to have it in the body; {_accepted(json_body)}"
            )
    if not topic_given and "topic" not in names:
        raise SchemaError("no topic: set the option topic, or add a column topic (string)")
    if json_body and not in_body:
        raise SchemaError(
            "bodyFormat=json, but no column is left for the body: "
            f"{', '.join(FIELDS.keys() - {'body'} & set(names)) or 'there is none'}"
        )
    if not json_body and "body" not in names:
        raise SchemaError(
            "no body: add a column body (binary or string), or set bodyFormat=json to make it of "
            f"the columns; {_accepted(json_body)}"
        )


def _accepted(json_body: bool) -> str:
    fields = [
        f"{name} ({wanted})"
        for name, (wanted, _) in FIELDS.items()
        if not (json_body and name == "body")
    ]
    rest = "all others go into the body" if json_body else f"not sent: {', '.join(_left_out())}"
    return f"accepted: {', '.join(fields)}; {rest}"


def _left_out() -> list[str]:
    return [name for name in ALL_COLUMNS if name in _LEFT_OUT]


def _near(name: str) -> str:
    near = nearest(name, FIELDS)
    return f"; did you mean {near}?" if near else ""


def _check_json(name: str, kind: DataType) -> None:
    """Raise SchemaError unless values of this type can be written as JSON."""
    if isinstance(kind, _PLAIN_JSON):
        return
    if isinstance(kind, ArrayType):
        return _check_json(f"{name}[]", kind.elementType)
    if isinstance(kind, StructType):
        for field in kind.fields:
            _check_json(f"{name}.{field.name}", field.dataType)
        return
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return _check_json(f"{name}{{}}", kind.valueType)
    raise SchemaError(
        f"column {name} is {kind.simpleString()}, which has no form in JSON: cast it to string "
        "(binary with base64(...)), or drop it"
    )
