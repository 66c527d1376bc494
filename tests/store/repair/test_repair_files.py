"""Files that have another's name, a wrong size, or lie where a directory belongs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.check.store_check import check_store
from pocketmq.store.errors import NotADirectory, NotAFile, StoreError
from pocketmq.store.repair.store_repair import repair_store
from tests.store.check.test_store_check import FILE, filled
from tests.store.repair.test_store_repair import check_served, everything, repaired


def swap(one: Path, other: Path) -> None:
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


async def test_files_of_the_log_that_were_swapped(bench: Any) -> None:
    await filled(bench)
    good = await everything(bench)
    swap(bench.segment(FILE), bench.segment(2 * FILE))
    repair = repaired(bench)
    assert len(repair.actions) == 2
    assert (repair.lost, repair.unknown) == ([], [])
    await check_served(bench, good, set())


async def test_files_of_the_log_and_of_a_queue_that_were_swapped(bench: Any) -> None:
    await filled(bench)
    good = await everything(bench)
    swap(bench.segment(FILE), bench.segment(2 * FILE))
    swap(bench.queue_file("Topic", 0), bench.queue_file("Topic", 1))
    repair = repaired(bench)
    assert (repair.lost, repair.unknown) == ([], [])
    await check_served(bench, good, set())


@pytest.mark.parametrize("name", [FILE + 1, 1 << 50])
async def test_a_file_of_the_log_that_lost_its_name(bench: Any, name: int) -> None:
    await filled(bench)
    good = await everything(bench)
    bench.segment(FILE).rename(bench.segment(name))
    repair = repaired(bench)
    assert (repair.lost, repair.unknown) == ([], [])
    await check_served(bench, good, set())


async def test_a_file_of_another_log_gets_no_place_in_this_one(bench: Any) -> None:
    """Its records are whole, but the queues know others at their places."""
    await filled(bench)
    good = await everything(bench)
    other = bench.copy("other")
    shutil.rmtree(other.root)
    store = other.open()
    for _ in range(300):
        other.put(store, body=b"foreign" + b"." * 100)
    await store.close()
    bench.segment(2 * FILE).unlink()
    shutil.copy(other.segment(2 * FILE), bench.segment(2 * FILE + 1))
    repair = repaired(bench)
    assert (Path(repair.kept) / "commitlog" / bench.segment(2 * FILE + 1).name).exists()
    lost = {(e.topic, e.queue_id, n) for e in repair.lost for n in range(e.begin, e.end)}
    await check_served(bench, good, lost)


async def test_a_file_of_the_log_that_is_too_long(bench: Any) -> None:
    await filled(bench)
    good = await everything(bench)
    with bench.segment(FILE).open("ab") as file:
        file.write(b"junk")
    with pytest.raises(StoreError, match="pocketmq store repair"):
        bench.open()
    repair = repaired(bench)
    assert (repair.lost, repair.unknown) == ([], [])
    await check_served(bench, good, set())


@pytest.mark.parametrize("end", [True, False])
async def test_a_queue_that_lost_entries_since_the_store_was_closed(
    bench: Any, caplog: Any, end: bool
) -> None:
    await filled(bench)
    good = await everything(bench)
    files = sorted(bench.queue_file("Topic", 0).parent.iterdir())
    files[-1 if end else 0].unlink()
    assert {problem.part for problem in check_store(bench.config()).problems} == {"consumequeue"}
    await check_served(bench, good, set())
    assert "building the consume queues from the whole commit log" in caplog.text


async def test_directories_and_files_in_the_place_of_the_other(bench: Any) -> None:
    await filled(bench)
    for path in (bench.root / "checkpoint", bench.segment(FILE), bench.root / "config/topics.json"):
        copy = bench.copy("copy")
        place = copy.root / path.relative_to(bench.root)
        place.unlink(missing_ok=True)
        place.mkdir(parents=True)
        with pytest.raises(NotAFile, match=f"{place} is a directory"):
            copy.open()
        shutil.rmtree(copy.root)
    shutil.rmtree(bench.root / "consumequeue" / "Topic" / "0")
    (bench.root / "consumequeue" / "Topic" / "0").write_bytes(b"")
    with pytest.raises(NotADirectory):
        bench.open()


@pytest.mark.parametrize(
    ("name", "key", "content"),
    [
        ("consumerOffset.json", "offsetTable", {"1": 2}),
        ("delayOffset.json", "offsetTable", {"T@G": {"0": 1}}),
        ("delayOffset.json", "offsetTable", {"x": 2}),
        ("consumerOffset.json", "dataVersion", {"timestamp": 1795608453e31}),
        ("subscriptionGroup.json", "dataVersion", {"counter": "many"}),
    ],
)
async def test_a_table_with_the_content_of_another(
    bench: Any, name: str, key: str, content: dict[str, Any]
) -> None:
    await filled(bench)
    config = bench.root / "config"
    config.mkdir(exist_ok=True)
    (config / name).write_text(json.dumps({key: content}))
    report = check_store(bench.config())
    assert [(each.part, Path(each.where).name) for each in report.problems] == [("config", name)]
    assert f"its {key} is not that of {name}: Expected" in report.problems[0].problem
    assert report.starts is False
    repair = repaired(bench)
    assert (Path(repair.kept) / "config" / name).exists()


async def test_topics_that_come_back_with_the_queues_are_entered(bench: Any) -> None:
    """The table of another store does not know that they were deleted."""
    await filled(bench)
    config = bench.root / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text('{"topicConfigTable":{}}')
    shutil.rmtree(bench.root / "consumequeue" / "Other")
    shutil.rmtree(bench.root / "consumequeue" / "Topic" / "1")
    repair_store(bench.config())
    assert check_store(bench.config()).problems == []
    table = json.loads((config / "topics.json").read_text())["topicConfigTable"]
    assert {topic: each["readQueueNums"] for topic, each in table.items()} == {
        "Topic": 2,
        "Other": 2,
    }
