"""The process that builds the index: the same files, and what happens when somebody dies."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from pocketmq.message import properties as names
from pocketmq.message.record import decode
from pocketmq.store.errors import StoreLocked
from pocketmq.store.files import Files, Retirement
from pocketmq.store.index import index_process
from pocketmq.store.index.index_layout import HEADER_SIZE
from pocketmq.store.index.index_pace import IndexPace
from pocketmq.store.index.index_process import IndexProcess
from pocketmq.store.index.index_table import IndexTable
from pocketmq.store.index.index_worker import IndexWorker, WorkerFailed
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.message_store import MessageStore
from pocketmq.store.store_lock import locked, wait_until_unlocked
from tests.store.conftest import FailingFiles, StoreBench

ALL_TIME = (0, 2**63 - 1)
PROJECT = Path(__file__).parents[3]
SMALL = {"max_hash_slot_num": 7, "max_index_num": 100}


# Every backlog is worth the process, which is given little at a time.
ALWAYS = IndexPace(process_behind=1, stretch=5_000, process_closing=0.01, moment=60.0)


@pytest.fixture
def always(bench: StoreBench) -> None:
    bench.index_pace = ALWAYS


def by_threads(bench: StoreBench) -> None:
    """From now on no process is started."""
    bench.index_pace, bench.index_worker = IndexPace(), IndexWorker


class Halted(IndexWorker):
    """A process that is stopped (SIGSTOP) with a request before it."""

    # Set when the answer to the first request with a process that `halt_at` is waited for.
    halted: threading.Event
    halt_at = 1
    made: ClassVar[list[Halted]]

    def __init__(
        self,
        table: IndexTable,
        log_files: MappedFileQueue,
        is_closing: Callable[[], bool],
        *,
        closing: float,
    ) -> None:
        self.requests = 0

        def asked() -> bool:
            # Only while an answer is waited for.
            if self.requests == self.halt_at:
                self.halted.set()
            return is_closing()

        super().__init__(table, log_files, asked, closing=closing, look=0.01)
        self.made.append(self)

    def enter(self, first: int, begin: int, enough: int, end: int) -> int:
        self.requests += 1
        if self.requests == self.halt_at:
            os.kill(self.pid, signal.SIGSTOP)
        return super().enter(first, begin, enough, end)


@pytest.fixture
def halted(bench: StoreBench, always: None) -> Iterator[type[Halted]]:
    class Fresh(Halted):
        halted = threading.Event()
        made: ClassVar[list[Halted]] = []

    bench.index_worker = Fresh
    yield Fresh
    for worker in Fresh.made:
        worker.kill()  # one that is stopped does not see that nobody wants it


async def until_halted(halted: type[Halted], store: MessageStore) -> int:
    """The id of the process, once it is stopped."""
    assert await asyncio.to_thread(halted.halted.wait, 30)
    assert store.index.process_id is not None
    return store.index.process_id


def fill(bench: StoreBench, store: MessageStore, first: int, count: int) -> None:
    """Messages of several sizes and numbers of keys, some of them many times over."""
    for n in range(first, first + count):
        bench.clock.now += 300
        keys = {"UNIQ_KEY": f"u{n}", "KEYS": f"k{n % 10} all"} if n % 3 else {"UNIQ_KEY": f"u{n}"}
        bench.put(store, properties=names.encode(keys), body=b"b" * (n // 40 % 3))
    store.settle()


async def found(store: MessageStore, key: str) -> list[int]:
    answer = await store.index.query("Topic", key, 64, *ALL_TIME)
    return [decode(bytes(view)).physical_offset for view in answer.records]


async def assert_complete(store: MessageStore, count: int) -> None:
    for n in (*range(0, count, 17), count - 1):
        assert len(await found(store, f"u{n}")) == 1, n
    assert len(await found(store, "all")) == 64


def contents(bench: StoreBench) -> list[bytes]:
    return [path.read_bytes() for path in sorted((bench.root / "index").iterdir())]


def table(bench: StoreBench, files: Files | None = None) -> IndexTable:
    files = files or Files()
    made = IndexTable(
        files, bench.root / "index", 7, 100, Checkpoint(files, Path()), Retirement(), bench.clock
    )
    made.load(clean=True)
    return made


def built_here(bench: StoreBench, wanted: Callable[[], bool] = lambda: True) -> IndexProcess:
    return IndexProcess(table(bench), bench.root / "commitlog", 16 * 1024, wanted)


async def test_the_process_makes_the_files_that_the_thread_makes(
    bench: StoreBench, always: None
) -> None:
    store = bench.open(message_index_enable=False, **SMALL)
    fill(bench, store, 0, 400)
    await store.close()
    threads, here = bench.copy("threads"), bench.copy("here")
    store = bench.open(**SMALL)
    store.start()
    await assert_complete(store, 400)
    pid = store.index.process_id
    assert pid is not None
    end = store.commit_log.end
    await store.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

    store = threads.open(**SMALL)
    store.start()
    await assert_complete(store, 400)
    await store.close()
    assert len(contents(bench)) > 3
    assert contents(bench) == contents(threads)

    # Given the same clock, under the same names.
    here.clock.now = threads.clock.now
    process = built_here(here)
    position = 0
    while position < end:
        position = process.enter(0, position, position + 5_000, end)
    paths = sorted((threads.root / "index").iterdir())
    assert [path.name for path in sorted((here.root / "index").iterdir())] == [
        path.name for path in paths
    ]
    assert contents(here) == contents(threads)
    # Full files are vouched for, so that they survive a crash.
    vouched = int.from_bytes((bench.root / "checkpoint").read_bytes()[16:24], "big")
    assert vouched == int.from_bytes(contents(bench)[-2][8:16], "big")


async def test_a_small_backlog_starts_no_process(bench: StoreBench) -> None:
    store = bench.open(**SMALL)
    fill(bench, store, 0, 200)
    store.start()
    await assert_complete(store, 200)
    assert store.index.process_id is None


async def test_the_process_ends_when_it_has_nothing_to_do(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()
    stop = IndexWorker.stop

    def stop_and_tell(worker: IndexWorker) -> None:
        stop(worker)
        stopped.set()

    bench.index_pace = msgspec.structs.replace(ALWAYS, process_idle=0.0)
    monkeypatch.setattr(IndexWorker, "stop", stop_and_tell)
    store = bench.open(**SMALL)
    fill(bench, store, 0, 100)
    store.start()
    await assert_complete(store, 100)
    assert await asyncio.to_thread(stopped.wait, 30)
    fill(bench, store, 100, 100)
    await assert_complete(store, 200)


@pytest.mark.parametrize("halt_at", [1, 2, 4])
async def test_a_killed_process_costs_nothing(
    bench: StoreBench,
    halted: type[Halted],
    caplog: pytest.LogCaptureFixture,
    halt_at: int,
) -> None:
    halted.halt_at = halt_at
    store = bench.open(**SMALL)
    fill(bench, store, 0, 300)
    store.start()
    os.kill(await until_halted(halted, store), signal.SIGKILL)
    await assert_complete(store, 300)
    fill(bench, store, 300, 50)
    await assert_complete(store, 350)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert ["by a thread from here on" in record.message for record in warnings] == [True]
    assert "status -9" in caplog.text
    # As though there had never been another process.
    twin = bench.copy("twin")
    await store.close()
    shutil.rmtree(twin.root / "index")
    store = twin.open(**SMALL)
    store.start()
    await assert_complete(store, 350)
    await store.close()
    assert contents(bench) == contents(twin)


async def test_what_a_killed_process_left_is_undone(bench: StoreBench) -> None:
    """With any part of the slots written, and with files that nobody was told of."""
    store = bench.open(message_index_enable=False, **SMALL)
    fill(bench, store, 0, 300)
    records = store.commit_log.end
    await store.close()
    dice = np.random.default_rng(5)
    for number in range(8):
        twin = bench.copy(f"twin{number}")
        twin.clock.now = bench.clock.now
        begin = built_here(twin).enter(0, 0, int(dice.integers(0, records)), records)
        mine = table(twin)
        before = contents(twin)
        twin.clock.now += 1
        built_here(twin).enter(0, begin, begin + int(dice.integers(1, 20_000)), records)
        for path, old in zip(sorted((twin.root / "index").iterdir()), before, strict=False):
            # It was killed while it wrote the slots: some are as they were.
            slots = np.memmap(path, ">i4", "r+", HEADER_SIZE, 7)
            kept = dice.integers(0, 2, 7).astype(bool)
            slots[kept] = np.frombuffer(old, ">i4", 7, HEADER_SIZE)[kept]
        mine.roll_back()
        after = contents(twin)
        assert len(after) == len(before)
        for now, old in zip(after, before, strict=True):
            counted = HEADER_SIZE + 7 * 4 + 20 * int.from_bytes(old[36:40], "big")
            assert now[:counted] == old[:counted]
        process = built_here(twin)
        assert process.enter(0, begin, records, records) == records
        whole = bench.copy(f"whole{number}")
        assert built_here(whole).enter(0, 0, records, records) == records
        assert contents(twin) == contents(whole)
        shutil.rmtree(twin.root)
        shutil.rmtree(whole.root)


async def test_what_was_found_is_found_while_the_process_writes(bench: StoreBench) -> None:
    store = bench.open(message_index_enable=False, **SMALL)
    fill(bench, store, 0, 60)
    records = store.commit_log.end
    await store.close()
    process = built_here(bench)
    middle = process.enter(0, 0, records // 2, records)
    reader = table(bench)
    before = {key: list(reader.search("Topic", key, *ALL_TIME)) for key in ("all", "u0", "k1")}
    process.enter(0, middle, records, records)  # of which `reader` is not told yet
    for key, answer in before.items():
        now = list(reader.search("Topic", key, *ALL_TIME))
        assert len(answer) > answer.count(None)
        assert set(answer) <= set(now)
    last = reader.end_offset
    reader.refresh()
    assert reader.end_offset == table(bench).end_offset > last
    assert reader.mapped[-1].used_slots == 7


async def test_a_query_meanwhile_gets_what_is_there(
    bench: StoreBench, halted: type[Halted]
) -> None:
    halted.halt_at = 3
    """Also of what the index lacks."""
    bench.index_pace = msgspec.structs.replace(ALWAYS, moment=0.01)
    store = bench.open(**SMALL)
    fill(bench, store, 0, 200)
    store.start()
    await until_halted(halted, store)
    index = store.index.position
    for number in (0, 198, 199):
        assert len(await found(store, f"u{number}")) == 1
    assert not await found(store, "u200")
    assert store.index.position == index


async def test_a_query_meanwhile_waits(bench: StoreBench, halted: type[Halted]) -> None:
    halted.halt_at = 3
    store = bench.open(**SMALL)
    fill(bench, store, 0, 200)
    store.start()
    pid = await until_halted(halted, store)
    waiting = asyncio.ensure_future(found(store, "u199"))
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGCONT)
    assert len(await waiting) == 1
    await assert_complete(store, 200)


async def test_a_store_that_is_closed_meanwhile_loses_nothing(
    bench: StoreBench, halted: type[Halted]
) -> None:
    halted.halt_at = 2
    store = bench.open(**SMALL)
    fill(bench, store, 0, 200)
    store.start()
    pid = await until_halted(halted, store)
    await store.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    by_threads(bench)
    before = contents(bench)
    store = bench.open(**SMALL)
    assert store.index.position == store.commit_log.end
    store.start()
    await assert_complete(store, 200)
    await store.close()
    assert contents(bench) == before


async def test_a_process_that_can_not_be_started(
    bench: StoreBench, always: None, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(sys, "executable", str(bench.root / "nothing"))
    store = bench.open(**SMALL)
    fill(bench, store, 0, 100)
    store.start()
    await assert_complete(store, 100)
    fill(bench, store, 100, 100)
    await assert_complete(store, 200)
    assert caplog.text.count("cannot be started") == 1


async def test_a_process_without_room_says_so(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = bench.open(message_index_enable=False)
    fill(bench, store, 0, 5)
    end = store.commit_log.end
    await store.close()
    files = FailingFiles()
    files.full = True
    monkeypatch.setattr(index_process, "Files", lambda: files)
    arguments = [str(bench.root / "index"), "7", "100", str(bench.root / "commitlog"), "16384"]
    arguments.append(str(os.getppid()))
    assert index_process.serve([f"0 0 {end} {end}\n"], arguments) == 1
    assert capsys.readouterr().out.startswith("DiskFull: no room for ")
    files.full = False
    assert index_process.serve([f"0 0 {end} {end}\n"], arguments) == 0
    assert capsys.readouterr().out == f"{end}\n"


async def test_a_process_that_says_something_else_has_failed(
    bench: StoreBench, tmp_path: Path
) -> None:
    store = bench.open(**SMALL)
    fill(bench, store, 0, 5)
    worker = IndexWorker(table(bench), store.commit_log.files, lambda: False)
    try:
        # A directory in the place of a file of the log.
        (bench.root / "commitlog" / f"{1 << 20:020d}").mkdir()
        with pytest.raises(WorkerFailed, match="IsADirectoryError"):
            worker.enter(0, 1 << 20, 2 << 20, 2 << 20)
        with pytest.raises(WorkerFailed):
            worker.enter(0, 0, 500, 500)
    finally:
        worker.kill()
    (bench.root / "commitlog" / f"{1 << 20:020d}").rmdir()


async def test_a_process_whose_broker_is_gone_writes_nothing(bench: StoreBench) -> None:
    store = bench.open(message_index_enable=False)
    fill(bench, store, 0, 50)
    await store.close()
    with pytest.raises(InterruptedError):
        built_here(bench, lambda: False).enter(0, 0, 1, store.commit_log.end)
    assert not (bench.root / "index").exists()


async def test_files_of_expired_messages_are_let_go(bench: StoreBench) -> None:
    store = bench.open(message_index_enable=False, **SMALL)
    fill(bench, store, 0, 200)
    end = store.commit_log.end
    await store.close()
    process = built_here(bench)
    half = process.enter(0, 0, end // 2, end)
    for path in sorted((bench.root / "commitlog").iterdir())[: half // 16384]:
        path.unlink()
    first = half - half % 16384
    assert process.enter(first, first, end, end) == end
    assert table(bench).mapped[0].end_offset >= first
    # One that went a moment ago is not an error.
    assert process.enter(first, 0, end, end) == end
    (bench.root / "commitlog" / f"{first:020d}").unlink()
    assert built_here(bench).enter(first, first, end, end) == first


BROKER = """
import asyncio, sys
from pocketmq.store.config import StoreConfig
from pocketmq.store.index.index_pace import IndexPace
from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.message_store import MessageStore

async def main():
    store = MessageStore(
        StoreConfig(
            store_path_root_dir=sys.argv[1], mapped_file_size_commit_log=16384,
            mapped_file_size_consume_queue=400, max_hash_slot_num=7, max_index_num=100,
        ),
        store_host=bytes(8),
        index_pace=IndexPace(process_behind=1, stretch=5000),
    )
    store.open()
    store.start()
    number = 0
    while True:
        while store.commit_log.end < store.index.position + 40_000:
            store.put("Topic", 0, b"", f"UNIQ_KEY\\1u{number}\\2", born_timestamp=1,
                      born_host=bytes(8), tags_code=0)
            number += 1
        store.settle()
        if (pid := store.index.process_id) is not None:
            print(number, pid, store.index.position, flush=True)
        await asyncio.sleep(0.001)

asyncio.run(main())
"""


@pytest.mark.crash
async def test_the_next_broker_waits_for_the_process_of_a_killed_one(bench: StoreBench) -> None:
    broker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BROKER, str(bench.root), stdout=subprocess.PIPE, cwd=PROJECT
    )
    assert broker.stdout is not None
    position = 0
    while position < 50_000:
        number, pid, position = map(int, (await broker.stdout.readline()).split())
    os.kill(pid, signal.SIGSTOP)
    broker.kill()
    await broker.wait()
    directory = bench.root / "index"
    with pytest.raises(BlockingIOError), locked(directory):
        pass
    store = bench.store(**SMALL)
    opening = asyncio.ensure_future(asyncio.to_thread(store.open))
    await asyncio.sleep(0)
    assert not opening.done()
    os.kill(pid, signal.SIGCONT)
    await opening
    with locked(directory):
        pass
    before = contents(bench)
    store.start()
    for n in range(0, number, 1 + number // 100):
        assert len(await found(store, f"u{n}")) == 1
    assert len(before) > 2
    assert contents(bench)[: len(before) - 1] == before[:-1]


def test_a_process_that_stays_keeps_the_next_broker_out(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(StoreLocked):
        wait_until_unlocked(tmp_path, tmp_path, timeout=0.05)
    wait_until_unlocked(tmp_path, tmp_path)
    wait_until_unlocked(tmp_path, tmp_path / "nothing")
