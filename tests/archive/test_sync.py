"""What `sync` uploads, and what it does again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.archive.errors import ObjectDamaged, OtherStore, Unreachable, WrongManifest
from pocketmq.archive.location import Location
from pocketmq.archive.manifest import Manifest, read_manifest
from pocketmq.archive.objects import Objects
from pocketmq.archive.sync import SyncReport, sync
from pocketmq.archive.verify import verify
from tests.archive.conftest import Bucket, fill
from tests.store.made_store import ENTRY, NOW, MadeStore, held_open

Make = Callable[..., MadeStore]


def synced(store: MadeStore, archives: Objects, **options: Any) -> SyncReport:
    return sync(store.root, archives, clock=lambda: NOW, **options)


def manifest_of(archives: Objects, broker: str = "broker-a") -> Manifest:
    manifest = read_manifest(archives.under(broker))
    assert manifest is not None
    return manifest


def log_of(store: MadeStore) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store.root / "commitlog").iterdir()))


def test_full_files_are_uploaded_byte_by_byte(
    made: Make, archives: Objects, bucket: Bucket
) -> None:
    store = made()
    store.write()
    report = synced(store, archives)
    manifest = manifest_of(archives)
    log = log_of(store)
    assert manifest.end == report.end == len(log) - store.segment_size
    for part in manifest.parts:
        content = bucket.get(f"archives/broker-a/{part.log.name}")
        assert content == log[part.begin : part.end]
        assert hashlib.sha256(content).hexdigest() == part.log.sha256
    assert manifest.topics == {"orders": 2, "paid": 2}
    assert not verify(archives.under("broker-a"), manifest)


def test_all_takes_the_last_file_up_to_its_last_record(made: Make, archives: Objects) -> None:
    store = made()
    store.write()
    report = synced(store, archives, everything=True)
    assert (report.end, report.messages) == (len(store.log), 100)


def test_a_second_sync_uploads_only_what_is_new(
    made: Make, archives: Objects, bucket: Bucket
) -> None:
    store = made()
    store.write()
    first = synced(store, archives)
    before = {key: bucket.get(key) for key in bucket.names()}
    assert synced(store, archives).uploaded == 0
    assert {key: bucket.get(key) for key in bucket.names()} == before
    fill(store, 100)
    store.write()
    second = synced(store, archives, everything=True)
    assert first.messages + second.messages == 200
    assert second.begin == 0
    for key, content in before.items():
        assert key.endswith("manifest.json") or bucket.get(key) == content


class Killed(BaseException):
    """Ends a sync where a kill might."""


class Failing:
    """A file system that dies after some objects were written, in the middle of one."""

    def __init__(self, system: Any, writes: int) -> None:
        self._system = system
        self._left = writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)

    def open_output_stream(self, path: str) -> Any:
        self._left -= 1
        if self._left < 0:
            raise Killed
        return self._system.open_output_stream(path)


@pytest.mark.parametrize("writes", [0, 1, 2, 3, 7])
def test_a_killed_sync_goes_on_behind_its_last_part(
    made: Make, tmp_path: Path, writes: int
) -> None:
    from pyarrow import fs

    store = made()
    store.write()
    place = tmp_path / "archives"
    dying = Objects(Failing(fs.LocalFileSystem(), writes), str(place), "dying")
    with pytest.raises(Killed):
        synced(store, dying, parallel=1)
    archives = Location(str(place)).open()
    whole = read_manifest(archives.under("broker-a"))
    parts = len(whole.parts) if whole else 0
    assert parts == writes // 3  # a log, its queues, and a manifest
    if whole:
        assert not verify(archives.under("broker-a"), whole)
    report = synced(store, archives)
    manifest = manifest_of(archives)
    assert report.uploaded == len(manifest.parts) - parts
    assert not verify(archives.under("broker-a"), manifest)


class Hdfs:
    """Local files with the rules of HDFS as PyArrow has it: a rename replaces nothing, and to
    remove what is not there is an I/O error."""

    type_name = "hdfs"

    def __init__(self, *, dies_at_move: int = -1) -> None:
        from pyarrow import fs

        self._system = fs.LocalFileSystem()
        self._moves_left = dies_at_move

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)

    def delete_file(self, path: str) -> None:
        if not Path(path).exists():
            raise OSError(5, "HDFS delete failed")
        self._system.delete_file(path)

    def move(self, path: str, target: str) -> None:
        self._moves_left -= 1
        if self._moves_left == -1:
            raise Killed
        if Path(target).exists():
            raise OSError(5, "HDFS rename failed")
        self._system.move(path, target)


def test_hdfs_replaces_its_manifest(made: Make, tmp_path: Path) -> None:
    store = made()
    store.write()
    archives = Objects(Hdfs(), str(tmp_path / "archives"), "hdfs://shown")
    first = synced(store, archives)
    fill(store, 100)
    store.write()
    second = synced(store, archives, everything=True)
    assert first.messages + second.messages == 200
    (store.root / "commitlog" / f"{0:020}").unlink()
    assert synced(store, archives, prune=True).pruned == 1
    assert not verify(archives.under("broker-a"), manifest_of(archives))


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_sync_to_hdfs_that_is_killed_between_two_manifests_goes_on(
    made: Make, tmp_path: Path, moves: int
) -> None:
    store = made()
    store.write()
    place = str(tmp_path / "archives")
    with pytest.raises(Killed):
        synced(store, Objects(Hdfs(dies_at_move=moves), place, "dying"), parallel=1)
    archives = Objects(Hdfs(), place, "hdfs://shown")
    assert read_manifest(archives.under("broker-a")) is None
    report = synced(store, archives)
    manifest = manifest_of(archives)
    assert report.uploaded == len(manifest.parts) - moves - 1
    assert not verify(archives.under("broker-a"), manifest)


def test_a_name_node_that_does_not_answer_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    class Silent(Hdfs):
        def open_input_file(self, path: str) -> Any:
            raise OSError(255, f"Opening HDFS file '{path}' failed. Detail: [errno 255] Unknown")

    with pytest.raises(Unreachable, match="hdfs://shown: HDFS does not answer, or refuses"):
        Objects(Silent(), str(tmp_path / "none"), "hdfs://shown").folders()
    assert Objects(Hdfs(), str(tmp_path / "none"), "hdfs://shown").folders() == []


def test_an_open_store_is_uploaded_up_to_what_is_flushed(made: Make, archives: Objects) -> None:
    store = made()
    store.write_checkpoint()
    flushed = len(store.log)
    fill(store, 200)
    store.write()
    with held_open(store.root):
        report = synced(store, archives, everything=True)
    assert (report.end, report.messages) == (flushed, 100)


def test_a_killed_store_is_uploaded_with_messages_that_no_queue_has(
    made: Make, archives: Objects
) -> None:
    store = made()
    for number in range(20):
        store.put("late", 0, b"%d" % number, {"TAGS": "a"}, entry=False)
    store.write(crashed=True)
    assert synced(store, archives, everything=True).messages == 120
    assert manifest_of(archives).topics["late"] == 1


def test_entries_with_and_without_a_queue_have_one_byte_order(
    made: Make, archives: Objects, bucket: Bucket
) -> None:
    store = made()
    for number in range(20):
        store.put("orders", 1, b"%d" % number, entry=False)
    store.write(crashed=True)
    synced(store, archives, everything=True)
    for part in manifest_of(archives).parts:
        content = bucket.get(f"archives/broker-a/{part.queues.name}")[: part.directory_at]
        places = [physical for physical, _, _ in ENTRY.iter_unpack(content)]
        assert all(part.begin <= place < part.end for place in places)


def test_what_has_expired_stays_unless_it_is_pruned(
    made: Make, archives: Objects, bucket: Bucket
) -> None:
    store = made()
    store.write()
    synced(store, archives)
    objects = len(bucket.names())
    for base in (0, 4096):
        (store.root / "commitlog" / f"{base:020}").unlink()
    assert synced(store, archives).begin == 0
    report = synced(store, archives, prune=True)
    assert (report.begin, report.pruned) == (8192, 2)
    assert len(bucket.names()) == objects - 4
    assert not verify(archives.under("broker-a"), manifest_of(archives))


def test_what_expired_before_it_was_archived_is_reported(made: Make, archives: Objects) -> None:
    store = made()
    store.write()
    synced(store, archives)
    end = manifest_of(archives).end
    fill(store, 200)
    store.write()
    for base in range(0, end + 4096, 4096):
        (store.root / "commitlog" / f"{base:020}").unlink()
    assert synced(store, archives).missing == 4096


def test_brokers_have_folders_of_their_own(made: Make, archives: Objects) -> None:
    for name in ("broker-a", "broker-b"):
        store = made(name=name)
        store.write()
        synced(store, archives)
    assert archives.folders() == ["broker-a", "broker-b"]
    assert manifest_of(archives, "broker-b").broker_name == "broker-b"


def test_another_store_is_refused(made: Make, archives: Objects, tmp_path: Path) -> None:
    store = made()
    store.write()
    synced(store, archives)
    other = MadeStore(tmp_path / "elsewhere" / "broker-a", segment_size=4096)
    other.now += 1_000_000
    fill(other, 300)
    other.write()
    with pytest.raises(OtherStore, match="has other messages"):
        synced(other, archives)


def test_a_store_that_lost_messages_is_refused(
    made: Make, archives: Objects, tmp_path: Path
) -> None:
    store = made()
    store.write()
    synced(store, archives)
    shorter = MadeStore(tmp_path / "elsewhere" / "broker-a", segment_size=4096)
    fill(shorter, 10)
    shorter.write()
    with pytest.raises(OtherStore, match="only up to"):
        synced(shorter, archives)


def test_a_store_whose_last_archived_topics_were_deleted_goes_on(
    made: Make, archives: Objects
) -> None:
    store = made()
    before = len(store.log)
    for _ in range(30):
        store.put("gone")
    store.write()
    store.write_checkpoint()
    end = synced(store, archives, everything=True).end
    assert end > before
    shutil.rmtree(store.root / "consumequeue" / "gone")
    del store.entries["gone", 0]
    assert synced(store, archives, everything=True).end == end
    fill(store, 10)
    store.write()
    store.write_checkpoint()
    report = synced(store, archives, everything=True)
    assert (report.messages, report.end) == (10, len(store.log))


@pytest.fixture
def uploaded(made: Make, archives: Objects) -> Manifest:
    store = made()
    store.write()
    synced(store, archives)
    return manifest_of(archives)


def test_verify_names_objects_that_are_damaged_or_missing(
    uploaded: Manifest, archives: Objects, bucket: Bucket
) -> None:
    first, second, third = uploaded.parts[:3]
    key = f"archives/broker-a/{first.log.name}"
    bucket.put(key, bucket.get(key)[:-1] + b"?")
    bucket.delete(f"archives/broker-a/{second.queues.name}")
    key = f"archives/broker-a/{third.log.name}"
    bucket.put(key, bucket.get(key)[:-1])
    faults = verify(archives.under("broker-a"), uploaded)
    shown = f"{bucket.shown}/archives/broker-a"
    assert [(fault.object, fault.reason) for fault in faults] == [
        (f"{shown}/{first.log.name}", "its SHA-256 is not that of what was uploaded"),
        (f"{shown}/{second.queues.name}", "it is missing"),
        (f"{shown}/{third.log.name}", "it has 4095 bytes; 4096 were uploaded"),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "is not a manifest"),
        (b'{"format": "other"}', "its format is 'other'"),
        (b'{"format": "pocketmq-archive", "version": 2}', "has version 2; .* install a newer"),
        (b'{"format": "pocketmq-archive", "version": 1}', "is damaged"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_named(
    archives: Objects, bucket: Bucket, content: bytes, reason: str
) -> None:
    bucket.put("archives/broker-a/manifest.json", content)
    with pytest.raises(WrongManifest, match=f"archives/broker-a/manifest.json {reason}|{reason}"):
        read_manifest(archives.under("broker-a"))


def test_parts_that_overlap_are_damage(
    uploaded: Manifest, archives: Objects, bucket: Bucket
) -> None:
    raw = json.loads(bucket.get("archives/broker-a/manifest.json"))
    raw["parts"].append(raw["parts"][0])
    bucket.put("archives/broker-a/manifest.json", json.dumps(raw).encode())
    with pytest.raises(WrongManifest, match="two parts"):
        read_manifest(archives.under("broker-a"))


def test_an_upload_that_arrives_cut_off_is_no_success(made: Make, tmp_path: Path) -> None:
    from pyarrow import fs

    class Short:
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def write(self, content: Any) -> None:
            self._stream.write(memoryview(content)[:-1])

        def close(self) -> None:
            self._stream.close()

    class Cutting:
        def __getattr__(self, name: str) -> Any:
            return getattr(fs.LocalFileSystem(), name)

        def open_output_stream(self, path: str) -> Any:
            return Short(fs.LocalFileSystem().open_output_stream(path))

    store = made()
    store.write()
    with pytest.raises(ObjectDamaged, match="it has 4095 bytes after 4096 were uploaded"):
        synced(store, Objects(Cutting(), str(tmp_path / "archives"), "cut"))


def test_a_bucket_that_does_not_exist_is_named(made: Make, bucket: Bucket) -> None:
    store = made()
    store.write()
    archives = Location(bucket.url("archives").replace(bucket.name, "none")).open()
    shown = bucket.shown.replace(bucket.name, "none")
    with pytest.raises(Unreachable, match=rf"{shown}/archives/broker-a/.*there is no such bucket"):
        synced(store, archives)


@pytest.mark.parametrize(
    "url",
    [
        "s3://b/archives?endpoint_override=127.0.0.1:1&scheme=http",
        "gs://anonymous@b/a?endpoint_override=127.0.0.1:1&scheme=http&retry_limit_seconds=1",
    ],
)
def test_an_endpoint_that_does_not_answer_is_named(made: Make, url: str) -> None:
    store = made()
    store.write()
    with pytest.raises(Unreachable, match="no server answers"):
        synced(store, Location(url).open())
