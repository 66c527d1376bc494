"""Errors of tables, of schemas of bodies, and of bodies."""

from __future__ import annotations

from pathlib import Path


class TableError(Exception):
    """A table that cannot be read or written; the text says why, and what to do."""


class TableBusy(TableError):
    """Another process is writing to the table."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"another process is writing to the table {directory}; wait until it has ended"
        )


class BodySchemaError(ValueError):
    """A schema of bodies that cannot be used; the text gives the position and what is allowed."""


class UndecodableBody(Exception):
    """A message whose body does not match the schema, with `on_error` set to `fail`."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(
            f"the body of {message} cannot be decoded: {reason}; set on-error to dead-letter "
            "to put such messages into the dead letters, or to skip to leave them out"
        )
