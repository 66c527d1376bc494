"""A full disk is an answer, never a signal, and passes when there is room again."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pocketmq.message.batch_body import encode_batch
from pocketmq.store.errors import DiskFull
from pocketmq.store.files import Files
from pocketmq.store.results import PutStatus


@pytest.fixture
def retry_at_once(bench: Any) -> None:
    bench.disk_retry = 0.0


@pytest.mark.usefixtures("retry_at_once")
async def test_the_first_message_needs_files(bench: Any) -> None:
    store = bench.open()
    bench.files.full = True
    result = bench.put(store)
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "no room for" in result.remark
    assert not list(bench.root.glob("c*/**/0*0"))  # nothing half-made is left
    bench.files.full = False
    assert bench.put(store, body=b"later").queue_offset == 0
    assert bench.bodies(store) == [b"later"]


@pytest.mark.usefixtures("retry_at_once")
async def test_running_into_a_full_disk_and_out_again(bench: Any) -> None:
    """What was acknowledged stays, what was refused is nowhere, smaller messages still fit."""
    store = bench.open()
    expected = [b"first"]
    bench.put(store, body=b"first")
    bench.files.full = True
    body = b"x" * 900
    while (result := bench.put(store, body=body)).ok:
        expected.append(body)
    assert "no room for a file of" in result.remark
    assert "commitlog" in store.refusal or "consumequeue" in store.refusal
    end = store.commit_log.end
    batch = encode_batch([(0, body, b"")] * 3)
    put_batch = {"born_timestamp": 1, "born_host": bytes(8)}
    assert not store.put_batch("Topic", 0, batch, "", **put_batch).ok
    assert not store.put_batch("New", 0, batch, "", **put_batch).ok
    assert store.commit_log.end == end
    if bench.put(store, body=b"small").ok:
        expected.append(b"small")
    assert bench.bodies(store) == expected
    crashed = bench.copy("crashed")
    opened = crashed.open()
    assert crashed.bodies(opened) == expected
    await opened.close()
    bench.files.full = False
    assert store.put_batch("Topic", 0, batch, "", **put_batch).ok
    assert bench.put(store, body=b"last").ok
    assert bench.bodies(store) == [*expected, *[body] * 3, b"last"]


@pytest.mark.usefixtures("retry_at_once")
async def test_a_consume_queue_without_room_keeps_the_message_out_of_the_log(bench: Any) -> None:
    store = bench.open(mapped_file_size_commit_log=1 << 20)
    for _ in range(20):  # fills the first file of the queue
        assert bench.put(store).ok
    bench.files.full = True
    end = store.commit_log.end
    assert not bench.put(store).ok
    batch = encode_batch([(0, b"x", b"")] * 2)
    result = store.put_batch("Topic", 0, batch, "", born_timestamp=1, born_host=bytes(8))
    assert not result.ok
    assert store.commit_log.end == end
    bench.files.full = False
    assert bench.put(store).queue_offset == 20


@pytest.mark.usefixtures("retry_at_once")
async def test_a_store_on_a_full_disk_opens_cleans_up_and_resumes(bench: Any, caplog: Any) -> None:
    store = bench.open()
    for _ in range(200):
        assert bench.put(store, body=b"x" * 200).ok
    await store.close()
    bench.files.full = True
    bench.files.allocate = Files().allocate  # the files that are there have their blocks
    bench.files.used_percent = lambda directory: 100 if bench.files.full else 1

    store = bench.open()
    store.start()
    refused = bench.put(store)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert refused.remark == "the store cannot be marked as open: No space left on device"
    assert f"No space left on device: '{bench.root / 'abort'}'" in store.refusal
    assert "no messages are accepted until there is space" in caplog.text
    assert len(bench.bodies(store)) == 200
    assert await store.cleanup.round()
    assert not bench.segment().exists()

    # Not yet marked as open: a crash now is none.
    killed = bench.copy("killed")
    reopened = killed.open()
    assert killed.bodies(reopened) == bench.bodies(store)
    await reopened.close()

    bench.files.full = False
    taken = bench.put(store, properties="KEYS\x01k\x02")
    assert taken.queue_offset == 200
    assert (bench.root / "abort").exists()
    assert "there is space on the disk again" in caplog.text
    found = await store.index.query("Topic", "k", 10, 0, 1 << 60)
    assert len(found.records) == 1
    await store.close()
    assert not (bench.root / "abort").exists()


async def test_a_store_that_a_crash_left_on_a_full_disk(bench: Any) -> None:
    """The trace of the crash is there already, and there is room in the files."""
    store = bench.open()
    bench.put(store)
    store.settle()
    crashed = bench.copy("crashed")
    crashed.files.full = True
    crashed.files.allocate = Files().allocate
    opened = crashed.open()
    assert crashed.put(opened).queue_offset == 1
    await opened.close()


async def test_the_disk_is_not_asked_for_every_message(bench: Any) -> None:
    store = bench.open()
    bench.files.full = True
    asked = 0
    original = bench.files.allocate

    def counting(fd: int, size: int) -> None:
        nonlocal asked
        asked += 1
        original(fd, size)

    bench.files.allocate = counting
    for _ in range(50):
        assert not bench.put(store).ok
    assert asked <= 2
    assert store.counters.puts_refused == 50


@pytest.mark.parametrize("part", ["commitlog", "consumequeue"])
async def test_a_sparse_file_gets_its_blocks_before_it_is_written(bench: Any, part: str) -> None:
    """A copied store may have holes; writing into one on a full disk would be a SIGBUS."""
    store = bench.open()
    bench.put(store)
    await store.close()
    path = bench.segment() if part == "commitlog" else bench.queue_file("Topic", 0)
    content = path.read_bytes()
    path.unlink()
    with path.open("wb") as file:
        file.write(content.rstrip(b"\0"))
        file.truncate(len(content))
    bench.files.full_for = path
    with pytest.raises(DiskFull, match=part):
        bench.open()
    bench.files.full_for = None
    store = bench.open()
    assert bench.put(store).queue_offset == 1
    assert os.stat(path).st_blocks * 512 >= len(content)
