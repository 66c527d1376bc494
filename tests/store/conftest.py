"""Stores in a temporary directory, with small files, a clock that is set and a disk that fails."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pocketmq.message.record import Record, iter_records
from pocketmq.store.config import StoreConfig
from pocketmq.store.files import Files
from pocketmq.store.index.index_pace import IndexPace
from pocketmq.store.index.index_worker import IndexWorker, MakeWorker
from pocketmq.store.message_store import MessageStore
from pocketmq.store.numpy_loader import numpy_loader
from pocketmq.store.results import PutResult
from tests.unpacking import unpack

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
BORN_HOST = bytes((10, 0, 0, 7, 0, 0, 0x12, 0x34))


@pytest.fixture(scope="session", autouse=True)
def loaded_numpy() -> None:
    """A store does without numpy until a thread has imported it; these tests are about both ways,
    not about when that is."""
    numpy_loader.load().join()


class Clock:
    """Milliseconds; rises only when told to."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class FailingFiles(Files):
    """A disk that can be told to be full, or to fail when it is synced, and a system that can be
    told how many files of queues it maps."""

    def __init__(self) -> None:
        self.full = False
        self.full_for: Path | None = None
        self.broken = False
        self.mappings: int | None = None
        self.synced: list[str] = []
        self.failed = threading.Event()
        self._watched: dict[str, threading.Event] = {}

    def most_mappings(self) -> int:
        return super().most_mappings() if self.mappings is None else self.mappings

    def allocate(self, fd: int, size: int) -> None:
        if self.full or self.full_for == Path(os.readlink(f"/proc/self/fd/{fd}")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(fd, size)

    def replace(
        self, path: Path, content: bytes, backup: Path | None = None, *, mode: int = 0o644
    ) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        super().replace(path, content, backup, mode=mode)

    def fdatasync(self, fd: int) -> None:
        if self.broken:
            self.failed.set()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        name = Path(os.readlink(f"/proc/self/fd/{fd}")).name
        super().fdatasync(fd)
        self.synced.append(name)
        if name in self._watched:
            self._watched.pop(name).set()

    async def next_sync(self, name: str) -> None:
        """Until a file of this name has been synced once more."""
        event = self._watched[name] = threading.Event()
        assert await asyncio.to_thread(event.wait, 20)


def put(
    store: MessageStore,
    topic: str = "Topic",
    queue_id: int = 0,
    body: bytes = b"body",
    properties: str = "",
    **more: Any,
) -> PutResult:
    """Put a message with everything that does not matter filled in."""
    settings: dict[str, Any] = {
        "born_timestamp": 1_600_000_000_000,
        "born_host": BORN_HOST,
        "tags_code": 0,
    }
    return store.put(topic, queue_id, body, properties, **settings | more)


def read_all(store: MessageStore, topic: str = "Topic", queue_id: int = 0) -> list[Record]:
    """Every message of a queue, read as a consumer would, checked for order."""
    records: list[Record] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        result = store.get(topic, queue_id, offset, 32)
        for buffer in result.buffers:
            # Copied, so that no test keeps a file mapped.
            records += iter_records(bytes(buffer), strict=True)
        offset = result.next_begin_offset
    offsets = [record.queue_offset for record in records]
    assert offsets == sorted(set(offsets))
    return records


def bodies(store: MessageStore, topic: str = "Topic", queue_id: int = 0) -> list[bytes]:
    """The bodies of a queue, in order."""
    return [bytes(record.body) for record in read_all(store, topic, queue_id)]


class StoreBench:
    """Makes stores over one directory and knows how to fill and read them."""

    put = staticmethod(put)
    read_all = staticmethod(read_all)
    bodies = staticmethod(bodies)

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Clock()
        self.files = FailingFiles()
        self.disk_retry = 1.0
        self.index_pace = IndexPace()
        self.index_worker: MakeWorker = IndexWorker
        self.recovery_clock: Callable[[], float] = time.monotonic
        self.opened: list[MessageStore] = []

    def config(self, **changes: Any) -> StoreConfig:
        settings: dict[str, Any] = {
            "store_path_root_dir": str(self.root),
            "mapped_file_size_commit_log": 16 * 1024,
            "mapped_file_size_consume_queue": 400,
            "max_hash_slot_num": 500,
            "max_index_num": 2_000,
        }
        return StoreConfig(**settings | changes)

    def store(self, **changes: Any) -> MessageStore:
        """A store that is not opened yet."""
        store = MessageStore(
            self.config(**changes),
            store_host=HOST,
            files=self.files,
            clock=self.clock,
            disk_retry=self.disk_retry,
            index_pace=self.index_pace,
            index_worker=self.index_worker,
            recovery_clock=self.recovery_clock,
        )
        self.opened.append(store)
        return store

    def open(self, **changes: Any) -> MessageStore:
        store = self.store(**changes)
        store.open()
        return store

    def copy(self, name: str, source: Path | None = None) -> StoreBench:
        """A bench over a copy of the directory as it lies there: what a crash would leave."""
        target = self.root.with_name(name)
        shutil.copytree(source or self.root, target)
        return StoreBench(target)

    def segment(self, base: int = 0) -> Path:
        return self.root / "commitlog" / f"{base:020d}"

    def queue_file(self, topic: str, queue_id: int, base: int = 0) -> Path:
        return self.root / "consumequeue" / topic / str(queue_id) / f"{base:020d}"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[StoreBench]:
    """A bench over an empty directory; its stores are closed at the end."""
    bench = StoreBench(tmp_path / "store")
    yield bench
    bench.files.broken = bench.files.full = False
    for store in bench.opened:
        await store.close()


class GoldenStore(NamedTuple):
    """A store that the official broker wrote, unpacked, and what its client pulled from it."""

    name: str
    bench: StoreBench
    messages: list[dict[str, Any]]

    def settings(self) -> dict[str, int]:
        return {"mapped_file_size_commit_log": 131_072, "mapped_file_size_consume_queue": 4_000}


@pytest.fixture(params=["clean", "killed"])
async def golden(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[GoldenStore]:
    name = request.param
    root = tmp_path / f"golden-{name}"
    unpack(GOLDEN / f"store-5.3.3-{name}.tar.gz", root)
    messages = json.loads((GOLDEN / f"store-5.3.3-{name}.json").read_text("utf-8"))
    bench = StoreBench(root)
    yield GoldenStore(name, bench, messages)
    for store in bench.opened:
        await store.close()
