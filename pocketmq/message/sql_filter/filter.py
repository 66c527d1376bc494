"""A compiled filter, and the cache of those in use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from pocketmq.message.sql_filter.errors import SqlSyntaxError
from pocketmq.message.sql_filter.expression import Evaluate
from pocketmq.message.sql_filter.values import Incomparable

#: Characters of an expression: the time that one may take to compile, and its memory, are bounded.
MAX_LENGTH: Final = 32 * 1024


class SqlFilter:
    """An expression that can be asked about messages.

    Attributes:
        text: the expression.
    """

    __slots__ = ("_evaluate", "text")

    def __init__(self, text: str, evaluate: Evaluate) -> None:
        self.text = text
        self._evaluate = evaluate

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """True, False or None (unknown); unknown also when something cannot be compared."""
        try:
            value = self._evaluate(properties)
        except Incomparable:
            return None
        return value if type(value) is bool else None

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message with these properties is wanted: what is unknown is not."""
        return self.evaluate(properties) is True

    def __repr__(self) -> str:
        return f"SqlFilter({self.text!r})"


def compile_sql(text: str) -> SqlFilter:
    """Return the filter for an expression; the same text is compiled once.

    Raises:
        SqlSyntaxError: it is not an expression, is too long, or is nested too deeply.
    """
    compiled = _compiled(text)
    if isinstance(compiled, SqlSyntaxError):
        raise SqlSyntaxError(compiled.line, compiled.column, compiled.reason)
    return compiled


# As many as the reference keeps. Errors are kept too: a client with one asks again and again.
@lru_cache(maxsize=100)
def _compiled(text: str) -> SqlFilter | SqlSyntaxError:
    if len(text) > MAX_LENGTH:
        return SqlSyntaxError(1, MAX_LENGTH + 1, f"longer than {MAX_LENGTH} characters")
    from pocketmq.message.sql_filter.parser import parse

    try:
        return SqlFilter(text, parse(text).evaluate)
    except SqlSyntaxError as error:
        return error.with_traceback(None)
