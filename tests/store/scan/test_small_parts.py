"""The delay levels, the checkpoint, the lock, the configuration, and a store that does nothing."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.store.config import DEFAULT_DELAY_LEVELS, StoreConfig
from pocketmq.store.delay_level import DelayLevels
from pocketmq.store.errors import FileSizeMismatch, StoreLocked
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.store_lock import StoreLock
from tests.store.conftest import StoreBench

PROJECT = Path(__file__).parents[3]


def test_the_default_delay_levels() -> None:
    levels = DelayLevels(DEFAULT_DELAY_LEVELS)
    assert len(levels) == 18
    assert [levels.milliseconds(n) for n in (1, 5, 17, 18)] == [1000, 60_000, 3.6e6, 7.2e6]
    assert levels.milliseconds(99) == 7_200_000  # as the highest one
    assert levels.deliver_timestamp(3, 1_000_000) == 1_010_000
    assert DelayLevels("2d").milliseconds(1) == 172_800_000


@pytest.mark.parametrize("text", ["", "  ", "5", "s", "5x", "1s 2", "-1s", "1.5s", "1s,2s"])
def test_delay_levels_that_can_not_be_read(text: str) -> None:
    with pytest.raises(ValueError, match="messageDelayLevel"):
        DelayLevels(text)


def test_the_checkpoint_survives(bench: Any) -> None:
    path = bench.root / "checkpoint"
    checkpoint = Checkpoint(bench.files, path)
    checkpoint.open()
    assert checkpoint.recover_from == 0
    checkpoint.physic_timestamp = 10_000
    checkpoint.logics_timestamp = 9_000
    checkpoint.index_timestamp = 7
    assert checkpoint.recover_from == 6_000
    checkpoint.save()
    fields = struct.pack(">6q", 10_000, 9_000, 7, 0, 0, 0)
    ours = fields + bytes(8) + bench.files.boot_id() + bytes(16)
    checksum = zlib.crc32(ours).to_bytes(4)
    assert path.read_bytes() == fields + ours + checksum + bytes(4096 - 140)
    checkpoint.close()
    checkpoint.save()  # does nothing any more
    again = Checkpoint(bench.files, path)
    again.open()
    assert (again.physic_timestamp, again.logics_timestamp, again.index_timestamp) == (
        10_000, 9_000, 7,
    )  # fmt: skip
    again.close()


def test_an_empty_checkpoint_is_made_anew_and_a_strange_one_refused(bench: Any) -> None:
    path = bench.root / "checkpoint"
    bench.root.mkdir()
    path.touch()
    checkpoint = Checkpoint(bench.files, path)
    checkpoint.open()
    checkpoint.close()
    assert path.stat().st_size == 4096
    path.write_bytes(b"short")
    with pytest.raises(FileSizeMismatch, match="has 5 bytes"):
        Checkpoint(bench.files, path).open()


def test_the_lock_is_given_back(bench: Any) -> None:
    bench.root.mkdir()
    log = bench.root / "commitlog"
    first, second = StoreLock(bench.files, bench.root, log), StoreLock(bench.files, bench.root, log)
    first.acquire()
    assert (bench.root / "lock").read_bytes() == b"lock"
    assert not first.aborted
    first.mark_open()
    assert second.aborted
    with pytest.raises(StoreLocked, match=str(os.getpid())):
        second.acquire()
    second.release()  # was not held, does nothing
    first.mark_closed()
    first.release()
    second.acquire()
    assert not second.aborted
    second.release()


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_two_stores_do_not_share_a_commit_log(bench: Any, elsewhere: bool) -> None:
    """Neither one that lies apart from both, nor the one in the directory of another store."""
    log = bench.root.with_name("log") if elsewhere else bench.root / "commitlog"
    first = bench.open(store_path_commit_log=str(log) if elsewhere else "")
    bench.put(first)
    other = StoreBench(bench.root.with_name("other"))
    with pytest.raises(StoreLocked, match=f"the commit log {log} is in use"):
        other.open(store_path_commit_log=str(log))
    await first.close()
    second = other.open(store_path_commit_log=str(log))
    assert other.bodies(second) == [b"body"]
    await second.close()


def test_paths_and_sizes_of_the_configuration(tmp_path: Path) -> None:
    config = StoreConfig(store_path_root_dir=str(tmp_path), mapped_file_size_consume_queue=4001)
    assert config.commit_log_directory == tmp_path / "commitlog"
    assert config.consume_queue_directory == tmp_path / "consumequeue"
    assert config.consume_queue_file_size == 4020
    other = StoreConfig(store_path_commit_log=str(tmp_path / "elsewhere"))
    assert other.commit_log_directory == tmp_path / "elsewhere"
    assert other.root == Path.home() / "store"


def test_official_names_and_values() -> None:
    config = msgspec.convert(
        {
            "storePathRootDir": "/x",
            "flushDiskType": "SYNC_FLUSH",
            "mappedFileSizeCommitLog": "4096",
        },
        StoreConfig,
        strict=False,
    )
    assert (config.flush_disk_type.name, config.mapped_file_size_commit_log) == ("SYNC_FLUSH", 4096)
    for key, value in (("flushDiskType", "SOMETIMES"), ("mappedFileSizeCommitLog", 5)):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({key: value}, StoreConfig, strict=False)


async def test_an_idle_store_takes_neither_memory_nor_disk(bench: Any) -> None:
    """With files of the default size: nothing before the first message, a few MiB after it."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = resident()
    sizes = {"mapped_file_size_commit_log": 1 << 30, "mapped_file_size_consume_queue": 6_000_000}
    store = bench.open(**sizes)
    store.start()
    assert not list((bench.root / "commitlog").iterdir())
    for _ in range(100):
        bench.put(store)
    await store.close()
    assert resident() - before < 16 * 1024 * 1024
    store = bench.open(**sizes)
    store.start()
    assert len(list((bench.root / "commitlog").iterdir())) == 1


async def test_a_store_that_stopped_cleanly_opens_without_numpy(bench: Any) -> None:
    """Which would cost an idle broker 16 MB."""
    store = bench.open()
    bench.put(store, properties="UNIQ_KEY\x01id\x02")
    await store.close()
    program = """
import asyncio, sys
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore

async def main():
    root, files, slots, entries = sys.argv[1], *map(int, sys.argv[2:])
    config = StoreConfig(
        store_path_root_dir=root, mapped_file_size_commit_log=files,
        mapped_file_size_consume_queue=400, max_hash_slot_num=slots, max_index_num=entries,
    )
    store = MessageStore(config, store_host=bytes(8))
    store.open()
    store.start()
    assert store.get("Topic", 0, 0, 32, codes=frozenset({0})).message_count
    found = await store.index.query("Topic", "id", 1, 0, 2**62)
    assert len(found.records) == 1
    del found
    await store.close()

asyncio.run(main())
print("numpy" in sys.modules)
"""
    arguments = [sys.executable, "-c", program, bench.root, "16384", "500", "2000"]
    done = await asyncio.to_thread(
        subprocess.run, arguments, cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
