"""A queue that cannot have a file: its messages are refused, those of other queues are not."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.batch_body import encode_batch
from pocketmq.store import files
from pocketmq.store.encoding.queue_entry import pack_entry
from pocketmq.store.files import MappedFile, Retirement
from pocketmq.store.log.queue_mappings import QueueMappings
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.results import PutResult, PutStatus
from tests.store.conftest import FailingFiles, StoreBench

TOO_LONG = "%RETRY%" + "g" * 250


def put_batch(store: Any, topic: str) -> PutResult:
    body = encode_batch([(0, b"body", b"")] * 3)
    result: PutResult = store.put_batch(topic, 0, body, "", born_timestamp=1, born_host=bytes(8))
    return result


def fail_for(bench: StoreBench, monkeypatch: pytest.MonkeyPatch, part: str, number: int) -> None:
    """Have files whose path contains `part` fail."""

    def create(path: Path, *rest: Any, **more: Any) -> MappedFile:
        if part in str(path):
            raise OSError(number, os.strerror(number), str(path))
        return FailingFiles.create(bench.files, path, *rest, **more)

    monkeypatch.setattr(bench.files, "create", create)


async def test_a_topic_with_too_long_a_name_concerns_no_other(bench: StoreBench) -> None:
    store = bench.open()
    assert bench.put(store).ok
    end = store.commit_log.end
    for result in (bench.put(store, TOO_LONG), put_batch(store, TOO_LONG)):
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert result.remark.startswith(f"queue {TOO_LONG}/0 cannot get a file: ")
        assert os.strerror(errno.ENAMETOOLONG) in result.remark
    assert store.commit_log.end == end
    assert bench.put(store).ok
    assert put_batch(store, "Topic").ok
    assert bench.put(store, "Other").ok
    assert store.counters.puts_refused == 2


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO])
async def test_a_queue_file_that_can_not_be_made(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store = bench.open(mapped_file_size_commit_log=1 << 20)
    for _ in range(20):  # fills the first file of the queue
        assert bench.put(store).ok
    assert bench.put(store, "Other").ok
    fail_for(bench, monkeypatch, "consumequeue", number)
    for result in (bench.put(store), put_batch(store, "Topic"), bench.put(store, "New")):
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert os.strerror(number) in result.remark
    assert bench.put(store, "Other").queue_offset == 1
    monkeypatch.undo()
    assert bench.put(store).queue_offset == 20
    assert bench.put(store, "New").queue_offset == 0
    assert len(bench.bodies(store)) == 21


async def test_it_is_logged_now_and_then(
    bench: StoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    store = bench.open()
    for _ in range(50):
        assert not bench.put(store, TOO_LONG).ok
    # One a second.
    assert 1 <= len([line for line in caplog.messages if "cannot get a file" in line]) <= 2


async def test_a_commit_log_file_that_can_not_be_made_concerns_all(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.open()
    fail_for(bench, monkeypatch, "commitlog", errno.EMFILE)
    assert bench.put(store).status is PutStatus.SERVICE_NOT_AVAILABLE
    monkeypatch.undo()
    result = bench.put(store, "Other")
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE, "not tried again for a second"
    assert result.remark == "the commit log cannot be written: Too many open files"
    assert "commitlog" in store.refusal


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_disk_concerns_all_when_a_queue_meets_it(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Also when there is no room for the queue's directory."""
    store = bench.open()
    assert bench.put(store).ok

    def full(directory: Path) -> tuple[Path, ...]:
        raise OSError(number, os.strerror(number), str(directory))

    monkeypatch.setattr(files, "make_directories", full)
    result = bench.put(store, "New")
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "no room for" in result.remark
    result = bench.put(store)
    assert (result.status, "no room for" in result.remark) == (
        PutStatus.SERVICE_NOT_AVAILABLE,
        True,
    )


# --- blocks on the disk -------------------------------------------------------------------------

OFFICIAL = {
    "mapped_file_size_commit_log": 64 << 20,
    "mapped_file_size_consume_queue": 6_000_000,
}
BATCH = encode_batch([(0, b"x", b"")] * 1000)


def put_thousand(store: MessageStore) -> PutResult:
    return store.put_batch("Topic", 0, BATCH, "", born_timestamp=1, born_host=bytes(8))


def on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512


async def test_a_queue_takes_no_more_of_the_disk_than_it_needs(bench: StoreBench) -> None:
    """A file of the official size has blocks for its first entries, then for twice as many."""
    store = bench.open(**OFFICIAL)
    path = bench.queue_file("Topic", 0)
    assert bench.put(store).ok
    assert path.stat().st_size == 6_000_000
    assert on_disk(path) <= 128 * 1024
    offsets = []
    for n in range(1, 41):
        offsets.append(put_thousand(store).queue_offset)
        assert n * 20_000 < on_disk(path) <= 2 * n * 20_000 + 128 * 1024
    assert offsets == [1 + 1000 * n for n in range(40)]
    await store.close()
    store = bench.open(**OFFICIAL)
    assert store.max_offset("Topic", 0) == 40_001
    assert bench.put(store).queue_offset == 40_001
    assert on_disk(path) < 2_000_000


async def test_a_full_disk_while_a_queue_grows_is_an_answer(bench: StoreBench) -> None:
    """A store into a page without blocks would be a SIGBUS."""
    bench.disk_retry = 0.0
    store = bench.open(**OFFICIAL)
    path = bench.queue_file("Topic", 0)
    assert bench.put(store).ok
    bench.files.full_for = path
    stored = 1
    while (result := put_thousand(store)).ok:
        stored += 1000
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert str(path) in store.refusal
    assert str(path) not in result.remark
    assert stored * 20 <= on_disk(path)
    assert bench.put(store, "Other").ok
    await store.close()
    bench.files.full_for = None
    store = bench.open(**OFFICIAL)
    assert put_thousand(store).queue_offset == stored


def test_a_queue_that_begins_late_grows_too(bench: StoreBench) -> None:
    """Its file begins with fillers."""
    directory = bench.root / "queue"
    queue = ConsumeQueue(
        bench.files, directory, "Topic", 0, 6_000_000, Retirement(), QueueMappings(bench.files)
    )
    queue.start_at(100_000)
    for n in range(20_000):
        queue.make_room()
        queue.append(pack_entry(n * 100, 100, 0))
        queue.next_offset += 1
    (path,) = directory.iterdir()
    assert 2_400_000 <= on_disk(path) <= 4_200_000
    assert queue.entry(119_999) == (1_999_900, 100, 0)
    queue.files.close()


# --- descriptors and maps -----------------------------------------------------------------------


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) - 1  # that of the directory itself


def next_descriptor() -> int:
    """The lowest number that is free: what other tests left open may have higher ones."""
    number = os.dup(0)
    os.close(number)
    return number


def mapped_queues(bench: StoreBench) -> int:
    return Path("/proc/self/maps").read_text().count(f"{bench.root}/consumequeue/")


async def test_a_queue_needs_one_descriptor(bench: StoreBench) -> None:
    store = bench.open()
    assert bench.put(store).ok
    before = open_descriptors()
    for n in range(30):
        assert bench.put(store, f"T{n}").ok
    assert open_descriptors() <= before + 30
    await store.close()
    store = bench.open()
    assert open_descriptors() <= before + 30
    assert [bench.put(store, f"T{n}").queue_offset for n in range(30)] == [1] * 30


async def test_a_file_of_the_log_needs_one_descriptor_once_it_is_full(bench: StoreBench) -> None:
    store = bench.open()
    assert bench.put(store).ok
    store.start()
    before = open_descriptors()
    for _ in range(45):  # eight fill a file
        assert bench.put(store, body=bytes(2000)).ok
    assert await store.all_flushed()
    files = len(list((bench.root / "commitlog").iterdir()))
    assert files > 5
    # Three of the queue, and the file made ahead.
    assert open_descriptors() <= before + files - 1 + 2 + 2
    await store.close()
    store = bench.open()
    assert open_descriptors() <= before + files + 3
    assert len(bench.bodies(store)) == 46
    assert bench.put(store).ok


async def test_many_queues_take_few_descriptors_and_maps(bench: StoreBench) -> None:
    bench.files.mappings = 5
    store = bench.open(mapped_file_size_commit_log=1 << 20)
    assert bench.put(store).ok
    before = open_descriptors()
    for n in range(45):  # the files of a queue hold twenty
        for queue in range(30):
            assert bench.put(store, f"T{queue}", body=b"%d" % n).queue_offset == n
    assert open_descriptors() <= before + 5
    assert mapped_queues(bench) <= 5
    for queue in range(30):
        assert bench.bodies(store, f"T{queue}") == [b"%d" % n for n in range(45)]
    assert mapped_queues(bench) <= 5
    crashed = bench.copy("crashed")
    await store.close()
    for bench_again in (bench, crashed):
        bench_again.files.mappings = 5
        again = bench_again.open(mapped_file_size_commit_log=1 << 20)
        for queue in range(30):
            assert len(bench_again.bodies(again, f"T{queue}")) == 45
            assert bench_again.put(again, f"T{queue}").queue_offset == 45
        assert mapped_queues(bench_again) <= 5
        await again.close()


async def test_a_recovery_maps_few_queues_again(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes through all queues in turn, several times: most of those that fit stay mapped."""
    store = bench.open()
    for n in range(5):
        for queue in range(24):
            assert bench.put(store, f"T{queue}", body=b"%d" % n).queue_offset == n
    crashed = bench.copy("crashed")
    crashed.files.boot_id = lambda: b"another boot, 16"  # type: ignore[method-assign]
    crashed.files.mappings = 20
    mapped = []
    map_again = MappedFile.map_again

    def count(file: MappedFile) -> None:
        mapped.append(file.path)
        map_again(file)

    monkeypatch.setattr(MappedFile, "map_again", count)
    again = crashed.open()
    assert len(mapped) < 7 * (24 - 20 + 1), "each of them was mapped again for each message"
    for queue in range(24):
        assert crashed.bodies(again, f"T{queue}") == [b"%d" % n for n in range(5)]
    await again.close()


async def test_arrays_outlive_the_mapping_of_their_file(bench: StoreBench) -> None:
    bench.files.mappings = 1
    store = bench.open()
    for _ in range(3):
        assert bench.put(store).ok
    ((_, entries),) = store.queues["Topic"][0].entries(0, 3)
    before = entries["physical"].tolist()
    for n in range(10):
        assert bench.put(store, f"T{n}").ok
    assert mapped_queues(bench) == 2, "the one that is used, and the one that the array holds"
    assert bench.put(store).ok
    assert entries["physical"].tolist() == before
    del entries
    assert mapped_queues(bench) == 1


async def test_what_is_unmapped_is_flushed_all_the_same(bench: StoreBench) -> None:
    bench.files.mappings = 1
    store = bench.open()
    for n in range(10):
        assert bench.put(store, f"T{n}").ok
    synced: list[str] = []
    sync = bench.files.fdatasync

    def fdatasync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    bench.files.fdatasync = fdatasync  # type: ignore[method-assign]
    await store.close()
    assert {str(bench.queue_file(f"T{n}", 0)) for n in range(10)} <= set(synced)


async def test_an_entry_waits_for_a_file_that_cannot_be_opened(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is in the log already: it must neither be lost nor entered twice."""
    bench.disk_retry = 0.0
    bench.files.mappings = 1
    store = bench.open(mapped_file_size_commit_log=1 << 20)
    store.start()
    assert bench.put(store, body=b"first").ok
    store.settle()
    assert bench.put(store, "Other").ok
    store.settle()
    map_again = MappedFile.map_again

    def fail(file: MappedFile) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(file.path))

    monkeypatch.setattr(MappedFile, "map_again", fail)
    assert bench.put(store, body=b"second").ok
    with pytest.raises(OSError, match="Input/output error"):
        store.settle()
    refused = bench.put(store, "Third")
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert str(bench.queue_file("Topic", 0)) in store.refusal
    assert "Topic" not in refused.remark
    monkeypatch.setattr(MappedFile, "map_again", map_again)
    assert bench.put(store, body=b"third").queue_offset == 2
    store.settle()
    assert bench.bodies(store) == [b"first", b"second", b"third"]


async def test_queues_leave_descriptors_for_connections(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More queues than descriptors: queues are unmapped, and a quarter stays free."""
    store = bench.open(mapped_file_size_commit_log=1 << 20)
    assert bench.put(store).ok
    limit = (next_descriptor() + 10) * 4 // 3
    bench.files.mappings = limit  # more than there can be
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    for n in range(200):
        assert bench.put(store, f"T{n}").ok
        assert next_descriptor() <= limit - limit // 4 + 2  # and the files of the log
    assert all(len(bench.bodies(store, f"T{n}")) == 1 for n in range(200))


async def test_a_queue_is_refused_when_others_have_the_descriptors(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.open(mapped_file_size_commit_log=1 << 20)
    assert bench.put(store).ok
    limit = next_descriptor()  # of which the queue has one
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    result = bench.put(store, "New")
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "kept for connections" in result.remark
    assert not bench.queue_file("New", 0).exists()
    # Those that are there go on.
    assert bench.put(store).queue_offset == 1
