"""Appended records gather, and are written before anybody can miss them."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.record import iter_records
from pocketmq.store.files import Files, Retirement
from pocketmq.store.log.allocation import FileAllocator
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.results import PutResult


@pytest.fixture
async def store(bench: Any) -> Any:
    store = bench.open(mapped_file_size_commit_log=1 << 20)
    store.start()
    yield store
    await store.close()


def bodies_on_file(bench: Any) -> list[bytes]:
    """The bodies that another process would find in the first commit-log file."""
    data = bench.segment().read_bytes()
    end = max(data.rfind(b"\2"), 0)  # every message ends with a property
    return [bytes(record.body) for record in iter_records(data[: end + 1])]


def put(bench: Any, store: Any, body: bytes) -> Any:
    return bench.put(store, body=body, properties="KEYS\x01k\x02")


async def test_what_was_put_is_written_at_the_end_of_the_turn(bench: Any, store: Any) -> None:
    result = put(bench, store, b"a")
    put(bench, store, b"b")
    assert (store.commit_log.end, store.commit_log.written) == (2 * result.end_offset, 0)
    assert bodies_on_file(bench) == []
    await asyncio.sleep(0)
    assert store.commit_log.written == store.commit_log.end
    assert bodies_on_file(bench) == [b"a", b"b"]


async def test_whoever_reads_sees_what_was_put(bench: Any, store: Any) -> None:
    looks: tuple[Callable[[PutResult], Any], ...] = (
        lambda result: store.get("Topic", 0, result.queue_offset, 1).buffers[0],
        lambda result: store.record_at(result.physical_offset),
    )
    for n, look in enumerate(looks):
        result = put(bench, store, b"body %d" % n)
        assert b"body %d" % n in bytes(look(result))
        assert store.commit_log.written == result.end_offset
    assert not store.commit_log.read(store.commit_log.end - 1, 2)


async def test_what_gets_no_entry_is_written_as_well(bench: Any, store: Any) -> None:
    bench.put(store, body=b"prepared", properties="KEYS\x01k\x02", sys_flag=4)
    store.settle()
    assert bodies_on_file(bench) == [b"prepared"]


async def test_a_full_buffer_is_written_at_once(bench: Any, store: Any) -> None:
    bodies = [bytes([65 + n]) * 100_000 for n in range(5)] + [b"z" * 300_000]
    for body in bodies:
        put(bench, store, body)
    log = store.commit_log
    assert 0 < log.written < log.end
    store.settle()
    assert bodies_on_file(bench) == bodies
    # The large buffer is kept for another large record, and given up behind a small one.
    buffer, _ = log.place
    put(bench, store, bodies[-1])
    store.settle()
    assert log.place[0] is buffer
    put(bench, store, b"small")
    store.settle()
    assert len(log.place[0]) < 300_000


def test_long_waits_for_the_files_are_noted(tmp_path: Path) -> None:
    ticks = itertools.count(0, 25_000_000)
    files = Files()
    run = MappedFileQueue(files, tmp_path, 1 << 20, "mappedFileSizeCommitLog", Retirement())
    log = CommitLog(run, FileAllocator(files), clock=lambda: next(ticks))
    log.reserve(7)
    assert log.long_waits.take() == [(25, 7)]  # for a new file
    log.append((b"x" * 7,), 7, 1)
    log.write()
    assert log.long_waits.take() == [(25, 7)]
    assert log.long_waits.take() == []
    run.close()


async def test_a_record_is_nothing_until_it_is_whole(
    bench: Any, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first four bytes come last."""
    seen = []
    write = Files.write

    def watched(files: Files, fd: int, data: memoryview, at: int) -> None:
        seen.append(bodies_on_file(bench))
        write(files, fd, data, at)

    put(bench, store, b"first")
    store.settle()
    monkeypatch.setattr(type(bench.files), "write", watched)
    put(bench, store, b"second")
    put(bench, store, b"third")
    store.settle()
    assert seen == [[b"first"], [b"first"]]
    assert bodies_on_file(bench) == [b"first", b"second", b"third"]


async def test_a_write_that_fails_loses_nothing(
    bench: Any, store: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until the disk works again nothing is acknowledged, and no more is taken than the buffer
    holds."""
    pwrite = os.pwrite

    def broken(fd: int, data: memoryview, at: int) -> int:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(os, "pwrite", broken)
    expected = [b"%d" % n + b"x" * 50_000 for n in range(6)]
    results = [put(bench, store, body) for body in expected]
    assert [result.ok for result in results] == [True] * 5 + [False]
    assert "the disk is broken" in results[-1].remark
    with pytest.raises(OSError, match="the disk is broken"):
        store.settle()
    flushed = asyncio.get_running_loop().create_future()
    store.when_flushed(store.commit_log.end, flushed.set_result)
    assert not await flushed
    assert "cannot be written" in store.refusal
    assert "cannot be written" in caplog.text
    readable = asyncio.Event()
    store.listen("Topic", 0, lambda *_: readable.set())
    monkeypatch.setattr(os, "pwrite", pwrite)
    await readable.wait()  # nobody has to ask for it
    assert bodies_on_file(bench) == expected[:5]
    assert not store.refusal


async def test_a_close_writes_what_is_left(bench: Any, tmp_path: Path) -> None:
    store = bench.open()
    store.start()
    put(bench, store, b"last words")
    await store.close()
    assert bodies_on_file(bench) == [b"last words"]
