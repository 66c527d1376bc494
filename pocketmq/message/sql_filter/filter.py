"""A compiled filter, and the cache of those in use."""

from __future__ import annotations

import importlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from weakref import WeakValueDictionary

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

    __slots__ = ("__weakref__", "_evaluate", "cost", "needles", "text")

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
    compiled = known_sql(text)
    if compiled is None:
        for _ in compile_steps(text):
            pass
        compiled = _kept_of(text).found[text]
    if isinstance(compiled, SqlSyntaxError):
        raise SqlSyntaxError(compiled.line, compiled.column, compiled.reason)
    return compiled


def known_sql(text: str) -> SqlFilter | SqlSyntaxError | None:
    """Return what an expression was compiled to, or why it is none, if that is kept or in use."""
    return _kept_of(text).get(text) or _in_use.get(text)


def load_parser() -> threading.Thread:
    """Return a thread, started, that loads the parser and builds its tables. This takes a tenth of
    a second, for which otherwise the first expression would keep everybody waiting."""
    thread = threading.Thread(
        target=importlib.import_module,
        args=("pocketmq.message.sql_filter.parser",),
        name="load-sql-parser",
        daemon=True,
    )
    thread.start()
    return thread


def compile_steps(text: str) -> Iterator[None]:
    """Compile an expression in steps of less than half a millisecond each; after the last one
    `known_sql` has the result."""
    compiled: SqlFilter | SqlSyntaxError
    if len(text) > MAX_LENGTH:
        reason = f"longer than {MAX_LENGTH} characters"
        compiled = SqlSyntaxError(1, MAX_LENGTH + 1, reason)
    else:
        from pocketmq.message.sql_filter.parser import parse

        try:
            parsed = yield from parse(text)
            compiled = SqlFilter(text, parsed.evaluate, parsed.needs, parsed.cost)
        except SqlSyntaxError as error:
            compiled = error.with_traceback(None)
    _in_use[text] = compiled
    _kept_of(text).put(text, compiled)


class _Kept:
    """The most recent results. Errors are kept too: a client with one asks again and again."""

    def __init__(self, most: int) -> None:
        self.found: OrderedDict[str, SqlFilter | SqlSyntaxError] = OrderedDict()
        self._most = most

    def get(self, text: str) -> SqlFilter | SqlSyntaxError | None:
        found = self.found.get(text)
        if found is not None:
            self.found.move_to_end(text)
        return found

    def put(self, text: str, result: SqlFilter | SqlSyntaxError) -> None:
        self.found[text] = result
        if len(self.found) > self._most:
            self.found.popitem(last=False)


def _kept_of(text: str) -> _Kept:
    return _usual if len(text) <= _USUAL_LENGTH else _long


_usual: Final = _Kept(100)  # as many as the reference keeps
_long: Final = _Kept(8)
# Requests that wait keep theirs: it need not be compiled again for them.
_in_use: Final[WeakValueDictionary[str, SqlFilter | SqlSyntaxError]] = WeakValueDictionary()
