"""Schema evolution: whether rows with other columns still fit into a table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pocketmq.tables.errors import TableError


def widened(table: Any, rows: Any, where: object) -> Any:
    """Return the schema that a table needs to accept rows of another schema.

    Columns and fields of structs may be added; older rows have null in them. Raises TableError
    if one is missing or has another type.
    """
    return pa.schema(_fields(table, rows, "", where))


def _fields(old: Any, new: Any, prefix: str, where: object) -> list[Any]:
    old = {field.name: field for field in old}
    new = {field.name: field for field in new}
    for name in old:
        if name not in new:
            raise TableError(
                f"the table {where} has a column {prefix}{name}, which the new rows lack; export "
                "it as well, or choose another directory"
            )
    fields = [
        pa.field(name, _type(field.type, new[name].type, prefix + name, where))
        for name, field in old.items()
    ]
    return fields + [field for name, field in new.items() if name not in old]


def _type(old: Any, new: Any, name: str, where: object) -> Any:
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return pa.struct(_fields(old, new, f"{name}.", where))
    if old != new:
        raise TableError(
            f"in the table {where} the column {name} is {old}, in the new rows it is {new}; "
            "choose another directory"
        )
    return old
