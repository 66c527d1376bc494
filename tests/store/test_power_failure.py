"""What a power failure leaves of files that were not flushed: any page as it is now, or as it was
at some time before."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.tags import tag_hash
from pocketmq.store.config import FlushDiskType

TAGS = "TAGS\1red\2"


def patch(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def put(bench: Any, store: Any, count: int, *, size: int = 100) -> list[Any]:
    return [
        bench.put(store, body=b"%05d" % n + b"." * size, properties=TAGS, tags_code=tag_hash("red"))
        for n in range(count)
    ]


@pytest.mark.parametrize("kept", [4, 8, 10, 12, 16])
@pytest.mark.parametrize("place", [0, 7, 19])
async def test_an_entry_that_crosses_a_page(bench: Any, kept: int, place: int) -> None:
    """4096 bytes are no whole number of entries, so a part of one may be lost."""
    store = bench.open()
    put(bench, store, 20)
    crashed = bench.copy("crashed")
    whole = crashed.queue_file("Topic", 0).read_bytes()
    patch(crashed.queue_file("Topic", 0), place * 20 + kept, bytes(20 - kept))
    opened = crashed.open()
    assert crashed.queue_file("Topic", 0).read_bytes() == whole
    assert crashed.bodies(opened) == bench.bodies(store)
    red = opened.get("Topic", 0, 0, 32, codes=frozenset((tag_hash("red"),)))
    assert red.message_count == 20
    await opened.close()


async def test_entries_of_messages_that_an_earlier_failure_took(bench: Any) -> None:
    """They were cut off, but that was not flushed either when the machine stopped again."""
    store = bench.open()
    results = put(bench, store, 20)
    crashed = bench.copy("crashed")
    stale = crashed.queue_file("Topic", 0).read_bytes()
    at = results[5].physical_offset
    patch(crashed.segment(), at, bytes(16 * 1024 - at))
    opened = crashed.open()
    assert opened.max_offset("Topic", 0) == 5
    put(bench, opened, 12, size=200)
    expected = crashed.bodies(opened)
    again = crashed.copy("again")
    again.queue_file("Topic", 0).write_bytes(stale)
    reopened = again.open()
    assert again.bodies(reopened) == expected
    await reopened.close()
    await opened.close()


async def test_what_was_cut_off_the_log_does_not_come_back(bench: Any) -> None:
    """The zeros are on the disk before a message is taken."""
    store = bench.open()
    put(bench, store, 20)
    await store.close()
    store = bench.open()
    (torn, *_) = put(bench, store, 10)
    crashed = bench.copy("crashed")
    patch(crashed.segment(), torn.physical_offset + 100, b"\xff")
    crashed.files.boot_id = lambda: b"another boot, 16"
    synced: list[bytes] = []
    sync = crashed.files.fdatasync

    def fdatasync(fd: int) -> None:
        synced.append(crashed.segment().read_bytes()[torn.physical_offset :])
        sync(fd)

    crashed.files.fdatasync = fdatasync
    opened = crashed.open()
    assert crashed.files.synced[0] == crashed.segment().name
    assert not any(synced[0])
    await opened.close()


async def test_names_that_a_killed_process_did_not_sync(bench: Any) -> None:
    """It was killed before its first flush; with SYNC_FLUSH the next one vouches for the files."""
    store = bench.open()
    put(bench, store, 3)
    killed = bench.copy("killed")
    synced: list[Path] = []
    killed.files.sync_directory = synced.append
    opened = killed.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    assert {killed.root / "commitlog", killed.root} <= set(synced)
    await opened.close()
    queue = killed.queue_file("Topic", 0).parent
    assert {queue, queue.parent, queue.parent.parent} <= set(synced)


async def test_the_name_of_the_queues_when_their_first_topic_is_deleted(bench: Any) -> None:
    """Its files are gone before they are synced, and with them what they had to sync."""
    names_on_disk: set[str] = set()
    sync = bench.files.sync_directory

    def sync_directory(directory: Path) -> None:
        if directory == bench.root:
            names_on_disk.update(os.listdir(directory))
        sync(directory)

    bench.files.sync_directory = sync_directory
    store = bench.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store.start()
    bench.put(store, "First", 0)
    assert await store.all_flushed()
    store.delete_topic("First")
    bench.put(store, "Second", 0)
    assert await store.all_flushed()
    assert "consumequeue" in names_on_disk
    await store.close()


async def test_a_consume_queue_that_could_not_be_flushed_is_never_vouched_for(bench: Any) -> None:
    """The kernel says once that pages are lost, and would sync the next time without them."""
    armed, failed = threading.Event(), threading.Event()
    sync = bench.files.fdatasync

    def fdatasync(fd: int) -> None:
        if armed.is_set() and "/consumequeue/" in os.readlink(f"/proc/self/fd/{fd}"):
            armed.clear()
            failed.set()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(fd)

    bench.files.fdatasync = fdatasync
    store = bench.open(flush_interval_consume_queue=1, flush_consume_queue_thorough_interval=1)
    store.start()
    put(bench, store, 1)
    store.settle()
    armed.set()
    put(bench, store, 1)
    store.settle()
    assert await asyncio.to_thread(failed.wait, 20)
    await store.close()
    assert not any((bench.root / "checkpoint").read_bytes()[8:16])
    assert (bench.root / "abort").exists()
    bench.queue_file("Topic", 0).write_bytes(bytes(400))  # what the disk has of it
    opened = bench.open()
    assert opened.max_offset("Topic", 0) == 2
    await opened.close()
    assert not (bench.root / "abort").exists()


async def test_a_file_of_the_log_expires_when_the_queues_are_on_the_disk(bench: Any) -> None:
    """Else nobody knows after a power failure which offsets a queue has given that is left without
    messages and without files."""
    bench.files.used_percent = lambda directory: 99  # files go whatever their age
    store = bench.open(flush_interval_consume_queue=10**9)
    store.start()
    bench.put(store, "Rare", 0)
    put(bench, store, 200)
    assert await store.all_flushed()
    synced: list[Path] = []
    bench.files.sync_directory = synced.append
    remove = bench.files.remove

    def removed(path: Path) -> None:
        assert bench.queue_file("Rare", 0).parent in synced
        remove(path)

    bench.files.remove = removed
    assert await store.cleanup.round() > 0


async def test_the_directory_of_all_queues_outlasts_its_first_topic(bench: Any) -> None:
    """The topic whose queue made the directory is deleted before a flush: the others need it."""
    synced: list[Path] = []
    bench.files.sync_directory = synced.append
    store = bench.open()
    queues = bench.root / "consumequeue"
    assert bench.root in synced
    assert queues.is_dir()
    bench.put(store, "First", 0)
    bench.put(store, "Second", 0)
    store.settle()
    assert store.delete_topic("First")
    synced.clear()
    await store.close()
    assert {queues, queues / "Second", queues / "Second" / "0"} <= set(synced)


async def test_directories_that_a_killed_process_made_are_synced(bench: Any) -> None:
    """It had not even made the queue's file."""
    queue = bench.root / "consumequeue" / "Topic" / "0"
    queue.mkdir(parents=True)
    synced: list[Path] = []
    bench.files.sync_directory = synced.append
    store = bench.open()
    assert bench.root in synced
    bench.put(store, "Topic", 0)
    await store.close()
    assert {queue, *queue.parents[:2]} <= set(synced)
