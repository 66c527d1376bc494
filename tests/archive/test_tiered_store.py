"""Reads of RocketMQ's tiered storage: what an official broker wrote, and what may be missing.

An official broker 5.3.3 with rocketmq-tiered-store wrote the golden one beside its store, from 407
messages. Each queue of Orders has several files (tieredStoreCommitLogMaxSize=4096,
commitLogRollingMinimumSize=1024, tieredStoreConsumeQueueMaxSize=800). The index is left out.
"""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from pocketmq import open_store
from pocketmq.archive.archives import brokers_under
from pocketmq.archive.errors import NoArchive
from pocketmq.archive.location import Location
from pocketmq.store.errors import StoreCorrupt, StoreError
from pocketmq.store.scan.errors import RecordsLost
from pocketmq.store.scan.planning.partitioning import PartitionLimits
from pocketmq.store.scan.planning.plan import ScanRequest, plan
from pocketmq.store.scan.reader import SliceReader
from pocketmq.store.scan.records.columns import ALL_COLUMNS
from tests.store.made_store import damage, rows_of, unpack_golden
from tests.unprivileged import unprivileged

MOVED = {"physicalOffset", "offsetMsgId"}
"""What is another one in the log of a queue."""


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return unpack_golden("tiered", tmp_path)


def rows(place: Path | str, **options: Any) -> list[dict[str, Any]]:
    columns = [name for name in ALL_COLUMNS if name not in MOVED]
    found: list[dict[str, Any]] = open_store(place).to_arrow(columns=columns, **options).to_pylist()
    return sorted(found, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def broker_of(golden: Path) -> Path:
    (broker,) = (golden / "tiered").glob("*/golden")
    return broker


def test_the_rows_are_those_of_the_store(golden: Path) -> None:
    expected = rows(golden / "store", topic=["Audit", "Orders"])
    assert len(expected) == 407
    broker = broker_of(golden)
    for place in (golden / "tiered", f"file://{golden}/tiered", broker.parent, broker):
        assert open_store(place).topics == ["Audit", "Orders"]
        assert rows(place) == expected


def test_a_broker_among_others_is_not_left_out(golden: Path) -> None:
    closed = broker_of(golden).with_name("closed")
    shutil.copytree(broker_of(golden), closed)
    assert len(rows(golden / "tiered")) == 2 * 407
    closed.chmod(0)
    try:
        with unprivileged():
            for place in (golden / "tiered", closed.parent):
                with pytest.raises(StoreError, match=f"{closed}.*Permission denied"):
                    rows(place)
            assert len(rows(broker_of(golden))) == 407
    finally:
        closed.chmod(0o755)


def test_few_rows_by_offsets_times_and_tags(golden: Path) -> None:
    whole = rows(golden / "tiered", topic="Orders")
    place = golden / "tiered"
    queue = [row for row in whole if row["queueId"] == 1]
    bounds = {"start_offsets": {"Orders": {1: 50}}, "end_offsets": {"Orders": {1: 70}}}
    found = rows(place, topic="Orders", **bounds)
    assert [row for row in found if row["queueId"] == 1] == queue[50:70]
    time = queue[60]["storeTimestamp"]
    assert rows(place, topic="Orders", start_time=time) == [
        row for row in whole if row["storeTimestamp"] >= time
    ]
    assert rows(place, tags="paid") == [row for row in whole if row["tags"] == "paid"]


def test_a_plan_covers_every_record_once(golden: Path) -> None:
    (broker,) = brokers_under(Location(str(golden / "tiered")))
    store = broker.look()
    partitions = plan(store, ScanRequest(), PartitionLimits(least=7))
    assert len(partitions) >= 7
    found = []
    for slices in partitions:
        files = pickle.loads(pickle.dumps(store.files.needed_for(slices)))
        reader = SliceReader(files, ["topic", "queueId", "queueOffset", "body", "physicalOffset"])
        for part in slices:
            found += rows_of(reader.read(part))
    assert len(found) == 407
    assert len({(row["topic"], row["queueId"], row["queueOffset"]) for row in found}) == 407


def test_expired_files(golden: Path) -> None:
    queue = broker_of(golden) / "Orders" / "0"
    for file in (queue / "COMMIT_LOG").iterdir():
        if int(file.name[-20:]) < 8000:  # of the log first: entries may be left over
            file.unlink()
    left = [row["queueOffset"] for row in rows(golden / "tiered") if row["queueId"] == 0]
    left = left[2:]  # of Audit
    assert 0 < left[0] < 50
    assert left == list(range(left[0], 100))
    with pytest.raises(RecordsLost, match=f"the queue begins at {left[0]}|{left[0] - 1}"):
        rows(golden / "tiered", start_offsets={"Orders": {0: 0}})


def test_entries_without_records_are_not_there_yet(golden: Path) -> None:
    log = broker_of(golden) / "Orders" / "0" / "COMMIT_LOG"
    last = max(log.iterdir(), key=lambda file: int(file.name[-20:]))
    whole = rows(golden / "tiered")
    last.write_bytes(last.read_bytes()[:-1])
    assert len(rows(golden / "tiered")) == len(whole) - 1
    last.unlink()
    assert 0 < len(rows(golden / "tiered")) < len(whole) - 1


def test_damage_names_the_file(golden: Path) -> None:
    log = broker_of(golden) / "Orders" / "2" / "COMMIT_LOG"
    first = next(file for file in log.iterdir() if int(file.name[-20:]) == 0)
    damage(first, 100)
    with pytest.raises(StoreCorrupt, match=first.name):
        rows(golden / "tiered")
    assert len(rows(golden / "tiered", fail_on_data_loss=False)) == 406


def test_a_directory_of_other_things(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    with pytest.raises(NoArchive, match=r"nor .*tiered storage"):
        brokers_under(Location(str(tmp_path)))
