"""Where the records begin that are entered in one turn."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.message.record_layout import MIN_RECORD, SYS_FLAG_AT
from pocketmq.store.index.index_builder import record_places

# Runs of records of one size, which are found all at once, and others.
runs = st.lists(
    st.tuples(st.integers(MIN_RECORD, MIN_RECORD + 3), st.integers(1, 40)), min_size=1, max_size=6
)
BASE = 1 << 20


@settings(deadline=None)
@given(runs, st.data())
def test_every_record_is_met_once(sizes: list[tuple[int, int]], data: st.DataObject) -> None:
    expected, file = [], bytearray()
    for size, count in sizes:
        for _ in range(count):
            expected.append(len(file))
            file += struct.pack(">i", size).ljust(size, b"\0")
    known = len(file)
    if data.draw(st.booleans(), "blank"):
        # Of the size of a record, at worst.
        size = data.draw(st.sampled_from([8, sizes[-1][0], 500]), "blank size")
        file += struct.pack(">i", size).ljust(size, b"\0")
        known = len(file)
    else:
        file += bytes(100)
    met: list[int] = []
    position = BASE
    while position < BASE + known:
        most = data.draw(st.integers(1, 6000), "most")
        places, behind = record_places(
            memoryview(file), BASE, position, BASE + known, most, Path("log")
        )
        assert behind > position
        # None begins behind what was asked for.
        assert all(BASE + place < position + most for place in places)
        met += places
        position = behind
    assert met == expected
    assert position == BASE + known


def test_a_turn_is_limited() -> None:
    file = struct.pack(">i", 100).ljust(100, b"\0") * 50 + bytes(100)
    places, behind = record_places(memoryview(file), 0, 0, 5000, 5000, Path("log"), most_records=20)
    assert (list(places), behind) == (list(range(0, 2000, 100)), 2000)


@pytest.mark.parametrize(("hosts", "body_at"), [(0, 84), (1, 96), (3, 108)])
@pytest.mark.parametrize("alike", [True, False])
def test_long_properties_make_a_turn_smaller(hosts: int, body_at: int, alike: bool) -> None:
    """They may have thousands of keys, but bodies do not."""

    def file(body: int) -> memoryview:
        found = bytearray()
        for number in range(50):
            record = bytearray(30_000 + (0 if alike else number))
            struct.pack_into(">i", record, 0, len(record))
            struct.pack_into(">i", record, SYS_FLAG_AT, hosts << 4)
            struct.pack_into(">i", record, body_at, body)
            found += record
        return memoryview(found + bytes(100))

    for body, counts in ((0, range(16, 20)), (29_800, range(50, 51))):
        view = file(body)
        places, _ = record_places(view, 0, 0, len(view) - 100, 2 << 20, Path("log"))
        assert len(places) in counts


@pytest.mark.parametrize("alike", [1, 20])
@pytest.mark.parametrize("size", [0, -1, MIN_RECORD - 1, 2**31 - 1])
def test_behind_what_is_no_record_nothing_is_met(
    alike: int, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    file = struct.pack(">i", 100).ljust(100, b"\0") * alike + struct.pack(">i", size).ljust(200)
    places, behind = record_places(
        memoryview(file), BASE, BASE, BASE + len(file) - 50, 9999, Path("log")
    )
    assert list(places) == list(range(0, alike * 100, 100))
    assert behind == BASE + len(file)
    assert f"at byte {alike * 100}: no record" in caplog.text
