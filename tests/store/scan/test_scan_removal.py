"""Scans of a store whose broker removes files meanwhile: expired ones, and those of a topic."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.scan.direct_scan import scan
from pocketmq.store.scan.errors import NoStore, RecordsLost
from pocketmq.store.scan.planning.partitioning import PartitionLimits
from pocketmq.store.scan.planning.plan import ScanRequest, plan
from pocketmq.store.scan.planning.tail import take_snapshot
from pocketmq.store.scan.queues.queue_slice import QueueSlice
from pocketmq.store.scan.queues.segments import MappedSegment, Mappings
from pocketmq.store.scan.queues.selection import Range, Selection
from pocketmq.store.scan.reader import SliceReader
from pocketmq.store.scan.records.topic_table import local_files
from tests.store.made_store import NOW, MadeStore, held_open, rows_of


def filled(root: Path, count: int = 600) -> Path:
    store = MadeStore(root)
    for n in range(count):
        store.put(body=b"body %d" % n)
    return store.write()


def files(root: Path, directory: str) -> list[Path]:
    return sorted((root / directory).iterdir())


def planned(root: Path) -> QueueSlice:
    [[whole]] = plan(take_snapshot(root), ScanRequest(), PartitionLimits())
    return whole


def before_reading(
    monkeypatch: pytest.MonkeyPatch, path: Path, remove: Callable[[], object]
) -> None:
    """Calls `remove` once, when a file that was listed is about to be mapped or opened."""
    map_file, open_file = Mappings.bytes_of, os.open
    pending = [remove]

    def opened(file: Any, *arguments: Any, **named: Any) -> int:
        if pending and file == path:
            pending.pop()()
        return open_file(file, *arguments, **named)

    def bytes_of(self: Mappings, segment: MappedSegment) -> Any:
        if pending and segment.path == path:
            pending.pop()()
        return map_file(self, segment)

    monkeypatch.setattr(Mappings, "bytes_of", bytes_of)
    monkeypatch.setattr(os, "open", opened)


def test_the_first_file_of_the_log_goes_between_planning_and_reading(tmp_path: Path) -> None:
    root = filled(tmp_path)
    wanted = planned(root)
    reader = SliceReader(local_files(root), ["queueOffset"], fail_on_data_loss=False)
    strict = SliceReader(local_files(root), ["queueOffset"])
    files(root, "commitlog")[0].unlink()
    rows = [row["queueOffset"] for row in rows_of(reader.read(wanted))]
    left = len(rows)
    assert 0 < left < 600
    assert rows == list(range(600 - left, 600))
    assert reader.skipped == 600 - left
    with pytest.raises(RecordsLost, match="records 0 to 49 are gone"):
        rows_of(strict.read(wanted))


def test_all_files_of_the_log_but_the_last_go(tmp_path: Path) -> None:
    root = filled(tmp_path)
    wanted = planned(root)
    reader = SliceReader(local_files(root), ["queueOffset"], fail_on_data_loss=False)
    for path in files(root, "commitlog")[:-1]:
        path.unlink()
    rows = [row["queueOffset"] for row in rows_of(reader.read(wanted))]
    assert rows == list(range(600 - len(rows), 600))
    assert rows
    assert reader.skipped == 600 - len(rows)


def test_the_rest_of_a_queue_is_read_behind_a_file_that_went(tmp_path: Path) -> None:
    root = filled(tmp_path)
    wanted = planned(root)
    first, *others = files(root, "consumequeue/T/0")
    assert others
    kept = int(others[0].name) // 20
    first.unlink()
    reader = SliceReader(local_files(root), ["queueOffset"], fail_on_data_loss=False)
    rows = [row["queueOffset"] for row in rows_of(reader.read(wanted))]
    assert rows == list(range(kept, 600))
    assert reader.skipped == kept
    with pytest.raises(RecordsLost, match=f"records 0 to {kept - 1} are gone"):
        rows_of(SliceReader(local_files(root), ["queueOffset"]).read(wanted))


def test_a_file_of_a_queue_goes_after_it_was_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = filled(tmp_path)
    wanted = planned(root)
    first, second, *_ = files(root, "consumequeue/T/0")
    kept = int(second.name) // 20
    before_reading(monkeypatch, first, first.unlink)
    reader = SliceReader(local_files(root), ["queueOffset"], fail_on_data_loss=False)
    rows = [row["queueOffset"] for row in rows_of(reader.read(wanted))]
    assert rows == list(range(kept, 600))
    assert reader.skipped == kept


@pytest.mark.parametrize("directory", ["commitlog", "consumequeue/T/0"])
def test_files_go_while_a_scan_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    root = filled(tmp_path)
    first = files(root, directory)[0]
    before_reading(monkeypatch, first, first.unlink)
    stored_from_the_first_on = ScanRequest(selection=Selection(store_timestamp=Range(NOW, None)))
    batches = scan(root, ["queueOffset"], stored_from_the_first_on)
    rows = [row["queueOffset"] for row in rows_of(batches)]
    assert 0 < len(rows) < 600
    assert rows == list(range(600 - len(rows), 600))


def test_a_topic_goes_while_a_scan_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MadeStore(tmp_path)
    store.put("Gone")
    store.put("Kept")
    root = store.write()
    topic = root / "consumequeue" / "Gone"
    before_reading(monkeypatch, topic / "0" / f"{0:020d}", lambda: shutil.rmtree(topic))
    # A closed store's records without entries would be found in its log.
    with held_open(root):
        assert [row["topic"] for row in rows_of(scan(root, ["topic"]))] == ["Kept"]


def test_a_store_that_goes_altogether_is_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = filled(tmp_path / "store")
    last = files(root, "consumequeue/T/0")[-1]
    before_reading(monkeypatch, last, lambda: shutil.rmtree(root))
    with pytest.raises(NoStore):
        rows_of(scan(root))
