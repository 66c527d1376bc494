"""Scans of archives: what they give, what they read, and what they say about damage."""

from __future__ import annotations

import pickle
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.archive import archive_files
from pocketmq.archive.archives import brokers_under
from pocketmq.archive.errors import ArchiveError, NoArchive
from pocketmq.archive.location import Location
from pocketmq.archive.manifest import Manifest, read_manifest
from pocketmq.archive.objects import Objects
from pocketmq.archive.open_store import open_store
from pocketmq.archive.sparse_log import log_of
from pocketmq.archive.sync import sync
from pocketmq.store.errors import StoreCorrupt
from pocketmq.store.scan.errors import RecordsLost
from pocketmq.store.scan.planning.partitioning import PartitionLimits
from pocketmq.store.scan.planning.plan import ScanRequest, plan
from pocketmq.store.scan.queues.segments import ByteSource, Segments
from pocketmq.store.scan.reader import SliceReader
from pocketmq.store.scan.records.columns import ALL_COLUMNS
from tests.archive.conftest import Bucket, fill
from tests.store.made_store import ENTRY, NOW, MadeStore, rows_of, unpack_golden

Make = Callable[..., MadeStore]


def synced(root: Path, place: str, **options: Any) -> None:
    sync(root, Location(place).open(), everything=True, clock=lambda: NOW, **options)


def rows(place: Path | str, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = open_store(place).to_arrow(**options).to_pylist()
    return sorted(found, key=lambda row: row["physicalOffset"])


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_an_archive_of_an_official_store_gives_the_rows_of_the_store(
    tmp_path: Path, name: str
) -> None:
    root = unpack_golden(name, tmp_path / "store")
    place = str(tmp_path / "archives")
    synced(root, place)
    options = {"columns": list(ALL_COLUMNS), "include_system_topics": True}
    expected = rows(root, **options)
    assert expected
    assert rows(place, **options) == expected
    assert rows(f"file://{place}", **options) == expected
    assert open_store(place).topics == open_store(root).topics


def test_an_archive_in_a_bucket_gives_the_rows_of_the_store(made: Make, bucket: Bucket) -> None:
    store = made()
    store.write()
    place = bucket.url("archives")
    synced(store.root, place)
    assert rows(place) == rows(store.root)
    broker = bucket.url("archives/broker-a")
    assert rows(broker, topic="paid", tags="tag1", columns=["physicalOffset"]) == rows(
        store.root, topic="paid", tags="tag1", columns=["physicalOffset"]
    )


def test_a_scan_keeps_the_bytes_of_one_partition_at_a_time(
    made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "archives")
    for name in ("broker-a", "broker-b", "broker-c"):
        store = made(name=name)
        store.write()
        synced(store.root, place)
    logs: list[weakref.ref[ByteSource]] = []

    def noted(*arguments: Any, **options: Any) -> Segments:
        log = log_of(*arguments, **options)
        logs.append(weakref.ref(log.source))
        return log

    monkeypatch.setattr(archive_files, "log_of", noted)
    most = 0
    for _ in open_store(place).batches():
        most = max(most, sum(log() is not None for log in logs))
    assert len(logs) == 3
    assert most == 1


def test_a_stored_message_is_found_by_its_time(made: Make, tmp_path: Path) -> None:
    store = made(0)
    for _ in range(50):
        fill(store, 4)
        store.now += 60_000
    store.write()
    place = str(tmp_path / "archives")
    synced(store.root, place)
    (archive,) = (broker.look() for broker in brokers_under(Location(place)))
    times = {"start_time": NOW + 10 * 60_000, "end_time": NOW + 20 * 60_000}
    assert rows(place, **times) == rows(store.root, **times)
    for queue in archive.queues.values():
        for row in rows(store.root, topic=queue.topic):
            if row["queueId"] == queue.queue_id:
                stored = round(row["storeTimestamp"].timestamp() * 1000)
                assert archive.first_stored_from(queue, stored) == row["queueOffset"]


def test_archives_of_several_brokers_are_read_as_one(made: Make, tmp_path: Path) -> None:
    place = str(tmp_path / "archives")
    for name in ("broker-a", "broker-b"):
        store = made(name=name)
        store.write()
        synced(store.root, place)
    found = rows(place, columns=["brokerName", "physicalOffset"])
    assert len(found) == 200
    assert {row["brokerName"] for row in found} == {"broker-a", "broker-b"}


def test_a_queue_that_began_anew_has_what_came_after(made: Make, tmp_path: Path) -> None:
    store = made()
    store.write()
    place = str(tmp_path / "archives")
    synced(store.root, place)
    for queue_id in (0, 1):
        store.next_offsets["paid", queue_id] = 0
        store.entries["paid", queue_id].clear()
    fill(store, 100)
    store.write()
    synced(store.root, place)
    assert len(rows(place, topic="paid")) == 34
    assert rows(place) == rows(store.root)


@pytest.mark.parametrize("expired", [False, True])
def test_a_queue_that_lost_all_its_messages_has_those_that_came_after(
    made: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture, expired: bool
) -> None:
    """As when a repair empties it. Of the newer messages the first may have expired."""
    store = made()
    store.write()
    place = str(tmp_path / "archives")
    synced(store.root, place)
    last = store.next_offsets["paid", 0] - 1
    assert rows(place) == rows(store.root)
    assert not caplog.records
    store.next_offsets["paid", 0] = 0
    store.entries["paid", 0].clear()
    for _ in range(last):
        store.put("paid", 0, bytes(200))
    store.write()
    if expired:
        for file in sorted((store.root / "commitlog").iterdir())[:-1]:
            file.unlink()
    synced(store.root, place)
    kept = [row for row in rows(store.root, topic="paid") if not row["queueId"]]
    assert (kept[0]["queueOffset"] > 0) == expired
    caplog.clear()
    assert [row for row in rows(place, topic="paid") if not row["queueId"]] == kept
    assert f"the archived messages 0 to {last} of paid/0 are not read" in caplog.text


def test_a_queue_that_lost_its_newest_messages_keeps_the_others(
    made: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a repair cuts them off: newer ones get their offsets."""
    store = made()
    store.write()
    place = str(tmp_path / "archives")
    synced(store.root, place)
    first = rows(place, topic="paid")
    lost = 3
    store.next_offsets["paid", 0] -= lost
    del store.entries["paid", 0][-lost * ENTRY.size :]
    kept = store.next_offsets["paid", 0]
    for _ in range(5):
        store.put("paid", 0, b"newer")
    store.write()
    synced(store.root, place)
    found = rows(place, topic="paid")
    before = [row for row in first if row["queueId"] or row["queueOffset"] < kept]
    newer = [row for row in found if row not in before]
    assert [row for row in found if row in before] == before
    assert [row["queueOffset"] for row in newer] == list(range(kept, kept + 5))
    assert {row["body"] for row in newer} == {b"newer"}
    assert f"left out the archived messages {kept} to {kept + lost - 1} of paid/0" in caplog.text
    (archive,) = (broker.look() for broker in brokers_under(Location(place)))
    for row in found:
        if not row["queueId"]:
            stored = round(row["storeTimestamp"].timestamp() * 1000)
            queue = archive.queues["paid", 0]
            assert archive.first_stored_from(queue, stored) == row["queueOffset"]


class Counting:
    """A file system that notes the ranges that are read."""

    def __init__(self, system: Any) -> None:
        self._system = system
        self.read: dict[str, list[tuple[int, int]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)

    def open_input_file(self, path: str) -> Any:
        file = self._system.open_input_file(path)
        ranges = self.read.setdefault(path.rpartition("/")[2], [])
        return CountingFile(file, ranges)


class CountingFile:
    def __init__(self, file: Any, ranges: list[tuple[int, int]]) -> None:
        self._file = file
        self._ranges = ranges

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Any:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read_at(self, count: int, at: int) -> Any:
        self._ranges.append((at, at + count))
        return self._file.read_at(count, at)


def test_only_the_blocks_that_are_needed_are_read(tmp_path: Path) -> None:
    from pyarrow import fs

    from pocketmq.archive.sparse_log import BLOCK, log_of

    store = MadeStore(tmp_path / "broker-a", segment_size=8 * 1024 * 1024)
    places = [store.put(body=bytes(1000)) for _ in range(7000)]
    store.write()
    synced(store.root, str(tmp_path / "archives"))
    counting = Counting(fs.LocalFileSystem())
    objects = Objects(counting, str(tmp_path / "archives" / "broker-a"), "shown")
    manifest = read_manifest(objects)
    assert manifest is not None
    import numpy as np

    parts = log_of(objects, manifest.parts)
    wanted = np.array([places[10], places[6000]], np.int64)
    assert parts.source.fetch(wanted, np.array([1000, 1000], np.int64)) is None
    (ranges,) = (found for found in counting.read.values() if found)
    first, second = (place // BLOCK * BLOCK for place in wanted.tolist())
    assert sorted(ranges) == [(first, first + BLOCK), (second, second + BLOCK)]
    segment = parts.find(places[6000])
    assert segment is not None
    content = (store.root / "commitlog" / f"{0:020}").read_bytes()
    assert bytes(segment.view[places[6000] :][:1000]) == content[places[6000] :][:1000]


def test_memory_is_given_back_and_read_again(tmp_path: Path) -> None:
    import numpy as np

    from pocketmq.archive.sparse_log import BLOCK, log_of

    store = MadeStore(tmp_path / "broker-a", segment_size=8 * 1024 * 1024)
    places = np.array([store.put(body=bytes([n % 251]) * 1000) for n in range(7000)], np.int64)
    content = store.write()
    synced(store.root, str(tmp_path / "archives"))
    objects = Location(str(tmp_path / "archives" / "broker-a")).open()
    manifest = read_manifest(objects)
    assert manifest is not None
    parts = log_of(objects, manifest.parts, kept=2 * BLOCK)
    whole = (content / "commitlog" / f"{0:020}").read_bytes()
    (segment,) = parts.all
    for chosen in (places[:50], places[-50:], places[:50]):
        assert parts.source.fetch(chosen, np.full(50, 1000, np.int64)) is None
        begin, end = int(chosen[0]), int(chosen[-1]) + 1000
        assert bytes(segment.view[begin:end]) == whole[begin:end]
    parts.source.expect(places[3000:3300], np.full(300, 1000, np.int64))
    assert not any(segment.view[: BLOCK // 2])


def test_a_plan_covers_every_record_once(made: Make, tmp_path: Path) -> None:
    store = made(500)
    store.write()
    place = str(tmp_path / "archives")
    synced(store.root, place)
    (archive,) = (broker.look() for broker in brokers_under(Location(place)))
    found = []
    partitions = plan(archive, ScanRequest(), PartitionLimits(least=7))
    for slices in partitions:
        files = pickle.loads(pickle.dumps(archive.files.needed_for(slices)))
        reader = SliceReader(files, ["topic", "queueId", "queueOffset", "body"])
        for part in slices:
            found += rows_of(reader.read(part))
    assert len(partitions) >= 7
    assert len(found) == 500
    assert {row["body"] for row in found} == {b"message %d" % number for number in range(500)}


@pytest.fixture
def archived(made: Make, tmp_path: Path) -> tuple[Path, Manifest]:
    store = made(200)
    store.write()
    place = tmp_path / "archives"
    synced(store.root, str(place))
    manifest = read_manifest(Location(str(place / "broker-a")).open())
    assert manifest is not None
    return place, manifest


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    path.write_bytes(bytes(byte ^ 0xFF for byte in path.read_bytes()))


@pytest.mark.parametrize("kind", ["log", "queues"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (Path.unlink, "is missing"),
        (cut, r"it has \d+ bytes; \d+ were uploaded"),
        (flip, "checksum|but found"),
    ],
)
def test_damage_is_named_or_left_out(
    archived: tuple[Path, Manifest],
    caplog: pytest.LogCaptureFixture,
    kind: str,
    damage: Callable[[Path], None],
    reason: str,
) -> None:
    place, manifest = archived
    part = manifest.parts[2]
    name = part.log.name if kind == "log" else part.queues.name
    damage(place / "broker-a" / name)
    with pytest.raises((ArchiveError, StoreCorrupt, RecordsLost), match=reason) as raised:
        rows(place)
    assert f"{place}/broker-a/{name}" in str(raised.value)
    left = rows(place, fail_on_data_loss=False)
    assert len(left) == 200 - part.messages
    assert re.search(rf"left out .*{re.escape(name)}", caplog.text)


def test_entries_that_are_damaged_are_named(archived: tuple[Path, Manifest]) -> None:
    place, manifest = archived
    name = manifest.parts[1].queues.name
    path = place / "broker-a" / name
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    with pytest.raises(RecordsLost, match=f"{name} is damaged: the entries at byte 0"):
        rows(place)


def test_no_archive(tmp_path: Path, bucket: Bucket) -> None:
    bucket.put("other/file", b"content")
    with pytest.raises(NoArchive, match=f"no archive at {bucket.shown}/other"):
        open_store(bucket.url("other"))


def test_a_part_that_never_arrived_is_not_seen(archived: tuple[Path, Manifest]) -> None:
    place, _ = archived
    (place / "broker-a" / "log" / "half").write_bytes(b"half")
    (place / "broker-b" / "log").mkdir(parents=True)
    assert len(rows(place)) == 200
