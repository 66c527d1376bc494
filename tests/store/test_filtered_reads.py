"""Reads with an SQL filter get what they get when the filter is asked for each message."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pocketmq.message.record_layout import queue_offsets_of
from pocketmq.message.sql_filter import FILTER_WORK, SqlFilter, compile_sql, work_of
from pocketmq.store.message_store import MessageStore
from tests.store.conftest import BORN_HOST, StoreBench

EXPRESSIONS = [
    "k = 'rare'",
    "k = 'rare' OR n > 5",
    "k IN ('rare', 'often') AND n IS NOT NULL",
    "k = 'often'",
    "n BETWEEN 3 AND 4",
    "body = 'rare'",
]
PROPERTIES = [
    "",
    "k\x01rare\x02",
    "k\x01rare",
    "k\x01rarely\x02",
    "xk\x01rare\x02",
    "k\x01often\x02n\x017\x02",
    "n\x013\x02k\x01rare\x02k\x01often\x02",
    "k\x01ra",  # and the next one goes on
    "re\x02",
    "n\x01no number\x02k\x01rare\x02",
]
V6 = bytes(range(20))


def read(store: MessageStore, topic: str, sql: SqlFilter, *, search: bool, most: int) -> list[int]:
    """The offsets that match."""
    end = store.max_offset(topic, 0)
    offset, found = 0, []
    while offset < end:
        # A bound method has no needles to search for.
        result = store.get(topic, 0, offset, most, accept=sql if search else sql.matches)
        assert result.message_count <= most
        assert result.next_begin_offset > offset
        for buffer in result.buffers:
            found += queue_offsets_of(buffer)
        offset = result.next_begin_offset
    return found


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sent=st.lists(
        st.tuples(
            st.sampled_from([""] * 20 + PROPERTIES),
            st.sampled_from([b"", b"body", b"k\x01rare\x02" * 5]),
            st.sampled_from([BORN_HOST, V6]),
        ),
        min_size=20,
        max_size=60,
    ),
    times=st.integers(1, 8),
    topic=st.sampled_from(["A", "T" * 200]),
    most=st.sampled_from([1, 5, 32]),
    text=st.sampled_from(EXPRESSIONS),
)
def test_a_search_finds_what_a_look_at_each_message_finds(
    tmp_path_factory: pytest.TempPathFactory,
    sent: list[tuple[str, bytes, bytes]],
    times: int,
    topic: str,
    most: int,
    text: str,
) -> None:
    root: Path = tmp_path_factory.mktemp("filtered")
    store = StoreBench(root).open(
        mapped_file_size_commit_log=64 << 10, mapped_file_size_consume_queue=20_000
    )
    for properties, body, born_host in sent * times:
        store.put(topic, 0, body, properties, born_timestamp=1, born_host=born_host, tags_code=0)
        store.put("B", 0, body, properties, born_timestamp=1, born_host=BORN_HOST, tags_code=0)
    sql = compile_sql(text)
    assert sql.needles
    expected = read(store, topic, sql, search=False, most=most)
    assert read(store, topic, sql, search=True, most=most) == expected


def test_a_message_whose_properties_cannot_be_found_is_given(bench: StoreBench) -> None:
    """As without a search: the consumer is to see what is damaged."""
    store = bench.open(mapped_file_size_commit_log=1 << 20)
    places = [
        store.put("A", 0, b"b", "k\x01v\x02", born_timestamp=1, born_host=BORN_HOST, tags_code=0)
        for _ in range(100)
    ]
    [file] = store.commit_log.files.mapped
    for number in (3, 77):
        at = places[number].end_offset - len("k\x01v\x02") - 2
        file.map[at : at + 2] = b"\x7f\xff"
    for search in (False, True):
        assert read(store, "A", compile_sql("k = 'w'"), search=search, most=32) == [3, 77]


@pytest.mark.parametrize("search", [True, False])
@pytest.mark.parametrize("terms", [1, 20, 200, 512])
def test_one_read_asks_a_filter_within_bounds(bench: StoreBench, search: bool, terms: int) -> None:
    store = bench.open(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000)
    for number in range(600):
        bench.put(store, "T", properties=f"k\x01{number}\x02")
    sql = compile_sql(" OR ".join(f"k = 'x{term}'" for term in range(terms)))
    asked = 0

    def matches(properties: Mapping[str, str]) -> bool:
        nonlocal asked
        asked += 1
        return sql.matches(properties)

    matches.cost = sql.cost  # type: ignore[attr-defined]
    offset = reads = 0
    while offset < 600:
        asked = 0
        result = store.get("T", 0, offset, 32, accept=sql if search else matches)
        assert result.next_begin_offset > offset
        assert asked * sql.cost <= FILTER_WORK
        offset = result.next_begin_offset
        reads += 1
    if not search:
        assert reads == max(1, -(-600 // (FILTER_WORK // terms)))


@pytest.mark.parametrize("search", [True, False])
def test_one_read_asks_less_about_long_properties(bench: StoreBench, search: bool) -> None:
    store = bench.open(mapped_file_size_commit_log=8 << 20, mapped_file_size_consume_queue=20_000)
    for _ in range(100):
        bench.put(store, "T", properties=f"p\x01{'a' * 30_000}\x02")
    sql = compile_sql("p CONTAINS 'b'")
    asked = 0

    def matches(properties: Mapping[str, str]) -> bool:
        nonlocal asked
        asked += 1
        return sql.matches(properties)

    matches.cost = sql.cost  # type: ignore[attr-defined]
    offset = reads = 0
    while offset < 100:
        result = store.get("T", 0, offset, 32, accept=sql if search else matches)
        assert result.next_begin_offset > offset
        assert result.filter_work <= FILTER_WORK + work_of(sql, {"p": "a" * 30_000})
        offset = result.next_begin_offset
        reads += 1
    assert reads > 8
