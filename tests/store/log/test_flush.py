"""From stored to flushed: who waits is told, and a disk that fails is believed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from pocketmq.message.batch_body import encode_batch
from pocketmq.message.record import decode
from pocketmq.store.config import FlushDiskType
from pocketmq.store.results import GetStatus, PutStatus

SYNC = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
LAZY = {"flush_interval_commit_log": 3_600_000, "flush_interval_consume_queue": 3_600_000}


def flushed(store: Any, end_offset: int) -> asyncio.Future[bool]:
    """What `when_flushed` says, to be awaited."""
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    store.when_flushed(end_offset, future.set_result)
    return future


async def test_waiting_for_the_disk(bench: Any) -> None:
    store = bench.open(**SYNC, **LAZY)
    store.start()
    assert store.flushed_offset == 0
    result = bench.put(store)
    assert await flushed(store, result.end_offset)
    assert store.flushed_offset == result.end_offset
    assert "00000000000000000000" in bench.files.synced
    # What is flushed already is told at once.
    assert flushed(store, result.end_offset).done()


async def test_one_flush_serves_all_who_gathered(bench: Any) -> None:
    """While one fdatasync runs, the next ones gather: two flushes for any number of messages."""
    store = bench.open(**SYNC, **LAZY)
    store.start()
    assert await flushed(store, bench.put(store).end_offset)  # the file is made
    entered, proceed = threading.Event(), threading.Event()
    original = bench.files.fdatasync
    calls = 0

    def slow(fd: int) -> None:
        nonlocal calls
        calls += 1
        entered.set()
        assert proceed.wait(20)
        original(fd)

    bench.files.fdatasync = slow
    told: list[int] = []
    first = flushed(store, bench.put(store).end_offset)
    await asyncio.to_thread(entered.wait, 20)
    others = []
    for n in range(50):
        result = bench.put(store, "Topic", n % 3)
        others.append(flushed(store, result.end_offset))

        def tell(_: object, n: int = n) -> None:
            told.append(n)

        others[-1].add_done_callback(tell)
    assert not first.done()
    proceed.set()
    assert all(await asyncio.gather(first, *others))
    assert calls == 2
    assert told == sorted(told)
    bench.files.fdatasync = original


async def test_a_flush_includes_files_that_were_left_since(bench: Any) -> None:
    store = bench.open(**SYNC, **LAZY)
    for _ in range(100):
        last = bench.put(store, body=b"x" * 500)
    store.start()
    assert await flushed(store, last.end_offset)
    names = {f"{n * 16384:020d}" for n in range(len(store.commit_log.files.mapped))}
    assert len(names) > 3
    assert names <= set(bench.files.synced)


async def test_after_a_crash_what_was_recovered_is_flushed_as_well(bench: Any) -> None:
    """The killed process may not have come to it."""
    store = bench.open()
    for _ in range(100):
        bench.put(store, body=b"x" * 500)
    crashed = bench.copy("crashed")
    opened = crashed.open(**LAZY)
    assert opened.flushed_offset == opened.commit_log.end
    names = {file.path.name for file in opened.commit_log.files.mapped}
    assert len(names) > 3
    assert names <= set(crashed.files.synced)
    crashed.put(opened)
    await opened.close()
    queue_files = {f"{base:020d}" for base in range(0, 101 * 20, 400)}
    assert queue_files <= set(crashed.files.synced)


async def test_asynchronous_flushes_happen_by_themselves(bench: Any) -> None:
    store = bench.open(flush_interval_commit_log=1, flush_commit_log_least_pages=0)
    store.start()
    bench.put(store)
    await bench.files.next_sync(f"{0:020d}")


async def test_with_sync_flush_only_what_is_flushed_can_be_read(bench: Any) -> None:
    store = bench.open(**SYNC, **LAZY)
    arrivals: list[int] = []
    store.listen("Topic", 0, lambda offset, *_: arrivals.append(offset))
    # Without its threads the store flushes nothing.
    bench.put(store, body=b"one")
    batch = encode_batch([(0, b"two", b""), (0, b"three", b"")])
    result = store.put_batch("Topic", 0, batch, "", born_timestamp=1, born_host=bytes(8))
    assert result.queue_offset == 1
    assert store.get("Topic", 0, 0, 1).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert (store.max_offset("Topic", 0), arrivals) == (0, [])
    store.start()
    assert await flushed(store, result.end_offset)
    assert bench.bodies(store) == [b"one", b"two", b"three"]
    assert arrivals == [0, 1, 2]
    assert bench.put(store).queue_offset == 3


async def test_what_was_not_flushed_is_entered_when_closing(bench: Any) -> None:
    store = bench.open(**SYNC, **LAZY)
    store.start()
    for n in range(30):
        bench.put(store, body=b"%d" % n)
    await store.close()
    assert bench.bodies(bench.open()) == [b"%d" % n for n in range(30)]


async def test_after_a_crash_what_was_stored_but_not_entered_is_entered(
    bench: Any, caplog: Any
) -> None:
    """The queue has files for messages whose entries it did not get; they are not taken for a
    loss."""
    store = bench.open(**SYNC, **LAZY)
    store.start()
    first = bench.put(store, body=b"0")
    assert await flushed(store, first.end_offset)
    await store.close()
    store = bench.open(**SYNC, **LAZY)
    for n in range(1, 150):
        bench.put(store, body=b"%d" % n)
    assert (store.max_offset("Topic", 0), len(store.queues["Topic"][0].files.mapped)) == (1, 8)
    crashed = bench.copy("crashed")
    opened = crashed.open()
    assert crashed.bodies(opened) == [b"%d" % n for n in range(150)]
    assert caplog.text == ""
    await opened.close()


async def test_a_deleted_topic_is_not_entered_later(bench: Any) -> None:
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    store = bench.open(**SYNC, **LAZY)
    bench.put(store, body=b"old")
    store.delete_topic("Topic")
    bench.put(store, body=b"new")
    store.start()
    assert await flushed(store, store.commit_log.end)
    assert bench.bodies(store) == [b"new"]
    assert errors == []


@pytest.mark.parametrize("settings", [SYNC, {"flush_commit_log_least_pages": 0}])
async def test_a_failed_flush_is_final(bench: Any, settings: dict[str, Any]) -> None:
    """Everyone is told, no message is taken any more, and the next start recovers."""
    store = bench.open(**LAZY | settings)
    store.start()
    good = bench.put(store, body=b"good")
    assert await flushed(store, good.end_offset)
    bench.files.broken = True
    waiting = [flushed(store, bench.put(store).end_offset) for _ in range(3)]
    assert await asyncio.gather(*waiting) == [False] * 3
    bench.files.broken = False
    refused = bench.put(store)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "flushing to the disk failed" in refused.remark
    assert await flushed(store, store.commit_log.end) is False
    assert store.flushed_offset == good.end_offset
    assert bytes(decode(bytes(store.get("Topic", 0, 0, 1).buffers[0])).body) == b"good"
    await store.close()
    assert (bench.root / "abort").exists()


async def test_a_flush_that_takes_too_long(bench: Any) -> None:
    store = bench.open(**LAZY, **SYNC | {"sync_flush_timeout": 20})
    store.start()
    await flushed(store, bench.put(store).end_offset)  # the file is made
    proceed = threading.Event()
    original = bench.files.fdatasync

    def stuck(fd: int) -> None:
        assert proceed.wait(20)
        original(fd)

    bench.files.fdatasync = stuck
    result = bench.put(store)
    assert await flushed(store, result.end_offset) is False
    proceed.set()
    bench.files.fdatasync = original
    assert bench.put(store).ok  # it was slow, not broken
    await store.close()
    assert len(bench.bodies(bench.open())) == 3


async def test_bytes_that_are_not_dispatched(bench: Any) -> None:
    """As much as lies behind the first message that waits for the disk."""
    store = bench.open(**LAZY, **SYNC, message_index_enable=False)
    store.start()
    proceed = threading.Event()
    original = bench.files.fdatasync

    def stuck(fd: int) -> None:
        assert proceed.wait(20)
        original(fd)

    assert await flushed(store, bench.put(store).end_offset) is True
    assert store.dispatch_behind == 0
    bench.files.fdatasync = stuck
    results = [bench.put(store, queue_id=queue) for queue in range(3)]
    assert store.dispatch_behind == results[2].end_offset - results[0].physical_offset
    proceed.set()
    assert await flushed(store, results[2].end_offset) is True
    assert store.dispatch_behind == 0


async def test_waiting_when_the_store_closes(bench: Any) -> None:
    store = bench.open(**SYNC, **LAZY)
    store.start()
    waiting = [flushed(store, bench.put(store).end_offset) for _ in range(20)]
    await store.close()
    assert await asyncio.gather(*waiting) == [True] * 20
    assert await flushed(store, store.commit_log.end)


async def test_a_listener_that_fails_harms_nobody(bench: Any, caplog: Any) -> None:
    store = bench.open(**SYNC, **LAZY)
    store.start()

    def broken(done: bool) -> None:
        raise RuntimeError("a listener's own fault")

    end = bench.put(store).end_offset
    store.when_flushed(end, broken)
    assert await flushed(store, end)
    assert "a listener's own fault" in caplog.text


async def test_consume_queues_are_flushed_and_the_checkpoint_follows(bench: Any) -> None:
    store = bench.open(
        flush_interval_consume_queue=1, flush_consume_queue_thorough_interval=1,
        flush_interval_commit_log=1, flush_commit_log_least_pages=0,
    )  # fmt: skip
    store.start()
    bench.put(store)
    bench.clock.now += 1000
    bench.put(store, "Other", 2)
    stamp = bench.clock.now.to_bytes(8, "big")
    # A flush may begin while a message waits for its entry: then the checkpoint ends before it.
    for _ in range(100):
        await bench.files.next_sync(f"{0:020d}")
        await bench.files.next_sync("checkpoint")
        if (bench.root / "checkpoint").read_bytes()[8:16] == stamp:
            break
        bench.put(store)
    else:
        pytest.fail("the checkpoint does not follow")


async def test_a_failing_consume_queue_does_not_move_the_checkpoint(
    bench: Any, caplog: Any
) -> None:
    store = bench.open(
        flush_interval_consume_queue=1, flush_consume_queue_thorough_interval=1,
        flush_interval_commit_log=3_600_000,
    )  # fmt: skip
    bench.put(store)  # the file is made
    bench.files.broken = True  # before anything can be flushed
    store.start()
    bench.put(store)
    assert await asyncio.to_thread(bench.files.failed.wait, 20)
    assert not any((bench.root / "checkpoint").read_bytes()[:88])
    # Only the queues failed: they can be built again, so messages are still taken.
    assert bench.put(store).ok
    bench.files.broken = False
    await store.close()
    assert "flushing the consume queues failed" in caplog.text


async def test_files_are_closed_when_their_readers_are_gone(bench: Any) -> None:
    store = bench.open()
    bench.put(store)
    queue = store.queues["Topic"][0]
    (file,) = queue.files.mapped
    held = file.view[:20]
    store.delete_topic("Topic")
    await store.cleanup.remove_deleted()
    assert len(store.commit_log.files.retired) == 1
    held.release()
    store.commit_log.files.retired.sweep()  # as the flush thread does once a second
    assert len(store.commit_log.files.retired) == 0
    assert file.close()  # it is closed already
