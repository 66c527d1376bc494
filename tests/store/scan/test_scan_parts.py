"""The vectorised parts, against plain Python that does the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.properties import decode
from pocketmq.store.scan.queues.segments import mapped
from pocketmq.store.scan.records.columns import KEYS_TYPE, PROPERTIES_TYPE
from pocketmq.store.scan.records.gather import Places
from pocketmq.store.scan.records.property_table import PropertyTable, split_keys

names = st.sampled_from(["a", "KEYS", "TAGS", "a name of many characters"])
values = st.sampled_from(["", "x", "two words", " k1  k2 ", "标签", "a value of many characters"])
regular = st.lists(st.tuples(names, values), max_size=6).map(
    lambda entries: "".join(f"{name}\x01{value}\x02" for name, value in entries).encode()
)
texts = st.lists(
    regular
    | regular.map(lambda text: text.removesuffix(b"\x02"))
    | st.text("aK\x01\x02", max_size=12).map(str.encode)
    | st.binary(max_size=12),
    max_size=8,
)


def places(contents: list[bytes]) -> Places:
    """The texts, lying one after another in one buffer."""
    length = np.array([len(content) for content in contents], np.int64)
    data = np.frombuffer(b"".join(contents), np.uint8)
    return Places((data,), np.zeros(len(contents), np.intp), np.cumsum(length) - length, length)


@given(st.lists(regular, max_size=8) | texts)
def test_properties_are_those_of_the_codec(contents: list[bytes]) -> None:
    table = PropertyTable(places(contents))
    expected = [decode(content) for content in contents]
    maps = table.maps(PROPERTIES_TYPE)
    maps.validate(full=True)
    assert [sorted(entries) for entries in maps.to_pylist()] == [
        sorted(properties.items()) for properties in expected
    ]
    for name in ("a", "KEYS", "TAGS", "absent"):
        column = table.column(name)
        column.validate(full=True)
        assert column.to_pylist() == [properties.get(name) for properties in expected]
    keys = split_keys(table.column("KEYS"), KEYS_TYPE)
    keys.validate(full=True)
    assert keys.to_pylist() == [
        [key for key in properties.get("KEYS", "").split(" ") if key] for properties in expected
    ]


@given(st.lists(st.lists(st.binary(max_size=40), max_size=6), min_size=1, max_size=3), st.data())
def test_gathering_from_several_buffers(contents: list[list[bytes]], data: st.DataObject) -> None:
    buffers = [np.frombuffer(b"".join(parts), np.uint8) for parts in contents]
    rows = [
        (number, sum(map(len, parts[:at])), part)
        for number, parts in enumerate(contents)
        for at, part in enumerate(parts)
    ]
    rows = data.draw(st.permutations(rows))
    found = Places(
        buffers,
        np.array([number for number, _, _ in rows], np.intp),
        np.array([offset for _, offset, _ in rows], np.int64),
        np.array([len(part) for _, _, part in rows], np.int64),
    )
    array = found.gather()
    array.validate(full=True)
    assert array.to_pylist() == [part for _, _, part in rows]
    filled = np.array([n for n, (_, _, part) in enumerate(rows) if part], np.intp)
    first = found.rows(filled).bytes_at(0)
    assert first.tolist() == [rows[n][2][0] for n in filled]
    some = np.flatnonzero(np.arange(len(rows)) % 2)
    replaced = found.replaced(some, [b"new %d" % n * (n % 3) for n in some.tolist()])
    assert replaced.gather().to_pylist() == [
        b"new %d" % n * (n % 3) if n % 2 else part for n, (_, _, part) in enumerate(rows)
    ]


def test_segments_are_told_by_their_names(tmp_path) -> None:  # type: ignore[no-untyped-def]
    for name, size in ((f"{100:020d}", 50), (f"{150:020d}", 20), (f"{170:020d}", 0), ("notes", 9)):
        (tmp_path / name).write_bytes(bytes(size))
    segments = mapped(tmp_path)
    assert [segment.base for segment in segments.all] == [100, 150]
    assert (segments.begin, segments.end) == (100, 170)
    assert segments.indexes(np.array([99, 100, 149, 150, 169, 500])).tolist() == [
        -1, 0, 0, 1, 1, 1,
    ]  # fmt: skip
    assert segments.find(99) is None
    assert segments.find(170) is None
    found = segments.find(149)
    assert found is not None
    assert found.base == 100
    assert mapped(tmp_path / "none").all == []


def test_a_map_array_has_the_type_that_spark_expects() -> None:
    table = PropertyTable(places([b"a\x01b\x02"]))
    assert table.maps(PROPERTIES_TYPE).type == pa.map_(pa.string(), pa.string())
    assert split_keys(table.column("KEYS"), KEYS_TYPE).type == pa.list_(pa.string())


@pytest.mark.parametrize("count", [0, 1, 5])
def test_records_without_properties(count: int) -> None:
    table = PropertyTable(places([b""] * count))
    assert table.maps(PROPERTIES_TYPE).to_pylist() == [[]] * count
    assert table.column("TAGS").to_pylist() == [None] * count


alike_names = st.lists(
    st.sampled_from(["a", "KEYS", "TAGS", "UNIQ_KEY", "MSG_REGION", "a name of many characters"]),
    min_size=1, max_size=6, unique=True,
)  # fmt: skip


@given(alike_names, st.data())
def test_properties_of_records_that_have_the_same_ones(
    names: list[str], data: st.DataObject
) -> None:
    filled = st.text("xyz 标", min_size=1, max_size=20)
    row = st.lists(filled, min_size=len(names), max_size=len(names))
    rows = [
        list(zip(names, values, strict=True))
        for values in data.draw(st.lists(row, min_size=1, max_size=8))
    ]
    if data.draw(st.booleans()):  # one letter of a name differs, or all are as they were
        at, entry = (
            data.draw(st.integers(0, len(rows) - 1)),
            data.draw(st.integers(0, len(names) - 1)),
        )
        name, value = rows[at][entry]
        letter = data.draw(st.integers(0, len(name) - 1))
        rows[at][entry] = name[:letter] + "_" + name[letter + 1 :], value
    contents = ["".join(f"{n}\x01{v}\x02" for n, v in entries).encode() for entries in rows]
    table = PropertyTable(places(contents))
    maps = table.maps(PROPERTIES_TYPE)
    maps.validate(full=True)
    assert maps.to_pylist() == rows
    for name in (*names, "absent"):
        column = table.column(name)
        column.validate(full=True)
        assert column.to_pylist() == [dict(entries).get(name) for entries in rows]
