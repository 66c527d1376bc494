"""Converts Avro schemas of bodies to Arrow types.

A body is one value of the record that the schema describes, in Avro's encoding without a header
(fastavro's `schemaless_writer`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from pocketmq.tables.body_schema import TIMESTAMP
from pocketmq.tables.errors import BodySchemaError

_SIMPLE: Final[Mapping[str, Any]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL: Final[Mapping[tuple[str, str], Any]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
}
_DEEPEST: Final = 50


def parse(text: str) -> tuple[Any, Any]:
    """Return the schema for fastavro, and the Arrow type of what it decodes.

    Raises BodySchemaError.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BodySchemaError(f"an Avro schema is JSON, and this is not: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise BodySchemaError("the Avro schema of a body must be a record")
    schema, arrow = _Types().convert(schema, "the body")
    return schema, arrow


class _Types:
    """Converts one schema and records its named types. None stands for an incomplete one."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def convert(self, schema: Any, where: str, depth: int = 0) -> tuple[Any, Any]:
        """Return `schema` without the logical types that fastavro would decode to other objects,
        and its type."""
        if depth > _DEEPEST:
            raise BodySchemaError(f"{where}: types are nested more than {_DEEPEST} deep")
        if isinstance(schema, str):
            return schema, self._by_name(schema, where)
        if isinstance(schema, list):
            return self._union(schema, where, depth)
        if not isinstance(schema, dict):
            raise BodySchemaError(f"{where}: {schema!r} is not a type of Avro")
        kind = schema.get("type")
        if not isinstance(kind, str):
            return self.convert(kind, where, depth + 1)
        logical = schema.get("logicalType")
        if kind == "record":
            return self._record(schema, where, depth)
        if kind == "array":
            items, arrow = self.convert(schema.get("items"), f"{where}[]", depth + 1)
            return schema | {"items": items}, pa.list_(pa.field("element", arrow))
        if kind == "map":
            values, arrow = self.convert(schema.get("values"), f"{where}{{}}", depth + 1)
            return schema | {"values": values}, pa.map_(pa.string(), arrow)
        if kind in ("enum", "fixed", "bytes"):
            arrow = pa.string() if kind == "enum" else pa.binary()
            if logical == "decimal":
                arrow = self._decimal(schema, where)
            elif logical is not None:
                schema = {key: value for key, value in schema.items() if key != "logicalType"}
            if kind != "bytes":
                self._named[str(schema.get("name"))] = arrow
            return schema, arrow
        if logical is not None and (kind, logical) in _LOGICAL:
            return schema, _LOGICAL[kind, logical]
        # A logical type that tables lack, such as a time of day, stays the plain value.
        return kind, self._by_name(kind, where)

    def _by_name(self, name: str, where: str) -> Any:
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name not in self._named:
            raise BodySchemaError(f"{where}: there is no type {name}")
        if self._named[name] is None:
            raise BodySchemaError(f"{where}: {name} contains itself, which no column can hold")
        return self._named[name]

    def _union(self, schema: list[Any], where: str, depth: int) -> tuple[Any, Any]:
        others = [one for one in schema if one != "null"]
        if len(others) != 1:
            raise BodySchemaError(
                f"{where}: a union must be of null and one type, this is {json.dumps(schema)}"
            )
        converted, arrow = self.convert(others[0], where, depth + 1)
        return [one if one == "null" else converted for one in schema], arrow

    def _record(self, schema: dict[str, Any], where: str, depth: int) -> tuple[Any, Any]:
        name = str(schema.get("name"))
        self._named[name] = None
        fields, arrow = [], []
        declared = schema.get("fields")
        if not isinstance(declared, list) or not declared:
            raise BodySchemaError(f"{where}: the record {name} needs at least one field")
        for field in declared:
            if not isinstance(field, dict) or not isinstance(field.get("name"), str):
                raise BodySchemaError(f"{where}: {field!r} is not a field")
            kind, found = self.convert(field.get("type"), f"{where}.{field['name']}", depth + 1)
            fields.append(field | {"type": kind})
            arrow.append(pa.field(field["name"], found))
        self._named[name] = pa.struct(arrow)
        return schema | {"fields": fields}, self._named[name]

    def _decimal(self, schema: dict[str, Any], where: str) -> Any:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        try:
            return pa.decimal128(precision, scale)
        except (TypeError, ValueError, pa.ArrowException):
            raise BodySchemaError(
                f"{where}: there is no decimal of {precision} digits with {scale} behind the "
                "point; tables have at most 38"
            ) from None
