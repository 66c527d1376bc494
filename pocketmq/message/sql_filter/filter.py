"""A compiled filter, and the cache of those in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from pocketmq.message.sql_filter.errors import SqlSyntaxError
from pocketmq.message.sql_filter.expression import Evaluate, Needs
from pocketmq.message.sql_filter.values import Incomparable

#: Characters of an expression: the limit bounds its compile time and its memory.
MAX_LENGTH: Final = 32 * 1024
#: Characters of an expression; up to here 100 stay compiled. Of longer ones, whose compiled form
#: has up to a megabyte, only a few do.
_USUAL_LENGTH: Final = 1024


#: Characters of properties that the cost of a filter is meant for, and what as many more take by
#: themselves.
_USUAL_PROPERTIES: Final = 1024
_WORK_TO_SPLIT: Final = 16

#: Comparisons that filters may take in one turn of an event loop, or one read: a few milliseconds.
FILTER_WORK: Final = 4000


class SqlFilter:
    """An expression that can be asked about messages.

    Attributes:
        text: the expression.
        cost: the maximum number of comparisons for a message.
        needles: each message that it matches has at least one of these among its encoded
            properties, so a search through many messages can look for these first. Empty if there
            are no such texts.
    """

    __slots__ = ("_evaluate", "cost", "needles", "text")

    def __init__(self, text: str, evaluate: Evaluate, needs: Needs = None, cost: int = 1) -> None:
        self.cost = max(cost, 1)
        self.text = text
        self._evaluate = evaluate
        self.needles = _needles(needs)

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """True, False or None (unknown); unknown also when something cannot be compared."""
        try:
            value = self._evaluate(properties)
        except Incomparable:
            return None
        return value if type(value) is bool else None

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message with these properties is wanted: unknown means no."""
        return self.evaluate(properties) is True

    __call__ = matches

    def __repr__(self) -> str:
        return f"SqlFilter({self.text!r})"


def cost_of(accept: Callable[[Mapping[str, str]], bool] | None) -> int:
    """Return the number of comparisons of a filter for a message; 0 without one."""
    return 0 if accept is None else getattr(accept, "cost", 1)


def work_of(
    accept: Callable[[Mapping[str, str]], bool] | None, properties: Mapping[str, str]
) -> int:
    """Return what a filter takes for a message with these properties, in comparisons: a search
    takes longer in longer texts, and so does taking the properties apart."""
    size = sum(map(len, properties)) + sum(map(len, properties.values()))
    more = size // _USUAL_PROPERTIES
    return cost_of(accept) * (1 + more) + _WORK_TO_SPLIT * more


def _needles(needs: Needs) -> tuple[bytes, ...]:
    try:
        needles = tuple(text.encode() for text in sorted(needs or ()))
    except UnicodeEncodeError:  # half of a surrogate pair, which no property has
        return ()
    # Bytes of a record that are not UTF-8 are read as this character.
    return () if any("\ufffd".encode() in needle for needle in needles) else needles


def compile_sql(text: str) -> SqlFilter:
    """Return the filter for an expression; the same text is compiled once.

    Raises:
        SqlSyntaxError: it is not an expression, is too long, or is nested too deeply.
    """
    compiled = _compiled(text) if len(text) <= _USUAL_LENGTH else _compiled_long(text)
    if isinstance(compiled, SqlSyntaxError):
        raise SqlSyntaxError(compiled.line, compiled.column, compiled.reason)
    return compiled


# As many as the reference keeps. Errors are kept too: a client with one asks again and again.
@lru_cache(maxsize=100)
def _compiled(text: str) -> SqlFilter | SqlSyntaxError:
    return _compile(text)


@lru_cache(maxsize=8)
def _compiled_long(text: str) -> SqlFilter | SqlSyntaxError:
    return _compile(text)


def _compile(text: str) -> SqlFilter | SqlSyntaxError:
    if len(text) > MAX_LENGTH:
        return SqlSyntaxError(1, MAX_LENGTH + 1, f"longer than {MAX_LENGTH} characters")
    from pocketmq.message.sql_filter.parser import parse

    try:
        parsed = parse(text)
        return SqlFilter(text, parsed.evaluate, parsed.needs, parsed.cost)
    except SqlSyntaxError as error:
        return error.with_traceback(None)
