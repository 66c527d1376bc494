"""Making room ahead of the append position."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.errors import DiskFull
from pocketmq.store.log.allocation import FileAllocator
from tests.store.conftest import StoreBench

SIZE = 16 * 1024


@pytest.fixture
def allocator(bench: Any) -> Any:
    allocator = FileAllocator(bench.files)
    allocator.start()
    yield allocator
    allocator.stop()


def path_of(bench: StoreBench, base: int) -> Path:
    return bench.root / f"{base:020d}"


def wait_for(allocator: FileAllocator) -> None:
    """Until the thread has done what it was asked to."""
    done = threading.Event()
    allocator.submit(done.set)
    assert done.wait(20)


def test_the_next_file_is_made_at_half_time(bench: Any, allocator: Any) -> None:
    file = allocator.take(path_of(bench, 0), 0, SIZE)
    again = allocator.look_ahead(file, 10, path_of(bench, SIZE))
    assert 10 < again <= SIZE // 2
    wait_for(allocator)
    assert not path_of(bench, SIZE).exists()
    assert allocator.look_ahead(file, SIZE // 2, path_of(bench, SIZE)) > SIZE // 2
    wait_for(allocator)
    assert path_of(bench, SIZE).stat().st_size == SIZE
    following = allocator.take(path_of(bench, SIZE), SIZE, SIZE)
    assert (following.base_offset, following.path) == (SIZE, path_of(bench, SIZE))
    for made in (file, following):
        made.close()


def test_a_file_made_for_nothing_is_removed(bench: Any, allocator: Any) -> None:
    file = allocator.take(path_of(bench, 0), 0, SIZE)
    allocator.look_ahead(file, SIZE - 1, path_of(bench, SIZE))
    allocator.stop()
    assert not path_of(bench, SIZE).exists()
    assert path_of(bench, 0).exists()
    file.close()


def test_a_full_disk_ahead_is_asked_again_when_the_file_is_needed(
    bench: Any, allocator: Any, caplog: Any
) -> None:
    file = allocator.take(path_of(bench, 0), 0, SIZE)
    bench.files.full = True
    allocator.look_ahead(file, SIZE - 1, path_of(bench, SIZE))
    with pytest.raises(DiskFull):
        allocator.take(path_of(bench, SIZE), SIZE, SIZE)
    assert "cannot create the next file yet" in caplog.text
    bench.files.full = False
    made = allocator.take(path_of(bench, SIZE), SIZE, SIZE)
    assert made.size == SIZE
    file.close()
    made.close()


def test_a_task_that_fails_does_not_end_the_thread(bench: Any, allocator: Any, caplog: Any) -> None:
    allocator.submit(lambda: 1 / 0)
    wait_for(allocator)
    assert "ZeroDivisionError" in caplog.text


async def test_a_store_looks_ahead_by_itself(bench: Any) -> None:
    store = bench.open()
    store.start()
    bench.put(store)
    while store.commit_log.end < 9000:
        bench.put(store, body=b"x" * 500)
    store.settle()
    async with asyncio.timeout(20):
        while not bench.segment(SIZE).exists():  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.001)
    crashed = bench.copy("crashed")
    opened = crashed.open()
    assert len(opened.commit_log.files.mapped) == 1
    assert not crashed.segment(SIZE).exists()
    await opened.close()
    await store.close()
    assert not bench.segment(SIZE).exists()
