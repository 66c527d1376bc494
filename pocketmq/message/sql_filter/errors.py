"""The error for an invalid expression."""

from __future__ import annotations


class SqlSyntaxError(ValueError):
    """An expression that cannot be compiled.

    Attributes:
        line, column: where the error is, both counted from 1.
        reason: what is wrong.
    """

    def __init__(self, line: int, column: int, reason: str) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.line = line
        self.column = column
        self.reason = reason
