"""What is left of deleted queues on the disk, until a thread has removed it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pocketmq.store.message_store import MessageStore
from tests.store.conftest import FailingFiles, StoreBench


def directories(bench: StoreBench) -> list[str]:
    """The queues on the disk, as topic/id."""
    found = (bench.root / "consumequeue").glob("*/*")
    return sorted(f"{path.parent.name}/{path.name}" for path in found)


def fill(bench: StoreBench, store: MessageStore, topic: str = "Topic", queues: int = 3) -> None:
    for queue_id in range(queues):
        bench.put(store, topic, queue_id, body=b"old")
    store.settle()


class StuckFiles(FailingFiles):
    """A disk that refuses to remove the files of one queue."""

    def __init__(self, stuck: Path) -> None:
        super().__init__()
        self.stuck: Path | None = stuck

    def remove(self, path: Path) -> None:
        if path.parent == self.stuck:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        super().remove(path)


async def test_a_deletion_does_not_wait_for_the_disk(bench: StoreBench) -> None:
    store = bench.open()
    fill(bench, store)
    before = directories(bench)
    assert store.delete_topic("Topic")
    assert directories(bench) == before
    assert "Topic" not in store.queues
    assert store.max_offset("Topic", 0) == 0
    await store.cleanup.remove_deleted()
    assert directories(bench) == []
    assert not (bench.root / "consumequeue" / "Topic").exists()


async def test_a_new_queue_has_nothing_of_the_old_one_that_is_still_on_the_disk(
    bench: StoreBench,
) -> None:
    store = bench.open()
    fill(bench, store)
    store.delete_topic("Topic")
    assert bench.put(store, queue_id=1, body=b"new").queue_offset == 0
    assert bench.bodies(store, queue_id=1) == [b"new"]
    await store.cleanup.remove_deleted()
    assert directories(bench) == ["Topic/1"]
    assert bench.bodies(store, queue_id=1) == [b"new"]
    store.delete_topic("Topic")
    store.delete_topic("Topic")
    await store.cleanup.remove_deleted()
    assert directories(bench) == []


async def test_a_slice_that_a_reader_holds_outlives_the_queue(bench: StoreBench) -> None:
    store = bench.open()
    fill(bench, store)
    held = store.queues["Topic"][0].raw(0, 1)
    entry = bytes(held)
    store.delete_topic("Topic")
    await store.cleanup.remove_deleted()
    assert bytes(held) == entry


@pytest.mark.parametrize("opened", [True, False])
async def test_a_queue_that_cannot_be_removed_holds_up_no_other(
    bench: StoreBench, opened: bool
) -> None:
    bench.files = files = StuckFiles(bench.root / "consumequeue" / "Topic" / "0")
    store = bench.open()
    fill(bench, store)
    fill(bench, store, "Other")
    if not opened:
        await store.close()
        store = bench.open()
    store.delete_topic("Topic")
    store.delete_topic("Other")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        await store.cleanup.remove_deleted()
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        await store.cleanup.remove_deleted()
    assert directories(bench) == ["Topic/0"]
    assert not bench.put(store).ok
    files.stuck = None
    assert bench.put(store).queue_offset == 0
    store.delete_topic("Topic")
    await store.cleanup.remove_deleted()
    assert directories(bench) == []


async def test_a_clean_stop_leaves_nothing_of_deleted_queues(bench: StoreBench) -> None:
    store = bench.open()
    fill(bench, store)
    store.delete_topic("Topic")
    bench.put(store, queue_id=2, body=b"new")
    await store.close()
    assert directories(bench) == ["Topic/2"]
    store = bench.open()
    assert bench.bodies(store, queue_id=2) == [b"new"]


async def test_a_start_after_a_kill_removes_what_was_left(bench: StoreBench) -> None:
    store = bench.open()
    fill(bench, store)
    end = store.commit_log.end
    store.delete_topic("Topic")
    bench.put(store, queue_id=2, body=b"new")
    store.settle()
    killed = bench.copy("killed")
    store = killed.open()
    assert directories(killed) == ["Topic/0", "Topic/1", "Topic/2"]
    steps = store.delete_deleted_queues({"Topic": end})
    assert len(list(steps)) == 3
    assert list(store.queues["Topic"]) == [2]
    assert killed.bodies(store, queue_id=2) == [b"new"]
    await store.cleanup.remove_deleted()
    assert directories(killed) == ["Topic/2"]
    await store.close()
