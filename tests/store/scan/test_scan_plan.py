"""Planning: every record in exactly one partition, and none that was not asked for."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.scan.errors import RecordsLost
from pocketmq.store.scan.planning.offsets import EARLIEST, LATEST, OffsetBounds
from pocketmq.store.scan.planning.partitioning import PartitionLimits
from pocketmq.store.scan.planning.plan import ScanRequest, plan
from pocketmq.store.scan.planning.snapshot import State, StoreSnapshot
from pocketmq.store.scan.planning.tail import take_snapshot
from pocketmq.store.scan.queues.queue_listing import QueueChoice
from pocketmq.store.scan.queues.queue_slice import QueueSlice, Rows
from pocketmq.store.scan.queues.selection import Range, Selection
from tests.spark.stream_store import OpenStore
from tests.store.made_store import NOW, MadeStore, held_open, unpack_golden, write


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> StoreSnapshot:
    """Queues of 200, 50 and 5 records, the last of which have no entries, with bodies that grow."""
    made = MadeStore(tmp_path_factory.mktemp("planned"), segment_size=65_536)
    for n in range(200):
        made.put("A", 0, bytes(n * 5), entry=n < 190)
        if n % 4 == 0:
            made.put("A", 1, bytes(100), entry=n < 190)
        if n % 40 == 0:
            made.put("B", 0, entry=n < 190)
    return take_snapshot(made.write())


def rows_in(store: StoreSnapshot, part: QueueSlice) -> Iterator[Rows]:
    return part.rows(store.files.queue(part.topic, part.queue_id))


def covered(
    store: StoreSnapshot, partitions: Sequence[Sequence[QueueSlice]]
) -> list[tuple[str, int, int]]:
    return sorted(
        (part.topic, part.queue_id, offset)
        for slices in partitions
        for part in slices
        for rows in rows_in(store, part)
        for offset in rows.offset.tolist()
    )


EVERYTHING = sorted(
    [("A", 0, n) for n in range(200)]
    + [("A", 1, n) for n in range(50)]
    + [("B", 0, n) for n in range(5)]
)


@given(
    st.builds(
        PartitionLimits,
        least=st.integers(1, 300),
        cores=st.integers(1, 8),
        most_records=st.none() | st.integers(1, 300),
    )
)
def test_every_record_is_in_one_partition(store: StoreSnapshot, limits: PartitionLimits) -> None:
    partitions = plan(store, ScanRequest(), limits)
    assert covered(store, partitions) == EVERYTHING
    assert all(len(part) for slices in partitions for part in slices)
    assert len(partitions) >= min(limits.least, len(EVERYTHING))
    if limits.most_records:
        assert max(sum(map(len, slices)) for slices in partitions) <= limits.most_records


def test_partitions_are_of_about_equal_bytes(store: StoreSnapshot) -> None:
    sizes = [
        sum(int(rows.size.sum()) for part in slices for rows in rows_in(store, part))
        for slices in plan(store, ScanRequest(), PartitionLimits(least=8))
    ]
    assert len(sizes) == 8
    assert max(sizes) < 1.5 * sum(sizes) / 8


def test_partitions_lie_one_behind_the_other_in_the_log(store: StoreSnapshot) -> None:
    ranges = []
    for slices in plan(store, ScanRequest(), PartitionLimits(least=5)):
        found = (rows for part in slices for rows in rows_in(store, part))
        physical = [place for rows in found for place in rows.physical]
        ranges.append((min(physical), max(physical)))
    assert len(ranges) == 5
    assert all(end < begin for (_, end), (begin, _) in pairwise(ranges))


def test_enough_bytes_are_split_over_the_cores(tmp_path: Path) -> None:
    made = MadeStore(tmp_path, segment_size=16 * 1024 * 1024)
    for _ in range(10):
        made.put(body=bytes(1024 * 1024))
    snapshot = take_snapshot(made.write())
    assert len(plan(snapshot, ScanRequest(), PartitionLimits(cores=2))) == 2
    assert (
        len(plan(snapshot, ScanRequest(), PartitionLimits(cores=64))) == 2
    )  # 4 MiB and more for each


def test_nothing_asked_for_is_no_partition(store: StoreSnapshot) -> None:
    request = ScanRequest(wants=lambda topic, queue_id: topic == "C")
    assert plan(store, request, PartitionLimits(least=5)) == []


def asked(store: StoreSnapshot, **request: object) -> list[tuple[str, int, int]]:
    return covered(store, plan(store, ScanRequest(**request), PartitionLimits(least=3)))  # type: ignore[arg-type]


def test_offsets(store: StoreSnapshot) -> None:
    starting = OffsetBounds(LATEST, {"A": {0: 195, 1: EARLIEST}, "B": {0: 4}})
    ending = OffsetBounds(LATEST, {"A": {1: 2}})
    assert asked(store, starting=starting, ending=ending) == [
        *[("A", 0, n) for n in range(195, 200)],
        *[("A", 1, n) for n in range(2)],
        ("B", 0, 4),
    ]


@pytest.mark.parametrize(
    ("start", "stop", "message", "count"),
    [
        (EARLIEST, 60, "the records 50 to 59 are gone: the queue ends at 50", 10),
        (70, 75, "the records 50 to 69 are gone: the queue ends at 50", 20),
        (70, LATEST, "the records 50 to 69 are gone: the queue ends at 50", 20),
    ],
)
def test_offsets_that_are_not_there(
    store: StoreSnapshot, start: int, stop: int, message: str, count: int
) -> None:
    request = ScanRequest(
        wants=lambda topic, queue_id: (topic, queue_id) == ("A", 1),
        starting=OffsetBounds(EARLIEST, {"A": {1: start}}),
        ending=OffsetBounds(LATEST, {"A": {1: stop}}),
    )
    with pytest.raises(RecordsLost, match=message):
        plan(store, request, PartitionLimits())
    losses: list[int] = []
    partitions = plan(
        store, request, PartitionLimits(), lambda number, error: losses.append(number)
    )
    assert losses == [count]
    expected = range(max(start, 0), 50) if start < 50 else range(0)
    assert covered(store, partitions) == [("A", 1, n) for n in expected]


def test_an_end_before_the_start_is_nothing(store: StoreSnapshot) -> None:
    starting, ending = OffsetBounds(20, {}), OffsetBounds(10, {"B": {0: EARLIEST}})
    assert asked(store, wants=lambda topic, _: topic == "A", starting=starting, ending=ending) == []


def test_offsets_before_the_first_that_is_left(tmp_path: Path) -> None:
    made = MadeStore(tmp_path)
    for _ in range(300):
        made.put()
    root = made.write()
    (root / "commitlog" / f"{0:020d}").unlink()
    snapshot = take_snapshot(root)
    first = snapshot.queues["T", 0].min_offset
    assert first > 0
    request = ScanRequest(starting=OffsetBounds(EARLIEST, {"T": {0: 2}}))
    with pytest.raises(
        RecordsLost, match=f"the records 2 to {first - 1} are gone: the queue begins at {first}"
    ):
        plan(snapshot, request, PartitionLimits())


def test_times_narrow_what_is_read(tmp_path: Path) -> None:
    made = MadeStore(tmp_path)
    for n in range(100):
        made.now = NOW + n * 10_000
        made.put(entry=n < 80)
    snapshot = take_snapshot(made.write())

    def planned(start: int | None, stop: int | None) -> list[int]:
        times = Range(
            None if start is None else NOW + start * 10_000,
            None if stop is None else NOW + stop * 10_000,
        )
        found = asked(snapshot, selection=Selection(store_timestamp=times))
        return [offset for _, _, offset in found]

    # A minute more on either side, for clocks that were set back; reading is exact.
    assert planned(50, 60) == list(range(44, 66))
    assert planned(None, 10) == list(range(16))
    assert planned(95, None) == list(range(89, 100))
    assert planned(200, None) == []
    assert planned(None, -200) == []


def test_slices_are_cut_to_what_they_have(store: StoreSnapshot) -> None:
    whole = store.queues["A", 1].slice()
    assert len(whole) == 50
    part = whole.cut(46, 1000)
    assert (part.start, part.stop) == (46, 50)
    assert [rows.offset.tolist() for rows in rows_in(store, part)] == [[46, 47], [48, 49]]
    assert len(whole.cut(30, 20)) == 0


def test_a_gap_in_the_queue_offsets_is_no_records(tmp_path: Path) -> None:
    """They are where a repair found messages lost. A damaged head in the log may name any offset,
    but where the log has no room for the messages before it, the record is left out."""
    made = MadeStore(tmp_path)
    for n in range(10):
        made.put(entry=n < 5)
    made.put("U", entry=False, body=bytes(12_000))
    made.put(entry=False, queue_offset=100)
    made.put(entry=False, queue_offset=2**50)
    made.put(entry=False, queue_offset=2**62)
    snapshot = take_snapshot(made.write())
    everything = [*(("T", 0, n) for n in [*range(10), 100]), ("U", 0, 0)]
    for limits, count in (
        (PartitionLimits(), 1),
        (PartitionLimits(least=4), 4),
        (PartitionLimits(most_records=3), 4),
    ):
        partitions = plan(snapshot, ScanRequest(), limits)
        assert len(partitions) == count
        assert covered(snapshot, partitions) == everything


ONLY_A = QueueChoice(lambda *queue: queue == ("A", 1), lambda topic: topic == "A")


def two_topics(root: Path) -> MadeStore:
    made = MadeStore(root)
    for number in range(40):
        made.put("AB"[number % 2], number // 2 % 2)
    return made


def test_an_open_store_is_asked_for_the_wanted_queues_only(tmp_path: Path) -> None:
    root = two_topics(tmp_path).write()
    with held_open(root):
        snapshot = take_snapshot(root, ONLY_A)
    assert snapshot.queues.keys() == {("A", 1)}
    assert set(snapshot.listing) == {(topic, number) for topic in "AB" for number in range(2)}
    assert snapshot.queues["A", 1].max_offset == 10


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_closed_store_tells_where_entries_end(tmp_path: Path, is_ours: bool) -> None:
    """This broker's checkpoint does; the official broker's has no copy of its first 48 bytes."""
    made = two_topics(tmp_path)
    entered = made.put("B", 0)
    made.put("A", 1, b"only in the log", entry=False)
    made.put("New", 0, b"only in the log", entry=False)
    root = made.write()
    fields = b"\1" * 48
    ours = fields + struct.pack(">q16xqq", entered, 0, 0) if is_ours else bytes(88)
    content = fields + ours + struct.pack(">I", crc32(ours) if is_ours else 0)
    write(root / "checkpoint", content.ljust(4096, b"\0"))
    snapshot = take_snapshot(root, ONLY_A)
    assert snapshot.queues["A", 1].max_offset == 11
    assert (("B", 0) in snapshot.queues) is not is_ours
    assert set(snapshot.listing) == set(take_snapshot(root).listing)
    assert ("New", 0) in snapshot.listing


def test_a_broker_that_has_stopped_leaves_word_of_where_entries_end(tmp_path: Path) -> None:
    with OpenStore(tmp_path) as store:
        store.add(30, "A", 1)
        store.add(20, "B", 0)
    snapshot = take_snapshot(tmp_path, ONLY_A)
    assert snapshot.state is State.CLEAN
    assert snapshot.queues.keys() == {("A", 1)}
    assert snapshot.queues["A", 1].max_offset == 30
    assert set(snapshot.listing) == {("A", 1), ("B", 0)}


def test_of_a_store_that_the_official_broker_closed_all_queues_are_read(tmp_path: Path) -> None:
    root = unpack_golden("clean", tmp_path)
    whole = take_snapshot(root)
    for topic, queue_id in whole.queues:
        one = take_snapshot(root, QueueChoice(lambda *queue, one=(topic, queue_id): queue == one))
        assert one.queues.keys() == whole.queues.keys()
        assert one.queues[topic, queue_id].max_offset == whole.queues[topic, queue_id].max_offset


def test_our_checkpoint_does_not_count_when_the_official_broker_was_last(tmp_path: Path) -> None:
    with OpenStore(tmp_path) as store:
        store.add(30, "A", 1)
        store.add(20, "B", 0)
    checkpoint = tmp_path / "checkpoint"
    content = checkpoint.read_bytes()
    # It writes its own fields only, here the time of a later message.
    checkpoint.write_bytes(struct.pack(">q", NOW * 2) + content[8:])
    assert take_snapshot(tmp_path, ONLY_A).queues.keys() == {("A", 1), ("B", 0)}
