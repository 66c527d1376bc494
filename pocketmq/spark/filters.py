"""Turns filters that Spark pushes down into a choice of queues and a selection of records.

Conditions on brokerName, topic, queueId, both offsets and both times are applied exactly, so Spark
need not check them again. A condition on tags is applied to the hashes in the consume queue, and
Spark checks it again, since different tags may share a hash. All others are left to Spark.

PySpark has filters from 4.1 on, so only `PushdownReader` imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pocketmq.message.tags import tag_hash
from pocketmq.spark.pushed import Pushed
from pocketmq.store.scan.queues.selection import Range, Selection
from pocketmq.store.scan.records.columns import ALL_COLUMNS

_RANGES: Final[dict[str, Callable[[Range], Selection]]] = {
    "queueOffset": lambda span: Selection(queue_offset=span),
    "physicalOffset": lambda span: Selection(physical_offset=span),
    "storeTimestamp": lambda span: Selection(store_timestamp=span),
    "bornTimestamp": lambda span: Selection(born_timestamp=span),
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING: Final = Range(0, 0)


def push(filters: Iterable[Filter]) -> tuple[Pushed, list[Filter]]:
    """Return the selection of `filters` (all of which must hold), and those that Spark must still
    apply."""
    pushed = Pushed()
    rest = []
    for condition in filters:
        narrowed, is_met = _narrow(pushed, condition)
        pushed = narrowed or pushed
        if not is_met:
            rest.append(condition)
    return pushed, rest


def _narrow(pushed: Pushed, condition: Filter) -> tuple[Pushed | None, bool]:
    """Return `pushed` with one more condition (None if it cannot be pushed), and whether the result
    applies it fully."""
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    column = path[0] if len(path) == 1 else ""
    if isinstance(condition, IsNotNull):
        return None, column in ALL_COLUMNS and column != "tags"  # the only column with nulls
    if column in ("brokerName", "topic", "tags"):
        values = _values(condition, str)
        if values is None:
            return None, False
        if column == "brokerName":
            return replace(pushed, brokers=_both(pushed.brokers, values)), True
        if column == "topic":
            return replace(pushed, topics=_both(pushed.topics, values)), True
        narrower = Selection(tag_codes=frozenset(map(tag_hash, values)))
        return replace(pushed, selection=pushed.selection & narrower), False
    if column == "queueId":
        values = _values(condition, int)
        if values is not None:
            return replace(pushed, queue_ids=_both(pushed.queue_ids, values)), True
        span = _range(condition)
        if span is not None:
            return replace(pushed, queue_range=pushed.queue_range & span), True
    elif column in _RANGES:
        span = _range(condition) if column.endswith("Offset") else _time_range(condition)
        if span is not None:
            return replace(pushed, selection=pushed.selection & _RANGES[column](span)), True
    return None, False


def _both(old: frozenset[Any] | None, new: frozenset[Any]) -> frozenset[Any]:
    return new if old is None else old & new


def _values(condition: Filter, kind: type) -> frozenset[Any] | None:
    """Return the values that a column may have, if the condition lists them."""
    if isinstance(condition, EqualTo | EqualNullSafe):
        values: tuple[Any, ...] = (condition.value,)
    elif isinstance(condition, In):
        values = tuple(value for value in condition.value if value is not None)
    else:
        return None
    return frozenset(values) if all(type(value) is kind for value in values) else None


def _range(condition: Filter) -> Range | None:
    """Return the integers a column may have, if the condition is a comparison with an integer."""
    value = getattr(condition, "value", None)
    if type(value) is not int:
        return None
    match condition:
        case EqualTo() | EqualNullSafe():
            return Range(value, value + 1)
        case GreaterThan():
            return Range(value + 1, None)
        case GreaterThanOrEqual():
            return Range(value, None)
        case LessThan():
            return Range(None, value)
        case LessThanOrEqual():
            return Range(None, value + 1)
    return None


def _time_range(condition: Filter) -> Range | None:
    """Return the milliseconds a time may have, if the condition compares it with a timestamp."""
    value = getattr(condition, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    millis, micros = divmod((value - _EPOCH) // timedelta(microseconds=1), 1000)
    # Stored times have no microseconds, so a limit between two milliseconds lies above the lower.
    above = millis + 1 if micros else millis
    match condition:
        case EqualTo() | EqualNullSafe():
            return _NOTHING if micros else Range(millis, millis + 1)
        case GreaterThan():
            return Range(millis + 1, None)
        case GreaterThanOrEqual():
            return Range(above, None)
        case LessThan():
            return Range(None, above)
        case LessThanOrEqual():
            return Range(None, millis + 1)
    return None
