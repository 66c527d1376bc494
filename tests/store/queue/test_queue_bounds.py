"""A start knows where each queue ended, without opening it, and sees what has changed since."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from pocketmq.store.check.store_check import check_store
from pocketmq.store.errors import StoreCorrupt
from pocketmq.store.repair.store_repair import repair_store
from pocketmq.store.results import PutStatus
from pocketmq.store.snapshot.store_snapshot import write_snapshot
from tests.store.conftest import StoreBench

FILLER = b"." * 150
COUNT = 50  # messages of a queue: two and a half files


async def closed(bench: StoreBench, *topics: str) -> dict[str, list[bytes]]:
    """Fill queues one after the other, stop cleanly, and return the bodies."""
    store = bench.open()
    for topic in topics:
        for n in range(COUNT):
            bench.clock.now += 1
            assert bench.put(store, topic, body=b"%s %05d" % (topic.encode(), n) + FILLER).ok
    found = {topic: bench.bodies(store, topic) for topic in topics}
    await store.close()
    return found


def wipe_last_entry(bench: StoreBench, topic: str) -> None:
    with bench.queue_file(topic, 0, 800).open("r+b") as file:
        file.seek((COUNT - 40 - 1) * 20)
        file.write(bytes(20))


@pytest.mark.parametrize("base", [None, 0, 800], ids=["directory", "first file", "last file"])
async def test_a_queue_that_lost_files_is_built_again(
    bench: StoreBench, caplog: pytest.LogCaptureFixture, base: int | None
) -> None:
    bodies = await closed(bench, "Quiet", "Last")
    if base is None:
        shutil.rmtree(bench.root / "consumequeue" / "Quiet")
    else:
        bench.queue_file("Quiet", 0, base).unlink()
    store = bench.open()
    assert "building the consume queues from the whole commit log" in caplog.text
    assert str(bench.root / "consumequeue" / "Quiet" / "0") in caplog.text
    for topic in bodies:
        assert bench.bodies(store, topic) == bodies[topic]
    assert bench.put(store, "Quiet").queue_offset == COUNT


async def test_a_queue_that_came_back_is_seen(
    bench: StoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody copied the queue of a deleted topic back, whose messages the log still has."""
    bodies = await closed(bench, "Deleted", "Last")
    shutil.copytree(bench.root / "consumequeue" / "Deleted", bench.root / "copy")
    store = bench.open()
    assert store.delete_topic("Deleted")
    await store.close()
    shutil.move(bench.root / "copy", bench.root / "consumequeue" / "Deleted")
    store = bench.open()
    assert "building the consume queues from the whole commit log" in caplog.text
    assert bench.bodies(store, "Last") == bodies["Last"]


async def test_a_queue_that_ends_elsewhere_is_refused_when_it_is_used(
    bench: StoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    """The names and sizes of its files are right, so a start does not open it."""
    bodies = await closed(bench, "Quiet", "Last")
    wipe_last_entry(bench, "Quiet")
    for _ in range(2):  # a stop does not take what it never saw for right
        store = bench.open()
        result = bench.put(store, "Quiet")
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "queue Quiet/0 cannot be opened" in result.remark
        assert f"pocketmq store repair {bench.root}" in caplog.messages[-1]
        assert str(bench.root) not in result.remark
        with pytest.raises(StoreCorrupt, match=r"from offset 0 to 49 .* from 0 to 50 "):
            store.get("Quiet", 0, 0, 32)
        assert bench.bodies(store, "Last")[:COUNT] == bodies["Last"]
        assert bench.put(store, "Last").ok
        await store.close()
    repair_store(bench.config())
    store = bench.open()
    assert bench.bodies(store, "Quiet") == bodies["Quiet"]
    assert bench.put(store, "Quiet").queue_offset == COUNT


async def test_the_check_and_the_repair_see_it_too(bench: StoreBench) -> None:
    """Also where what is left agrees with the log, in which the queue's messages have expired."""
    await closed(bench, "Expired", "Middle", "Last")
    bench.segment(0).unlink()
    store = bench.open()
    assert store.min_offset("Expired", 0) == COUNT
    await store.close()
    wipe_last_entry(bench, "Expired")
    report = check_store(bench.config())
    assert [problem.where for problem in report.problems] == ["Expired/0"]
    assert "from 0 to 49, but it went from 0 to 50" in report.problems[0].problem
    repair_store(bench.config())
    assert check_store(bench.config()).problems == []
    store = bench.open()
    assert bench.put(store, "Expired").queue_offset == COUNT, "nothing else knows of the last one"


@pytest.mark.parametrize("killed", [False, True])
async def test_offsets_of_lost_messages_at_the_end_stay_known(
    bench: StoreBench, killed: bool
) -> None:
    """A repair replaced the last messages of a queue by padding. It gets no other message before
    the broker stops, or is killed, again and again; the log goes on."""
    store = bench.open()
    for _ in range(COUNT):
        assert bench.put(store, "Lost").ok
    places = [bench.put(store, "Lost").physical_offset for _ in range(3)]
    assert bench.put(store, "Gone").ok
    gone = bench.put(store, "AllGone").physical_offset
    for _ in range(300):
        assert bench.put(store, "Other").ok
    await store.close()
    for place in (*places, gone):
        base = place // (16 * 1024) * 16 * 1024
        with bench.segment(base).open("r+b") as file:
            file.seek(place - base + 89)
            file.write(b"??")
    repair = repair_store(bench.config())
    assert {(each.topic, each.begin, each.end) for each in repair.lost} == {
        ("Lost", COUNT, COUNT + 3), ("AllGone", 0, 1),
    }  # fmt: skip
    for number in range(3):
        store = bench.open()
        assert store.max_offset("Lost", 0) == COUNT
        assert bench.put(store, "Other").ok
        if killed:
            store.settle()
            bench = bench.copy(f"killed-{number}")
        await store.close()
    store = bench.open()
    assert bench.put(store, "Lost").queue_offset == COUNT + 3
    assert bench.put(store, "AllGone").queue_offset == 1
    assert bench.put(store, "Gone").queue_offset == 1
    assert len(bench.bodies(store, "Lost")) == COUNT + 1
    await store.close()


async def test_a_queue_of_which_all_is_lost_stays_without_a_file(bench: StoreBench) -> None:
    """A repair knows its offsets from elsewhere; nothing is left of its messages and entries."""
    await closed(bench, "Quiet", "Last")
    shutil.rmtree(bench.root / "consumequeue" / "Quiet" / "0")
    (bench.root / "consumequeue" / "Quiet" / "0").mkdir()
    bench.segment(0).write_bytes(b"")
    repair_store(bench.config())
    assert check_store(bench.config()).problems == []
    for _ in range(2):
        store = bench.open()
        assert store.max_offset("Quiet", 0) == COUNT
        await store.close()
    store = bench.open()
    assert bench.put(store, "Quiet").queue_offset == COUNT
    await store.close()


async def test_another_broker_may_change_queues(bench: StoreBench) -> None:
    """It writes its own fields of the checkpoint; then the queues are as it left them."""
    await closed(bench, "Quiet", "Last")
    wipe_last_entry(bench, "Quiet")
    with (bench.root / "checkpoint").open("r+b") as file:
        file.write((bench.clock.now + 1).to_bytes(8, "big"))
    store = bench.open()
    assert bench.put(store, "Quiet").ok
    await store.close()
    store = bench.open()
    assert bench.put(store, "Quiet").ok


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "changed"])
async def test_a_damaged_file_of_bounds_is_as_good_as_none(
    bench: StoreBench, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    bodies = await closed(bench, "Quiet", "Last")
    path = bench.root / "queuebounds"
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        wrong = {"empty": b"", "cut": content[:-5], "changed": content.replace(b"50", b"51")}
        path.write_bytes(wrong[damage])
    store = bench.open()
    assert f"{path} is missing or damaged" in caplog.text
    assert bench.bodies(store, "Quiet") == bodies["Quiet"]
    await store.close()
    wipe_last_entry(bench, "Quiet")
    store = bench.open()
    assert not bench.put(store, "Quiet").ok, "it was open, so its end is known again"


async def test_a_stop_on_a_full_disk(bench: StoreBench, caplog: pytest.LogCaptureFixture) -> None:
    await closed(bench, "Quiet", "Last")
    store = bench.open()
    assert bench.put(store, "Quiet").ok
    bench.files.full = True
    await store.close()
    assert "does not check the queues" in caplog.text
    assert not (bench.root / "abort").exists()
    bench.files.full = False
    store = bench.open()
    assert bench.put(store, "Quiet").queue_offset == COUNT + 1


async def test_after_a_kill_a_stop_knows_that_there_are_queues(
    bench: StoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that were not opened since may have got messages before the kill."""
    bodies = await closed(bench, "Quiet", "Last")
    store = bench.open()
    for _ in range(5):
        assert bench.put(store, "Last").ok
    bench = bench.copy("killed")
    store = bench.open()
    await store.close()
    shutil.rmtree(bench.root / "consumequeue" / "Quiet")
    store = bench.open()
    assert "building the consume queues from the whole commit log" in caplog.text
    assert bench.bodies(store, "Quiet") == bodies["Quiet"]
    await store.close()


async def test_a_snapshot_has_them(bench: StoreBench) -> None:
    await closed(bench, "Topic")
    taken = write_snapshot(bench.config(), bench.root.with_name("snapshot"))
    assert taken.left_out == []
    copied: Any = bench.root.with_name("snapshot") / "queuebounds"
    assert copied.read_bytes() == (bench.root / "queuebounds").read_bytes()


async def test_a_start_without_queues_that_were_all_deleted_reads_no_log(
    bench: StoreBench,
) -> None:
    await closed(bench, "Deleted")
    store = bench.open()
    assert store.delete_topic("Deleted")
    await store.close()
    store = bench.open()
    assert set(store.queues) == set()
    assert bench.put(store, "Deleted").queue_offset == 0


async def test_the_topic_of_a_queue_that_cannot_be_opened_can_be_deleted(bench: StoreBench) -> None:
    await closed(bench, "Quiet", "Last")
    wipe_last_entry(bench, "Quiet")
    store = bench.open()
    assert not bench.put(store, "Quiet").ok
    assert store.delete_topic("Quiet")
    await store.cleanup.remove_deleted()
    assert not (bench.root / "consumequeue" / "Quiet").exists()
    assert bench.put(store, "Quiet").queue_offset == 0
