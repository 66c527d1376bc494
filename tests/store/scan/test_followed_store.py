"""A store that is looked at again is seen as it is, whatever has happened since the last look."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pip install 'pocketmq[spark]'")

from pocketmq.store.scan.followed_store import FollowedStore
from pocketmq.store.scan.planning.snapshot import StoreSnapshot
from pocketmq.store.scan.planning.tail import take_snapshot
from tests.spark.stream_store import OpenStore
from tests.store.made_store import MadeStore, held_open, write


def far_future() -> int:
    """So late that no file has been changed within the last tick of the clock."""
    return 2**62


def ends(store: StoreSnapshot) -> dict[tuple[str, int], tuple[int, int, int]]:
    return {
        name: (queue.min_offset, queue.max_offset, queue.max_physical())
        for name, queue in store.queues.items()
    }


def assert_seen(followed: FollowedStore, root: Path) -> None:
    found = followed.look()
    fresh = take_snapshot(root)
    assert ends(found) == ends(fresh)
    assert found.log.begin == fresh.log.begin
    for name, queue in fresh.queues.items():
        offsets = range(queue.min_offset, queue.known_end)
        assert [found.queues[name].entry(n) for n in offsets] == [queue.entry(n) for n in offsets]


def test_a_broker_adds_a_few_and_many_messages(tmp_path: Path) -> None:
    followed = FollowedStore(tmp_path, clock=far_future)
    with OpenStore(tmp_path) as store:
        for count in (1, 1, 3, 0, 203, 204, 205, 700, 1):  # a file of a queue has 1,000 entries
            store.add(count)
            store.add(count // 2, queue_id=1)
            assert_seen(followed, tmp_path)
            assert followed.look().queues["T", 0].max_offset == store.sent("T", 0)
        store.add(2, topic="New")
        assert_seen(followed, tmp_path)
    assert_seen(followed, tmp_path)
    with OpenStore(tmp_path) as store:
        store.add(5)
        assert_seen(followed, tmp_path)


def expire(made: MadeStore) -> None:
    files = sorted((made.root / "commitlog").iterdir())
    if len(files) > 1:
        files[0].unlink()


def expire_with_queues(made: MadeStore) -> None:
    expire(made)
    for directory in (made.root / "consumequeue").glob("*/*"):
        files = sorted(directory.iterdir())
        if len(files) > 1:
            files[0].unlink()


def begin_anew(made: MadeStore) -> None:
    shutil.rmtree(made.root / "consumequeue" / "T", ignore_errors=True)
    for queue_id in range(3):
        made.entries.pop(("T", queue_id), None)
        made.next_offsets.pop(("T", queue_id), None)


def drop_tails(made: MadeStore) -> None:
    for entries in made.entries.values():
        del entries[max(len(entries) - 40, 0) :]


def replace_a_tail(made: MadeStore) -> None:
    key = ("T", 0)
    del made.entries[key][-20:]
    made.next_offsets[key] = len(made.entries[key]) // 20
    made.put("T", 0, b"another one")


CHANGES: list[Callable[[MadeStore], object]] = [
    expire, expire_with_queues, begin_anew, drop_tails, replace_a_tail, lambda _: None
]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_open", [True, False])
def test_whatever_happens_between_two_looks(tmp_path: Path, is_open: bool, seed: int) -> None:
    chosen = random.Random(seed)
    made = MadeStore(tmp_path)
    made.put()
    made.write()
    followed = FollowedStore(tmp_path)
    with held_open(tmp_path) if is_open else nullcontext():
        for _ in range(8):
            for _ in range(chosen.randrange(80)):
                made.put("TU"[chosen.randrange(2)], chosen.randrange(3))
            gone = expired(made)
            made.write()
            for path in gone:
                path.unlink()
            chosen.choice(CHANGES)(made)
            assert_seen(followed, tmp_path)


def expired(made: MadeStore) -> list[Path]:
    """Files of the log and the queues that are not there any more."""
    gone = []
    for directory in (made.root / "commitlog", *(made.root / "consumequeue").glob("*/*")):
        size = 1000 if "consumequeue" in str(directory) else made.segment_size
        first = min(int(path.name) for path in directory.iterdir())
        gone += [directory / f"{base:020d}" for base in range(0, first, size)]
    return gone


def test_a_closed_store_is_read_once(tmp_path: Path) -> None:
    made = MadeStore(tmp_path)
    made.put()
    made.write()
    followed = FollowedStore(tmp_path, clock=far_future)
    first = followed.look()
    assert followed.look() is first
    write(tmp_path / "checkpoint", bytes(4096))
    assert followed.look() is not first


def test_a_closed_store_that_has_just_changed_is_read_again(tmp_path: Path) -> None:
    """Its files may change once more within the same tick of the clock."""
    made = MadeStore(tmp_path)
    made.put()
    made.write()
    followed = FollowedStore(tmp_path)
    first = followed.look()
    assert followed.look() is not first
