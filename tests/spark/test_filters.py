from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pocketmq.message.tags import tag_hash
from pocketmq.store.scan.queues.selection import Range, Selection

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pocketmq.spark.filters import push
from pocketmq.spark.pushed import Pushed

MILLIS = 1_795_240_640_388
TIME = datetime.fromtimestamp(MILLIS / 1000, UTC).replace(microsecond=388_000)
BETWEEN = TIME.replace(microsecond=388_500)


def pushed(*filters: Filter) -> Pushed:
    """What is pushed of filters that are all met exactly."""
    found, rest = push(filters)
    assert rest == []
    return found


def test_topics_and_queue_ids() -> None:
    assert pushed().wants("a", "T", 5)
    found = pushed(
        In(("topic",), ("A", "B", None)), EqualTo(("topic",), "A"), IsNotNull(("topic",))
    )
    assert found.wants("a", "A", 0)
    assert not found.wants("a", "B", 0)
    found = pushed(EqualTo(("brokerName",), "a"), In(("brokerName",), ("a", "b")))
    assert found.wants("a", "T", 0)
    assert not found.wants("b", "T", 0)
    found = pushed(GreaterThan(("queueId",), 1), LessThanOrEqual(("queueId",), 3))
    assert [found.wants("a", "T", number) for number in range(5)] == [
        False,
        False,
        True,
        True,
        False,
    ]
    found = pushed(In(("queueId",), (0, 3)), EqualNullSafe(("queueId",), 3))
    assert [found.wants("a", "T", number) for number in range(4)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("column", "field"),
    [("queueOffset", "queue_offset"), ("physicalOffset", "physical_offset")],
)
@pytest.mark.parametrize(
    ("kind", "span"),
    [
        (EqualTo, Range(7, 8)),
        (GreaterThan, Range(8, None)),
        (GreaterThanOrEqual, Range(7, None)),
        (LessThan, Range(None, 7)),
        (LessThanOrEqual, Range(None, 8)),
    ],
)
def test_offsets(column: str, field: str, kind: Any, span: Range) -> None:
    expected: Any = {field: span}
    assert pushed(kind((column,), 7)).selection == Selection(**expected)


@pytest.mark.parametrize(
    ("column", "field"),
    [("storeTimestamp", "store_timestamp"), ("bornTimestamp", "born_timestamp")],
)
@pytest.mark.parametrize(
    ("kind", "time", "span"),
    [
        (EqualTo, TIME, Range(MILLIS, MILLIS + 1)),
        (EqualTo, BETWEEN, Range(0, 0)),
        (GreaterThan, TIME, Range(MILLIS + 1, None)),
        (GreaterThan, BETWEEN, Range(MILLIS + 1, None)),
        (GreaterThanOrEqual, TIME, Range(MILLIS, None)),
        (GreaterThanOrEqual, BETWEEN, Range(MILLIS + 1, None)),
        (LessThan, TIME, Range(None, MILLIS)),
        (LessThan, BETWEEN, Range(None, MILLIS + 1)),
        (LessThanOrEqual, TIME, Range(None, MILLIS + 1)),
        (LessThanOrEqual, BETWEEN, Range(None, MILLIS + 1)),
    ],
)
def test_times(column: str, field: str, kind: Any, time: datetime, span: Range) -> None:
    expected: Any = {field: span}
    assert pushed(kind((column,), time)).selection == Selection(**expected)


def test_tags_narrow_and_stay_with_spark() -> None:
    filters = [In(("tags",), ("A", "B")), EqualTo(("tags",), "B"), IsNotNull(("tags",))]
    found, rest = push(filters)
    assert rest == filters
    assert found.selection == Selection(tag_codes=frozenset([tag_hash("B")]))


@pytest.mark.parametrize(
    "condition",
    [
        Not(EqualTo(("topic",), "A")),
        IsNull(("tags",)),
        IsNotNull(("tags",)),
        IsNotNull(("unknown",)),
        EqualTo(("msgId",), "x"),
        EqualTo(("properties", "topic"), "A"),
        StringStartsWith(("topic",), "A"),
        GreaterThan(("topic",), "A"),
        EqualTo(("queueOffset",), 1.5),
        EqualTo(("queueOffset",), True),
        EqualTo(("storeTimestamp",), datetime(2026, 1, 1)),
        EqualNullSafe(("tags",), None),
        EqualNullSafe(("topic",), None),
    ],
)
def test_everything_else_is_left_to_spark(condition: Filter) -> None:
    assert push([condition]) == (Pushed(), [condition])
