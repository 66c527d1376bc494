"""What the accelerator reads of records, against what numpy and Arrow make of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.checksum import crc32
from pocketmq.store.scan.records.bodies import gathered_bodies
from pocketmq.store.scan.records.columns import PROPERTIES_TYPE
from pocketmq.store.scan.records.compiled_records import compiled_bodies, compiled_entries
from pocketmq.store.scan.records.gather import NO_PLACES, Places
from pocketmq.store.scan.records.property_table import gathered_entries

pytestmark = pytest.mark.skipif(compiled_bodies(NO_PLACES) is None, reason="make accelerator")

names = st.sampled_from(["a", "b", "KEYS", "TAGS", "名", "a name of many characters"])
values = st.text("xyz 标", max_size=20) | st.sampled_from(["", "x", "\x01", "a\x01b"])
entry = st.tuples(names, values).map(lambda pair: f"{pair[0]}\x01{pair[1]}\x02")
parts = st.lists(entry | st.text("aK\x01\x02", max_size=5), max_size=12)
texts = parts.map(lambda them: "".join(them).encode()) | st.binary(max_size=40)


@st.composite
def ranges(draw: st.DrawFn, contents: st.SearchStrategy[bytes]) -> Places:
    """Some contents in up to three buffers, with gaps between them, in any order."""
    chunks: list[list[bytes]] = [[] for _ in range(draw(st.integers(1, 3)))]
    rows = []
    for content in draw(st.lists(contents, max_size=20)):
        number = draw(st.integers(0, len(chunks) - 1))
        chunks[number].append(draw(st.sampled_from([b"", b"\x02", b"gap"])))
        rows.append((number, sum(map(len, chunks[number])), len(content)))
        chunks[number].append(content)
    return Places(
        [np.frombuffer(b"".join(chunk), np.uint8) for chunk in chunks],
        np.array([number for number, _, _ in rows], np.intp),
        np.array([offset for _, offset, _ in rows], np.int64),
        np.array([length for _, _, length in rows], np.int64),
    )


@given(ranges(texts))
def test_properties_are_the_same(places: Places) -> None:
    compiled = compiled_entries(places)
    expected = gathered_entries(places)
    if compiled is None:
        found = places.gather().to_pylist()
        assert any(text.decode(errors="replace").encode() != text for text in found)
        return
    maps = compiled.maps(PROPERTIES_TYPE)
    maps.validate(full=True)
    assert maps.type == PROPERTIES_TYPE
    assert maps.to_pylist() == expected.maps(PROPERTIES_TYPE).to_pylist()
    for name in ("a", "KEYS", "TAGS", "名", "", "absent", "a name of many characters"):
        column = compiled.column(name)
        column.validate(full=True)
        assert column == expected.column(name)


@given(ranges(st.binary(max_size=50)))
def test_bodies_are_the_same(places: Places) -> None:
    found = compiled_bodies(places)
    assert found is not None
    found.values.validate(full=True)
    expected = gathered_bodies(places)
    assert found.values == expected.values
    assert found.checksums.tolist() == expected.checksums.tolist()
    assert found.checksums.tolist() == [crc32(body) for body in found.values.to_pylist()]


def of(content: bytes, offset: int, length: int) -> Places:
    """One range of one buffer."""
    buffer = np.frombuffer(content, np.uint8)
    return Places(
        [buffer], np.zeros(1, np.intp), np.array([offset], np.int64), np.array([length], np.int64)
    )


@pytest.mark.parametrize("number", [64, 65])
def test_many_names(number: int) -> None:
    """Names are searched one after another, so of very many Python's table is made."""
    text = b"".join(b"name%d\x01v\x02" % n for n in range(number)) * 2
    found = compiled_entries(of(text, 0, len(text)))
    if number > 64:
        assert found is None
    else:
        assert found is not None
        [entries] = found.maps(PROPERTIES_TYPE).to_pylist()
        assert entries == [(f"name{n}", "v") for n in range(number)]


def test_more_entries_than_are_usual() -> None:
    text = b"a\x01b\x02" * 8000 + b"a\x01c"
    found = compiled_entries(of(text, 0, len(text)))
    assert found is not None
    assert found.maps(PROPERTIES_TYPE).to_pylist() == [[("a", "c")]]
    assert found.column("a").to_pylist() == ["c"]


@pytest.mark.parametrize("text", [b"a\x01\xff\x02", b"\xe6\x01x\x02", b"a\x01b\x02\xe6\xa0"])
def test_what_is_not_utf_8_is_left_to_python(text: bytes) -> None:
    assert compiled_entries(of(text, 0, len(text))) is None


@pytest.mark.parametrize(("offset", "length"), [(-1, 2), (0, 6), (4, 2), (6, 0), (2, -1)])
def test_nothing_outside_of_a_buffer_is_read(offset: int, length: int) -> None:
    places = of(b"a\x01b\x02c", offset, length)
    for read in (compiled_bodies, compiled_entries):
        with pytest.raises((ValueError, OverflowError)):
            read(places)


def test_there_is_a_buffer_for_each_place() -> None:
    places = of(b"abc", 0, 3)
    for number in (-1, 1):
        places.buffer = np.array([number], np.intp)
        for read in (compiled_bodies, compiled_entries):
            with pytest.raises(ValueError, match="outside"):
                read(places)


def test_texts_stay_as_long_as_their_entries() -> None:
    found = compiled_entries(of(b"".join([b"TAGS\x01", b"tag\x02"]), 0, 9))
    assert found is not None
    assert found.column("TAGS").to_pylist() == ["tag"]
