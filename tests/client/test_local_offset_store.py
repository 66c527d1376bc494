from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from pocketmq.client.consumer.offsets.local_offset_store import LocalOffsetStore, OffsetFileError
from pocketmq.message.message import MessageQueue
from tests.client.waiting import until

Q0 = MessageQueue("T", "b", 0)
Q1 = MessageQueue("T", "b", 1)


def store(tmp_path: Path) -> LocalOffsetStore:
    return LocalOffsetStore(tmp_path, "10.0.0.1@DEFAULT", "G")


async def test_offsets_are_there_in_the_next_run(tmp_path: Path) -> None:
    first = store(tmp_path)
    await first.load()
    assert await first.read(Q0) is None
    await asyncio.gather(first.store(Q0, 3), first.store(Q1, 4))
    await first.store(Q0, 5)
    second = store(tmp_path)
    await second.load()
    assert (await second.read(Q0), await second.read(Q1)) == (5, 4)
    assert first.path == tmp_path / "10.0.0.1@DEFAULT" / "G" / "offsets.json"
    assert sorted(path.name for path in first.path.parent.iterdir()) == [
        "offsets.json",
        "offsets.json.bak",
    ]


async def test_the_file_of_the_java_client(tmp_path: Path) -> None:
    offsets = store(tmp_path)
    offsets.path.parent.mkdir(parents=True)
    offsets.path.write_text(
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":1,\n\t\t\t"topic":"T"\n'
        "\t\t}:7\n\t}\n}"
    )
    await offsets.load()
    assert await offsets.read(Q1) == 7
    await offsets.store(Q0, 2)
    text = offsets.path.read_text()
    assert '{"brokerName":"b","queueId":0,"topic":"T"}:2' in text


async def test_a_torn_file_falls_back_to_the_one_before(tmp_path: Path) -> None:
    offsets = store(tmp_path)
    await offsets.store(Q0, 1)
    await offsets.store(Q0, 2)
    offsets.path.write_text('{"offsetTable":{{"brokerNa')
    await offsets.load()
    assert await offsets.read(Q0) == 1
    offsets.path.with_name("offsets.json.bak").write_text("?")
    with pytest.raises(OffsetFileError, match=r"offsets\.json"):
        await offsets.load()


async def test_a_file_that_can_not_be_written_is_tried_again(tmp_path: Path) -> None:
    offsets = store(tmp_path / "place")
    (tmp_path / "place").write_text("in the way")
    with pytest.raises(OffsetFileError):
        await offsets.store(Q0, 1)
    (tmp_path / "place").unlink()
    await offsets.store(Q0, 1)
    await offsets.load()
    assert await offsets.read(Q0) == 1


async def test_a_write_that_nobody_waits_for_undoes_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that is cancelled leaves a thread at work on the file."""
    writing, go_on = threading.Event(), threading.Event()
    fsync = os.fsync

    def first_waits(descriptor: int) -> None:
        if not writing.is_set():
            writing.set()
            assert go_on.wait(10)
        fsync(descriptor)

    def names() -> list[str]:
        return sorted(path.name for path in offsets.path.parent.iterdir())

    monkeypatch.setattr(os, "fsync", first_waits)
    offsets = store(tmp_path)
    first = asyncio.create_task(offsets.store(Q0, 1))
    await until(writing.is_set)
    first.cancel()
    await asyncio.wait([first])
    await offsets.store(Q0, 2)
    go_on.set()
    await until(lambda: names() == ["offsets.json"])  # the thread removes its own file last
    await offsets.load()
    assert await offsets.read(Q0) == 2


async def test_who_waits_for_a_write_that_is_cancelled_writes_himself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = [threading.Event(), threading.Event()]
    begun: list[int] = []

    def fsync(descriptor: int) -> None:
        begun.append(descriptor)
        if len(begun) <= 2:
            assert gates[len(begun) - 1].wait(10)
        if len(begun) == 2:
            raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", fsync)
    offsets = store(tmp_path)
    tasks = [asyncio.create_task(offsets.store(Q1, n)) for n in range(3)]
    await until(lambda: len(begun) == 1)
    gates[0].set()
    await until(lambda: len(begun) == 2)  # by the second, for the third as well
    tasks[1].cancel()
    await asyncio.wait([tasks[1]])
    gates[1].set()
    await tasks[2]
    await offsets.load()
    assert await offsets.read(Q1) == 2


async def test_a_full_disk_leaves_no_files_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    offsets = store(tmp_path)
    await offsets.store(Q0, 1)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OffsetFileError, match="no space"):
        await offsets.store(Q0, 2)
    assert [path.name for path in offsets.path.parent.iterdir()] == ["offsets.json"]
