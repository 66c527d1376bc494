"""The columns as Spark types, and the schemas that a user may request with `.schema(...)`.

Spark does not tell a Python source which columns a query uses. To read less, a user gives a schema:
any of the columns, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from pocketmq.store.scan.records.columns import ALL_COLUMNS, COLUMNS

_TYPES: Final = {
    "string": "string",
    "binary": "binary",
    "int32": "int",
    "int64": "bigint",
    "timestamp[us, tz=UTC]": "timestamp",
    "list<element: string>": "array<string>",
    "map<string, string>": "map<string,string>",
}


class SchemaError(ValueError):
    """A schema with a column that does not exist or has another type."""


def ddl(include_metadata: bool) -> str:
    """Return the schema of the source in Spark's words."""
    return ddl_of(ALL_COLUMNS if include_metadata else COLUMNS)


def ddl_of(names: Iterable[str]) -> str:
    """Return the schema of some columns in Spark's words."""
    return ", ".join(f"{name} {_TYPES[str(ALL_COLUMNS[name])]}" for name in names)


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema that Spark expects of batches, checked against the existing columns.

    Raises:
        SchemaError: a column does not exist, or has another type.
    """
    fields = []
    for field in schema:
        kind = ALL_COLUMNS.get(field.name)
        if kind is None:
            raise SchemaError(f"there is no column {field.name}; known: {', '.join(ALL_COLUMNS)}")
        asked = field.dataType.simpleString()
        if asked != _TYPES[str(kind)]:
            raise SchemaError(
                f"column {field.name} is {_TYPES[str(kind)]}, not {asked}: cast it in the query"
            )
        if field.name == "tags" and not field.nullable:
            raise SchemaError(
                "column tags is null where a message has no tag: leave out NOT NULL, and filter by "
                "tags IS NOT NULL in the query"
            )
        fields.append(pa.field(field.name, kind, field.nullable))
    if not fields:
        raise SchemaError("the schema has no column")
    return pa.schema(fields)
