"""Makes bodies from columns: one JSON object for each row, with the column names.

Numbers stay exact (decimals too). Times are ISO 8601, in UTC unless they have no time zone. A null
becomes null, and so do NaN and infinite numbers, which JSON does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as kinds

_encode = msgspec.json.Encoder(decimal_format="number").encode

Convert = Callable[[Any], Any]


def json_bodies(names: Sequence[str], columns: Sequence[Any]) -> list[bytes]:
    """Return the rows of Arrow columns as JSON objects."""
    values = [_values(column) for column in columns]
    return [_encode(dict(zip(names, row, strict=True))) for row in zip(*values, strict=True)]


def _values(column: Any) -> list[Any]:
    kind = _in_utc(column.type)
    values: list[Any] = (column if kind == column.type else column.cast(kind)).to_pylist()
    convert = _conversion(kind)
    return values if convert is None else [convert(value) for value in values]


def _in_utc(kind: Any) -> Any:
    """Return the type with its times in UTC; Spark gives them in the session's time zone."""
    if kinds.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")
    if kinds.is_list(kind):
        return pa.list_(_field_in_utc(kind.value_field))
    if kinds.is_large_list(kind):
        return pa.large_list(_field_in_utc(kind.value_field))
    if kinds.is_map(kind):
        return pa.map_(kind.key_field, _field_in_utc(kind.item_field))
    if kinds.is_struct(kind):
        return pa.struct([_field_in_utc(field) for field in kind])
    return kind


def _field_in_utc(field: Any) -> Any:
    return field.with_type(_in_utc(field.type))


def _conversion(kind: Any) -> Convert | None:
    """Return the conversion of a Python value before it is encoded; None if it needs none.

    Arrow gives a map as pairs.
    """
    if kinds.is_map(kind):
        item = _conversion(kind.item_type) or _same
        return _unless_none(lambda pairs: {name: item(value) for name, value in pairs})
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        element = _conversion(kind.value_type)
        if element is None:
            return None
        return _unless_none(lambda values: [element(value) for value in values])
    if kinds.is_struct(kind):
        fields = {field.name: _conversion(field.type) for field in kind}
        if not any(fields.values()):
            return None
        return _unless_none(
            lambda value: {name: (fields[name] or _same)(each) for name, each in value.items()}
        )
    return None


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value
