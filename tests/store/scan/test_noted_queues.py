"""Plans of stores with very many queues, made from what the broker noted when it closed them."""

from __future__ import annotations

import pickle
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pocketmq.store.scan.planning.noted_plan import plan_noted
from pocketmq.store.scan.planning.offsets import EARLIEST, LATEST, OffsetBounds
from pocketmq.store.scan.planning.partitioning import PartitionLimits
from pocketmq.store.scan.planning.plan import ScanRequest, plan
from pocketmq.store.scan.planning.snapshot import StoreSnapshot
from pocketmq.store.scan.planning.tail import take_snapshot
from pocketmq.store.scan.queues.noted_queues import NotedQueues
from pocketmq.store.scan.queues.queue_listing import QueueChoice
from pocketmq.store.scan.queues.queue_slice import QueueSlice
from pocketmq.store.scan.queues.selection import Range, Selection
from pocketmq.store.scan.reader import SliceReader
from tests.spark.stream_store import OpenStore
from tests.store.made_store import NOW

QUEUES = 260
"""Enough for them not to be opened."""
TOPICS = ("T", "T2")
LONG = 17_000
"""Entries that are not all compared with where a partition begins."""
COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset")
EVERYTHING = ScanRequest()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("closed")
    with OpenStore(root) as store:
        for turn in range(3):
            for number in range(QUEUES):
                store.add(1 + (number + turn) % 3, TOPICS[number % 2], number // 2)
            store.add(LONG // 3 + 1, "T")
            store.add(12, "T2", turn, padding=250_000)  # in all enough for two partitions
    return root


@pytest.fixture
def root(closed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(closed, tmp_path / "store")


def rows(store: StoreSnapshot, parts: Iterable[tuple[Selection, Iterable[QueueSlice]]]) -> pa.Table:
    """All rows, in the order of the log."""
    batches = []
    for selection, slices in parts:
        reader = SliceReader(store.files, COLUMNS, selection=selection)
        batches += [batch for part in slices for batch in reader.read(part)]
    return pa.Table.from_batches(batches).sort_by("physicalOffset").combine_chunks()


def rows_of_plan(root: Path, request: ScanRequest = EVERYTHING) -> pa.Table:
    store = take_snapshot(root)
    return rows(store, ((Selection(), part) for part in plan(store, request, PartitionLimits())))


def rows_of_notes(store: StoreSnapshot, partitions: list[NotedQueues] | None) -> pa.Table:
    sent: list[NotedQueues] = pickle.loads(pickle.dumps(partitions))
    parts = ((Selection(physical_offset=each.physical), each.slices(store.files)) for each in sent)
    return rows(store, parts)


def noted(root: Path) -> bool:
    return take_snapshot(root).noted is not None


@pytest.mark.parametrize("cores", [1, 2])
def test_each_record_is_read_once(closed: Path, cores: int) -> None:
    store = take_snapshot(closed)
    partitions = plan_noted(store, EVERYTHING, PartitionLimits(cores=cores))
    assert partitions is not None
    assert len(partitions) == cores
    found = rows_of_notes(store, partitions)
    assert found == rows_of_plan(closed)
    assert len(found) == pc.count_distinct(found["physicalOffset"]).as_py() > LONG


def test_expired_records_are_left_out(root: Path) -> None:
    for file in sorted((root / "commitlog").iterdir())[:2]:
        file.unlink()
    store = take_snapshot(root)
    partitions = plan_noted(store, EVERYTHING, PartitionLimits())
    found = rows_of_notes(store, partitions)
    assert found == rows_of_plan(root)
    assert found["physicalOffset"][0].as_py() >= store.log.begin > 0


def test_a_queue_that_ended_earlier_is_not_in_later_partitions(tmp_path: Path) -> None:
    with OpenStore(tmp_path) as store:
        store.add(1, "Early")
        for number in range(QUEUES):
            store.add(1, "T", number)
        store.add(40, "T", padding=250_000)
    snapshot = take_snapshot(tmp_path)
    partitions = plan_noted(snapshot, EVERYTHING, PartitionLimits(cores=2))
    assert partitions is not None
    assert ["Early" in each.spans for each in partitions] == [True, False]


def test_only_wanted_queues_are_read(closed: Path) -> None:
    request = ScanRequest(lambda topic, queue_id: topic == "T2" and queue_id > 5)
    store = take_snapshot(closed)
    partitions = plan_noted(store, request, PartitionLimits())
    assert rows_of_notes(store, partitions) == rows_of_plan(closed, request)
    nothing = ScanRequest(lambda topic, queue_id: False)
    assert plan_noted(store, nothing, PartitionLimits()) == []


@pytest.mark.parametrize(
    ("request_", "limits"),
    [
        (EVERYTHING, PartitionLimits(least=2)),
        (EVERYTHING, PartitionLimits(most_records=5)),
        (ScanRequest(starting=OffsetBounds(EARLIEST, {"T": {0: 1}})), PartitionLimits()),
        (ScanRequest(ending=OffsetBounds(LATEST, {"T": {0: 1}})), PartitionLimits()),
        (ScanRequest(selection=Selection(queue_offset=Range(1))), PartitionLimits()),
        (ScanRequest(selection=Selection(store_timestamp=Range(NOW))), PartitionLimits()),
    ],
)
def test_what_goes_by_offsets_times_or_counts_takes_all_queues(
    closed: Path, request_: ScanRequest, limits: PartitionLimits
) -> None:
    assert plan_noted(take_snapshot(closed), request_, limits) is None


def test_few_queues_are_opened(closed: Path) -> None:
    choice = QueueChoice(lambda topic, queue_id: queue_id < 50)
    assert noted(closed)
    assert take_snapshot(closed, choice).noted is None


def test_notes_of_an_open_store_do_not_count(tmp_path: Path, closed: Path) -> None:
    root = shutil.copytree(closed, tmp_path / "store")
    with OpenStore(root):
        assert not noted(root)
    assert noted(root)


def test_notes_do_not_count_when_another_broker_was_last(root: Path) -> None:
    checkpoint = root / "checkpoint"
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(struct.pack(">q", NOW * 2) + content[8:])
    assert not noted(root)


def test_damaged_notes_do_not_count(root: Path) -> None:
    path = root / "queuebounds"
    path.write_bytes(path.read_bytes().replace(b"[0,", b"[1,", 1))
    assert not noted(root)
    path.unlink()
    assert not noted(root)


def test_a_queue_that_is_not_noted_takes_all_to_be_opened(root: Path) -> None:
    (root / "consumequeue" / "T" / "999").mkdir()
    assert not noted(root)


def test_a_copy_that_lacks_the_end_of_the_log_takes_all_to_be_opened(root: Path) -> None:
    max((root / "commitlog").iterdir()).unlink()
    assert not noted(root)
    assert rows_of_plan(root).num_rows
