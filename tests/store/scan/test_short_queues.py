"""A strict read of a store whose queues lost entries has every message, fails, or says what is
missing."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.store.errors import StoreCorrupt
from pocketmq.store.scan.direct_scan import scan
from tests.store.made_store import MadeStore, rows_of

COUNT = 100
UNIT = 20


async def closed_store(bench: Any) -> Path:
    """Messages in turn in two queues of three files each; a clean store with notes."""
    store = bench.open()
    for number in range(COUNT):
        bench.clock.now += 1
        bench.put(store, "T", number % 2, body=b"%03d" % number * 80)
    await store.close()
    root = bench.root
    assert isinstance(root, Path)
    return root


def places(root: Path) -> list[tuple[int, int]]:
    return [(row["queueId"], row["queueOffset"]) for row in rows_of(scan(root))]


EVERYTHING = [(queue, offset) for queue in range(2) for offset in range(COUNT // 2)]


def zeros(path: Path, first: int, count: int) -> None:
    with path.open("r+b") as file:
        file.seek(first * UNIT)
        file.write(bytes(count * UNIT))


def cut(queue: Path) -> None:
    with (queue / f"{800:020d}").open("r+b") as file:
        file.truncate(3 * UNIT + 8)


def empty(queue: Path) -> None:
    for path in queue.iterdir():
        zeros(path, 0, 20)


DAMAGES = [
    pytest.param(lambda queue: shutil.rmtree(queue), id="removed"),
    pytest.param(lambda queue: (queue / f"{800:020d}").unlink(), id="without its last file"),
    pytest.param(lambda queue: zeros(queue / f"{800:020d}", 3, 7), id="zeros at its end"),
    pytest.param(lambda queue: zeros(queue / f"{400:020d}", 15, 5), id="zeros in a full file"),
    pytest.param(cut, id="cut"),
    pytest.param(empty, id="all zeros"),
]


@pytest.mark.parametrize("damaged", DAMAGES)
async def test_entries_that_a_closed_queue_lost_are_found_in_the_log(
    bench: Any, caplog: pytest.LogCaptureFixture, damaged: Callable[[Path], object]
) -> None:
    root = await closed_store(bench)
    assert places(root) == EVERYTHING
    assert not caplog.messages
    damaged(root / "consumequeue" / "T" / "1")
    assert places(root) == EVERYTHING
    [told] = [each for each in caplog.messages if "the consume queue is damaged" in each]
    assert told.startswith("T/1: ")
    assert told.endswith(f"to {COUNT // 2 - 1} were found in the commit log alone")


async def test_what_the_log_lost_as_well_is_named(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    root = await closed_store(bench)
    zeros(root / "consumequeue" / "T" / "1" / f"{800:020d}", 3, 7)
    last = sorted((root / "commitlog").iterdir())[-1]
    last.write_bytes(bytes(last.stat().st_size))
    lost = [place for place in EVERYTHING if place not in places(root)]
    assert lost == [(0, 49), (1, 49)]
    for queue in range(2):
        assert f"T/{queue}: the messages at the queue offsets 49 to 49 are missing" in caplog.text


async def test_the_first_file_of_a_queue_is_missing(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    root = await closed_store(bench)
    (root / "consumequeue" / "T" / "1" / f"{0:020d}").unlink()
    assert places(root) == [place for place in EVERYTHING if place[0] == 0 or place[1] >= 20]
    assert "T/1: the entries at the queue offsets 0 to 19 are missing" in caplog.text


async def test_the_first_file_of_the_log_is_empty(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    root = await closed_store(bench)
    path = bench.segment()
    path.write_bytes(b"")
    assert len(places(root)) < COUNT
    assert f"{path} is empty: the messages at the physical offsets 0 to 16383" in caplog.text


@pytest.mark.parametrize("crashed", [True, False])
def test_entries_behind_a_hole_show_that_others_are_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, crashed: bool
) -> None:
    """The checkpoint vouches for them, and nobody noted where the queue ends."""
    store = MadeStore(tmp_path)
    for number in range(COUNT):
        store.put(queue_id=number % 2)
    store.now += 60_000
    store.put("Later")
    root = store.write(crashed=crashed)
    store.write_checkpoint()
    zeros(root / "consumequeue" / "T" / "1" / f"{0:020d}", 20, 10)
    rows = [(row["topic"], row["queueId"], row["queueOffset"]) for row in rows_of(scan(root))]
    assert rows == [("Later", 0, 0), *(("T", *place) for place in EVERYTHING)]
    assert "T/1: the consume queue is damaged" in caplog.text


def test_a_queue_with_the_entries_of_another_topic_is_an_error(tmp_path: Path) -> None:
    store = MadeStore(tmp_path)
    for number in range(COUNT):
        store.put("AB"[number % 2], body=b"%d" % number)
    root = store.write()
    first, second = (root / "consumequeue" / topic / "0" for topic in "AB")
    for source, target in ((first, root / "first"), (second, first), (root / "first", second)):
        source.rename(target)
    with pytest.raises(StoreCorrupt, match="found: the record of B/0 offset 0"):
        rows_of(scan(root, ["topic", "body"]))


def test_a_store_that_a_kill_left_is_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    store = MadeStore(tmp_path)
    for number in range(COUNT):
        store.put(queue_id=number % 2, entry=number < COUNT - 10)
    assert places(store.write(crashed=True)) == EVERYTHING
    assert not caplog.messages
