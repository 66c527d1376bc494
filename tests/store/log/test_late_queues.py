"""Queues that a start leaves closed: they are opened, and are right, when they are asked for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.batch_body import encode_batch
from pocketmq.store.check.store_check import check_store
from pocketmq.store.errors import StoreCorrupt
from pocketmq.store.files import MappedFile
from pocketmq.store.repair.store_repair import repair_store
from pocketmq.store.results import PutStatus
from tests.store.conftest import FailingFiles, StoreBench

OTHER_BOOT = b"another boot id."


def opened_queues(bench: StoreBench, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics whose queue files were opened since, one after the other."""
    opened: list[str] = []

    def open_file(path: Path, *rest: Any, **more: Any) -> MappedFile:
        if "consumequeue" in path.parts:
            opened.append(path.parts[-3])
        return FailingFiles.open(bench.files, path, *rest, **more)

    monkeypatch.setattr(bench.files, "open", open_file)
    return opened


def fill(bench: StoreBench, store: Any, topic: str, count: int) -> None:
    for n in range(count):
        bench.clock.now += 1
        assert bench.put(store, topic, body=b"%05d" % n + b"." * 100).ok


def crash(bench: StoreBench) -> StoreBench:
    """A copy of the store as a killed process leaves it."""
    return bench.copy("crashed")


async def killed_late(bench: StoreBench, quiet: int) -> StoreBench:
    """A store whose process was killed when it had stored something in Busy. Nothing has happened
    to the `quiet` messages of Quiet since the last clean stop."""
    store = bench.open()
    fill(bench, store, "Quiet", quiet)
    fill(bench, store, "Busy", 200)
    await store.close()
    fill(bench, bench.open(), "Busy", 5)
    return crash(bench)


async def test_a_start_after_a_clean_stop_opens_one_queue(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.open()
    for topic in ("A", "B", "C"):
        fill(bench, store, topic, 100)
    await store.close()
    opened = opened_queues(bench, monkeypatch)
    store = bench.open()
    assert set(opened) == {"C"}, "that of the last message, which is looked at"
    assert set(store.queues) == {"A", "B", "C"}
    assert set(opened) == {"C"}
    assert (store.min_offset("A", 0), store.max_offset("A", 0)) == (0, 100)
    assert len(bench.bodies(store, "B")) == 100
    assert bench.put(store, "B").queue_offset == 100
    body = encode_batch([(0, b"body", b"")])
    result = store.put_batch("A", 0, body, "", born_timestamp=1, born_host=bytes(8))
    assert result.queue_offset == 100


async def test_after_a_kill_only_queues_behind_the_checkpoint_are_opened(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.open()
    fill(bench, store, "Quiet", 100)
    fill(bench, store, "Busy", 100)
    await store.close()
    store = bench.open()
    fill(bench, store, "Busy", 100)
    fill(bench, store, "New", 5)
    crashed = crash(bench)
    opened = opened_queues(crashed, monkeypatch)
    again = crashed.open()
    assert set(opened) == {"Busy", "New"}
    assert crashed.bodies(again, "Busy") == bench.bodies(store, "Busy")
    assert (again.max_offset("New", 0), again.max_offset("Quiet", 0)) == (5, 100)
    assert crashed.bodies(again, "Quiet") == bench.bodies(store, "Quiet")
    assert crashed.put(again, "Quiet").queue_offset == 100
    await again.close()
    last = crashed.open()
    assert last.max_offset("Quiet", 0) == 101
    await last.close()


async def test_after_a_power_cut_queues_ahead_of_the_log_are_cut_at_once(
    bench: StoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    """The log lost messages whose entries are on the disk. If these stayed, new messages would come
    to lie where they point, and the official broker would take them for messages."""
    store = bench.open()
    fill(bench, store, "Quiet", 10)
    fill(bench, store, "Busy", 10)
    await store.close()
    store = bench.open()
    end = store.commit_log.end
    fill(bench, store, "Quiet", 5)
    crashed = crash(bench)
    with crashed.segment().open("r+b") as file:
        file.seek(end)
        file.write(bytes(16 * 1024 - end))
    crashed.files.boot_id = lambda: OTHER_BOOT  # type: ignore[method-assign]
    again = crashed.open()
    assert "Quiet/0: cut 5 entries without a message" in caplog.text
    assert not any(crashed.queue_file("Quiet", 0).read_bytes()[200:])
    fill(crashed, again, "Busy", 5)
    assert again.max_offset("Quiet", 0) == 10
    assert crashed.put(again, "Quiet").queue_offset == 10
    await again.close()


@pytest.mark.parametrize("killed", [False, True])
async def test_a_late_queue_knows_what_has_expired(bench: StoreBench, killed: bool) -> None:
    store = bench.open()
    fill(bench, store, "Old", 100)
    fill(bench, store, "New", 100)
    await store.close()
    if killed:
        store = bench.open()
        fill(bench, store, "New", 10)
        bench = crash(bench)
    bench.segment(0).unlink()
    store = bench.open()
    low = store.min_offset("Old", 0)
    assert 60 < low < 100
    assert [record.queue_offset for record in bench.read_all(store, "Old")] == [*range(low, 100)]
    assert bench.put(store, "Old").queue_offset == 100
    await store.close()


async def test_a_queue_that_cannot_be_opened_concerns_no_other(
    bench: StoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    store = bench.open()
    fill(bench, store, "Broken", 50)
    fill(bench, store, "Whole", 10)
    await store.close()
    bench.queue_file("Broken", 0, 400).unlink()
    store = bench.open()
    result = bench.put(store, "Broken")
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "queue Broken/0 cannot be opened" in result.remark
    assert "the file 00000000000000000400 before it is missing" in caplog.text
    assert str(bench.root) not in result.remark
    with pytest.raises(StoreCorrupt, match="before it is missing"):
        store.get("Broken", 0, 0, 32)
    assert bench.put(store, "Whole").queue_offset == 10
    assert len(bench.bodies(store, "Whole")) == 11


async def test_a_topic_that_was_not_opened_is_deleted(bench: StoreBench) -> None:
    store = bench.open()
    fill(bench, store, "Old", 50)
    fill(bench, store, "New", 10)
    await store.close()
    store = bench.open()
    assert store.delete_topic("Old")
    await store.cleanup.remove_deleted()
    assert not (bench.root / "consumequeue" / "Old").exists()
    assert not store.delete_topic("Old")
    assert set(store.queues) == {"New"}
    assert bench.put(store, "Old").queue_offset == 0


async def test_the_message_of_a_topic_deleted_before_a_clean_stop_stays_away(
    bench: StoreBench,
) -> None:
    store = bench.open()
    fill(bench, store, "Kept", 5)
    fill(bench, store, "Deleted", 5)
    assert store.delete_topic("Deleted")
    await store.close()
    store = bench.open()
    assert set(store.queues) == {"Kept"}


async def test_a_queue_that_lost_its_last_entry_is_built_again(
    bench: StoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    store = bench.open()
    fill(bench, store, "Topic", 30)
    fill(bench, store, "Other", 30)
    expected = bench.bodies(store, "Other")
    await store.close()
    with bench.queue_file("Other", 0, 400).open("r+b") as file:
        file.seek(9 * 20)
        file.write(bytes(20))
    store = bench.open()
    assert "building the consume queues from the whole commit log" in caplog.text
    assert bench.bodies(store, "Other") == expected


async def test_queues_of_a_store_without_a_checkpoint_are_all_opened(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.open()
    fill(bench, store, "A", 10)
    fill(bench, store, "B", 10)
    await store.close()
    (bench.root / "checkpoint").unlink()
    shutil.rmtree(bench.root / "index", ignore_errors=True)
    opened = opened_queues(bench, monkeypatch)
    store = bench.open()
    assert set(opened) == {"A", "B"}
    assert store.max_offset("A", 0) == 10


async def test_the_name_of_a_file_that_never_got_an_entry_is_synced_with_its_first(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue has its file before the log has room for the message."""
    store = bench.open()
    fill(bench, store, "Old", 50)
    bench.files.full_for = bench.segment(-(-store.commit_log.end // 16384) * 16384)
    assert not bench.put(store, "New", body=bytes(16_000)).ok
    bench.files.full_for = None
    assert bench.queue_file("New", 0).exists()
    await store.close()
    synced: list[Path] = []
    monkeypatch.setattr(bench.files, "sync_directory", synced.append)
    store = bench.open()
    assert bench.put(store, "New").queue_offset == 0
    assert bench.put(store, "Old").queue_offset == 50
    await store.close()
    queues = bench.root / "consumequeue"
    assert {queues / "New" / "0", queues / "New", queues} <= set(synced)
    assert queues / "Old" not in synced


async def test_a_late_queue_that_leads_nowhere_is_refused_after_a_kill(
    bench: StoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    """Its offset would be given again. A process writes an entry after its message, so this is
    damage."""
    bench = await killed_late(bench, 5)
    with bench.queue_file("Quiet", 0).open("r+b") as file:
        file.seek(4 * 20)
        file.write((1 << 40).to_bytes(8, "big"))
    store = bench.open()
    result = bench.put(store, "Quiet")
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "the entries from 4 to 5 do not lead to their messages" in caplog.text
    assert f"pocketmq store repair {bench.root}" in caplog.text
    assert bench.put(store, "Busy").queue_offset == 205
    await store.close()
    assert "Quiet/0" in {problem.where for problem in check_store(bench.config()).problems}
    repair_store(bench.config())
    store = bench.open()
    assert bench.put(store, "Quiet").queue_offset == 5


async def test_a_busy_queue_that_leads_nowhere_is_built_again_after_a_kill(
    bench: StoreBench,
) -> None:
    store = bench.open()
    fill(bench, store, "Busy", 200)
    await store.close()
    store = bench.open()
    fill(bench, store, "Busy", 5)
    bench = crash(bench)
    with bench.queue_file("Busy", 0, 3600).open("r+b") as file:
        file.seek(-20, 2)
        file.write((1 << 40).to_bytes(8, "big"))
    store = bench.open()
    assert store.max_offset("Busy", 0) == 205
    assert len(bench.bodies(store, "Busy")) == 205


async def test_a_late_queue_with_a_hole_is_refused_after_a_kill(
    bench: StoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await killed_late(bench, 50)
    with bench.queue_file("Quiet", 0, 800).open("r+b") as file:
        file.seek(4 * 20)
        file.write(bytes(3 * 20))
    store = bench.open()
    assert bench.put(store, "Quiet").status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "behind a hole at 44" in caplog.text
    await store.close()
    repair_store(bench.config())
    store = bench.open()
    assert bench.put(store, "Quiet").queue_offset == 50


async def test_a_queue_with_a_hole_is_built_again_when_the_checkpoint_is_damaged(
    bench: StoreBench,
) -> None:
    """Nothing else knows where the queue ended when the broker was stopped."""
    store = bench.open()
    fill(bench, store, "Quiet", 50)
    fill(bench, store, "Busy", 200)
    await store.close()
    (bench.root / "checkpoint").write_bytes(b"?" * 4096)
    with bench.queue_file("Quiet", 0, 800).open("r+b") as file:
        file.seek(4 * 20)
        file.write(bytes(3 * 20))
    assert len(bench.bodies(bench.open(), "Quiet")) == 50


async def test_a_start_that_is_refused_leaves_no_wrong_entries(bench: StoreBench) -> None:
    """It walks twice, and has begun to build the queue from what is left when it is refused."""
    store = bench.open()
    fill(bench, store, "Quiet", 15)
    await store.close()
    store = bench.open()
    stored = [bench.put(store, "Quiet", body=b"%05d" % n + b"." * 100) for n in range(15, 50)]
    fill(bench, store, "Busy", 5)
    bench = crash(bench)
    good = bench.bodies(bench.copy("good").open(), "Quiet")
    bench.queue_file("Quiet", 0).unlink()
    with bench.segment().open("r+b") as log:
        log.seek(stored[3].physical_offset + 95)
        log.write(b"?")
    with pytest.raises(StoreCorrupt, match="the file is damaged"):
        bench.open()
    repair_store(bench.config())
    assert bench.bodies(bench.open(), "Quiet") == [body for body in good if body[:5] != b"00018"]
