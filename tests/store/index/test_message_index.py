"""The index of an open store: following the log, restarts, crashes, rolling, full disks."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from pocketmq.message import properties as names
from pocketmq.message.record import decode
from pocketmq.store.encoding.key_hash import key_hash
from pocketmq.store.index.index_pace import IndexPace, Inflow
from pocketmq.store.index.index_table import IndexTable
from pocketmq.store.message_store import MessageStore
from tests.store.conftest import StoreBench

ALL_TIME = (0, 2**63 - 1)


def text(**properties: str) -> str:
    return names.encode(properties)


async def found(store: MessageStore, key: str, topic: str = "Topic", most: int = 64) -> list[int]:
    """Physical offsets of what a query gives."""
    answer = await store.index.query(topic, key, most, *ALL_TIME)
    return [decode(bytes(view)).physical_offset for view in answer.records]


def index_files(bench: StoreBench) -> list[Path]:
    return sorted((bench.root / "index").iterdir())


async def test_a_query_sees_what_was_put_before_it(bench: StoreBench) -> None:
    store = bench.open()
    store.start()
    for n in range(50):
        result = bench.put(store, properties=text(UNIQ_KEY=f"id{n}", KEYS=f"all k{n % 5}"))
        bench.clock.now += 10
        assert await found(store, f"id{n}") == [result.physical_offset]
        assert len(await found(store, f"k{n % 5}")) == n // 5 + 1
    assert len(await found(store, "all", most=7)) == 7
    assert await found(store, "all", "Other") == []
    answer = await store.index.query("Topic", "all", 64, *ALL_TIME)
    assert (answer.last_timestamp, answer.last_offset) == (
        bench.clock.now - 10,
        result.physical_offset,
    )
    nothing = await store.index.query("Topic", "none", 64, *ALL_TIME)
    assert (nothing.records, nothing.last_timestamp, nothing.last_offset) == ([], 0, 0)


def test_the_index_waits_while_much_comes_in_but_not_for_ever() -> None:
    inflow = Inflow(IndexPace(busy_bytes=300, most_behind=2_000, stretch=1_000), 5_000)

    def is_much(readable: int, behind: int, with_process: bool = False) -> bool:
        return inflow.is_much(readable, behind, with_process=with_process)

    assert not is_much(5_000, 0)
    assert not is_much(5_299, 299)
    assert is_much(5_599, 599)
    assert not is_much(5_599, 599)
    assert is_much(6_999, 1_999)
    assert not is_much(7_999, 2_000)
    assert is_much(8_999, 999, with_process=True)
    assert not is_much(9_999, 1_000, with_process=True)


async def test_a_query_is_not_put_off(bench: StoreBench) -> None:
    bench.index_pace = IndexPace(busy_bytes=0, moment=60.0)  # always busy
    store = bench.open()
    store.start()
    result = bench.put(store, properties=text(KEYS="k"))
    async with asyncio.timeout(30):
        assert await found(store, "k") == [result.physical_offset]


def collisions(topic: str, key: str, count: int) -> list[str]:
    """Other keys that have the same hash in a topic: Java's hash of "Aa" is that of "BB"."""
    assert key == "Aa" * (len(key) // 2)
    parts = itertools.product(("Aa", "BB", "C#"), repeat=len(key) // 2)
    found = [text for text in map("".join, itertools.islice(parts, count + 1)) if text != key]
    assert {key_hash(topic, text) for text in found} == {key_hash(topic, key)}
    return found[:count]


async def test_messages_with_other_keys_of_one_hash_hide_none(bench: StoreBench) -> None:
    store = bench.open(max_index_num=100_000, mapped_file_size_commit_log=1 << 20)
    store.start()
    key = "AaAaAaAaAaAaAaAa"
    own = [bench.put(store, properties=text(KEYS=f"{key} x")).physical_offset for _ in range(2)]
    own.append(bench.put(store, properties=text(UNIQ_KEY=key)).physical_offset)
    others = collisions("Topic", key, 1024)
    bench.put(store, properties=text(KEYS=" ".join(others)))
    for other in others[:200]:
        bench.put(store, properties=text(UNIQ_KEY=other))
    # And of another topic: "UPpic" has the hash of "Topic".
    assert key_hash("UPpic", key) == key_hash("Topic", key)
    bench.put(store, topic="UPpic", properties=text(KEYS=key))
    assert await found(store, key) == own
    assert await found(store, key, most=2) == own[1:]
    assert await found(store, others[0]) != own
    assert len(await found(store, key, topic="UPpic")) == 1


async def test_a_key_that_a_message_repeats_is_compared_once(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.open(max_index_num=100_000, mapped_file_size_commit_log=1 << 20)
    store.start()
    own = [bench.put(store, properties=text(KEYS="a " * 5_000)).physical_offset for _ in range(3)]
    assert await found(store, "a") == own
    read: list[int] = []
    record_at = store.commit_log.record_at

    def reading(physical: int) -> memoryview:
        read.append(physical)
        return record_at(physical)

    monkeypatch.setattr(store.commit_log, "record_at", reading)
    assert await found(store, "a") == own
    assert len(read) == 3


async def test_a_key_of_many_messages_hides_none(bench: StoreBench) -> None:
    """A chain of a hundred thousand entries is followed, and its messages compared, in turns."""
    store = bench.open(max_index_num=200_000, mapped_file_size_commit_log=1 << 20)
    key = "AaAaAaAaAaAaAaAa"
    own = [bench.put(store, properties=text(KEYS=key)).physical_offset for _ in range(2)]
    many = text(KEYS=" ".join(collisions("Topic", key, 1024)))
    for _ in range(100):
        assert bench.put(store, properties=many).physical_offset >= 0
    store.start()
    turns = []
    before = asyncio.to_thread

    async def counted(function: Any, *args: Any) -> Any:
        turns.append(function)
        return await before(function, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "to_thread", counted)
        assert await found(store, key) == own
    assert len(turns) > 2


async def test_searches_take_turns(bench: StoreBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long ones, which senders can provoke, do not keep the others from being answered."""
    store = bench.open()
    store.start()
    result = bench.put(store, properties=text(KEYS="k"))
    assert await found(store, "k") == [result.physical_offset]
    search = IndexTable.search
    going = True

    def endless(table: IndexTable, topic: str, *args: Any) -> Iterator[int | None]:
        while topic == "Attacked" and going:
            yield None
        yield from search(table, topic, *args)

    monkeypatch.setattr(IndexTable, "search", endless)
    long = [asyncio.create_task(found(store, "k", "Attacked")) for _ in range(4)]
    assert await found(store, "k") == [result.physical_offset]
    assert not any(task.done() for task in long)
    going = False
    assert await asyncio.gather(*long) == [[]] * 4


async def test_a_search_without_end_is_answered_with_what_it_found(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.index_pace = IndexPace(search=0.0)
    store = bench.open()
    store.start()
    result = bench.put(store, properties=text(KEYS="k"))
    search = IndexTable.search

    def endless(table: IndexTable, *args: Any) -> Iterator[int | None]:
        yield from search(table, *args)
        while True:
            yield None

    monkeypatch.setattr(IndexTable, "search", endless)
    assert await found(store, "k") == [result.physical_offset]
    assert "there may be older ones" in caplog.text


async def test_at_most_max_msgs_num_batch_are_found(bench: StoreBench) -> None:
    store = bench.open(max_msgs_num_batch=3)
    store.start()
    offsets = [bench.put(store, properties=text(KEYS="k")).physical_offset for _ in range(9)]
    assert await found(store, "k") == offsets[-3:]


async def test_rolled_back_transactions_are_not_indexed(bench: StoreBench) -> None:
    store = bench.open()
    store.start()
    for sys_flag in (4, 8, 12):
        bench.put(store, properties=text(KEYS=f"flag{sys_flag}"), sys_flag=sys_flag)
    assert [len(await found(store, f"flag{flag}")) for flag in (4, 8, 12)] == [1, 1, 0]


async def test_with_sync_flush_only_what_is_flushed_is_found(bench: StoreBench) -> None:
    store = bench.open(flush_disk_type="SYNC_FLUSH")
    store.start()
    bench.put(store, properties=text(KEYS="k"))
    flushed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    store.when_flushed(store.commit_log.end, flushed.set_result)
    assert await flushed
    assert len(await found(store, "k")) == 1
    await store.close()
    assert len(index_files(bench)) == 1


async def test_switched_off_nothing_is_written(bench: StoreBench) -> None:
    store = bench.open(message_index_enable=False)
    store.start()
    bench.put(store, properties=text(KEYS="k"))
    assert await found(store, "k") == []
    await store.close()
    assert not (bench.root / "index").exists()
    # Switched on again, it catches up.
    store = bench.open()
    store.start()
    assert len(await found(store, "k")) == 1


async def test_without_keys_there_is_no_file(bench: StoreBench) -> None:
    store = bench.open()
    store.start()
    bench.put(store, properties=text(TAG="t"))
    assert await found(store, "k") == []
    await store.close()
    assert not (bench.root / "index").exists()


async def test_full_files_are_followed_by_new_ones_and_vouched_for(bench: StoreBench) -> None:
    store = bench.open(max_index_num=10)
    store.start()
    offsets = {}
    for n in range(25):
        bench.clock.now += 1000
        offsets[f"k{n}"] = bench.put(store, properties=text(KEYS=f"k{n}")).physical_offset
        assert await found(store, f"k{n}") == [offsets[f"k{n}"]]
    files = index_files(bench)
    assert len(files) == 3
    for key, offset in offsets.items():
        assert await found(store, key) == [offset]
    # A file that is full is synced and its time is in the checkpoint: it survives a crash.
    crashed = bench.copy("crashed")
    await store.close()
    before = [path.read_bytes() for path in files]
    [sealed] = struct.unpack_from(">q", before[1], 8)
    checkpoint = (crashed.root / "checkpoint").read_bytes()
    assert struct.unpack_from(">q", checkpoint, 16) == (sealed,)
    store = crashed.open(max_index_num=10)
    assert [path.name for path in index_files(crashed)] == [path.name for path in files[:2]]
    store.start()
    for key, offset in offsets.items():
        assert await found(store, key) == [offset]
    await store.close()
    rebuilt = [path.read_bytes() for path in index_files(crashed)]
    assert rebuilt == before


async def test_names_rise_although_the_clock_goes_back(bench: StoreBench) -> None:
    store = bench.open(max_index_num=3)
    store.start()
    for n in range(9):
        bench.clock.now -= 100_000
        bench.put(store, properties=text(KEYS=f"k{n}"))
        await found(store, "k")
    assert len(index_files(bench)) == 5
    assert len(await found(store, "k8")) == 1


async def test_an_index_of_another_size_is_built_again(bench: StoreBench) -> None:
    store = bench.open()
    bench.put(store, properties=text(KEYS="k"))
    await store.close()
    store = bench.open(max_hash_slot_num=77)
    store.start()
    assert len(await found(store, "k")) == 1
    await store.close()
    assert [path.stat().st_size for path in index_files(bench)] == [40 + 77 * 4 + 2000 * 20]


@pytest.mark.parametrize("damage", ["header", "size"])
async def test_a_damaged_file_is_built_again_with_those_behind_it(
    bench: StoreBench, damage: str
) -> None:
    """Keys are entered behind the last file, so a gap between two would stay."""
    store = bench.open(max_index_num=4)
    for n in range(10):
        bench.clock.now += 1000
        bench.put(store, properties=text(KEYS=f"k{n}"))
    await store.close()
    files = index_files(bench)
    whole = [path.read_bytes() for path in files]
    assert len(files) == 4
    broken = whole[1][:-1] if damage == "size" else b"\xff" * 40 + whole[1][40:]
    files[1].write_bytes(broken)
    store = bench.open(max_index_num=4)
    assert index_files(bench) == files[:1]
    store.start()
    for n in range(10):
        assert len(await found(store, f"k{n}")) == 1
    await store.close()
    assert [path.read_bytes() for path in index_files(bench)] == whole


async def test_an_index_of_another_log_is_dropped(bench: StoreBench) -> None:
    store = bench.open()
    for n in range(5):
        bench.put(store, properties=text(KEYS=f"k{n}"))
    await store.close()
    for path in (bench.root / "commitlog").iterdir():
        path.unlink()
    shutil.rmtree(bench.root / "consumequeue")
    (bench.root / "checkpoint").unlink()
    store = bench.open()
    store.start()
    bench.put(store, properties=text(KEYS="new"), body=b"another size")
    assert await found(store, "k4") == []
    assert len(await found(store, "new")) == 1


async def test_a_dropped_file_does_not_come_back(bench: Any) -> None:
    """The log goes on where the lost messages lay. After another power failure the file would fit
    the log again, and hide the keys of the new messages."""
    store = bench.open(max_index_num=4)
    store.start()
    places = []
    for n in range(8):
        bench.clock.now += 1_000
        places.append(bench.put(store, properties=text(KEYS=f"k{n}")).physical_offset)
    await found(store, "k0")
    crashed = bench.copy("crashed")
    with crashed.segment().open("r+b") as log:  # all but the first message is lost
        log.seek(places[1])
        log.write(bytes(places[-1]))
    synced: list[list[Path]] = []
    crashed.files.sync_directory = lambda directory: (
        synced.append(index_files(crashed)) if directory.name == "index" else None
    )
    opened = crashed.open(max_index_num=4)
    assert synced[-1:] == [[]]
    await opened.close()


async def test_strange_files_are_left_alone(bench: StoreBench) -> None:
    (bench.root / "index").mkdir(parents=True)
    (bench.root / "index" / "notes.txt").write_text("mine")
    store = bench.open()
    await store.close()
    assert (bench.root / "index" / "notes.txt").read_text() == "mine"


async def test_a_full_disk_costs_the_index_but_no_message(bench: StoreBench) -> None:
    store = bench.open()
    store.start()
    assert bench.put(store, properties=text(KEYS="before")).ok
    assert len(await found(store, "before")) == 1
    await store.close()
    for path in index_files(bench):
        path.unlink()
    store = bench.open()
    bench.files.full = True
    assert store.index.position < store.commit_log.end
    await store.close()  # says so in the log, and does not fail
    bench.files.full = False
    assert not any((bench.root / "index").iterdir())
    store = bench.open()
    store.start()
    assert len(await found(store, "before")) == 1


# Slots are shared and files roll all the time.
SMALL = {"max_hash_slot_num": 3, "max_index_num": 12, "max_msgs_num_batch": 10_000}
INDEX_HEADER = struct.Struct(">8xq20xi")  # end timestamp, number of the next entry
INDEX_TIMESTAMP = struct.Struct(">16xq")  # in the checkpoint

Message = tuple[str, str, tuple[str, ...]]
messages = st.tuples(
    st.sampled_from(["A", "B"]),
    st.sampled_from(["", "u1", "u2", "u3"]),
    st.lists(st.sampled_from(["k1", "k2", "é", "k1k2"]), max_size=3).map(tuple),
)
steps = st.lists(
    st.lists(messages, min_size=1, max_size=15) | st.sampled_from(["stop", "crash", "torn"]),
    max_size=8,
)


def tear(bench: StoreBench) -> None:
    """Lose the entries of the last index file, as a crash may before they are on the disk."""
    last = index_files(bench)[-1]
    content = bytearray(last.read_bytes())
    end_timestamp, count = INDEX_HEADER.unpack_from(content)
    (vouched,) = INDEX_TIMESTAMP.unpack_from((bench.root / "checkpoint").read_bytes())
    # A full one is vouched for when it is there for certain, also at a clean stop.
    if count < SMALL["max_index_num"] or end_timestamp > vouched:
        content[40:] = bytes(len(content) - 40)
        last.write_bytes(content)


@settings(
    max_examples=25,
    phases=(Phase.explicit, Phase.generate),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps)
@example([[("A", f"u{number}", ()) for number in range(11)], "stop", "torn"])  # just full
def test_the_index_is_a_dict_of_lists(tmp_path_factory: Any, some: list[Any]) -> None:
    """Against a model, through clean stops, crashes, and crashes that tore the index."""

    async def run() -> None:
        bench = StoreBench(tmp_path_factory.mktemp("model") / "store")
        benches.append(bench)
        model: dict[tuple[str, str], list[int]] = {}
        store = bench.open(**SMALL)
        store.start()
        for number, step in enumerate(some):
            if isinstance(step, list):
                for topic, unique, keys in step:
                    bench.clock.now += 7
                    properties = {"UNIQ_KEY": unique, "KEYS": " ".join(keys), "a": "b"}
                    encoded = names.encode({k: v for k, v in properties.items() if v})
                    result = bench.put(store, topic, properties=encoded)
                    for key in {unique, *keys} - {""}:
                        model.setdefault((topic, key), []).append(result.physical_offset)
            elif step == "stop":
                await store.close()
                store = bench.open(**SMALL)
                store.start()
            else:
                await found(store, "k1", "A")
                crashed = bench.copy(f"crash{number}")
                await store.close()
                if step == "torn" and (crashed.root / "index").exists():
                    tear(crashed)
                clock = bench.clock
                bench = crashed
                benches.append(bench)
                bench.clock = clock
                store = bench.open(**SMALL)
                store.start()
        for topic in ("A", "B"):
            for key in ("u1", "u2", "u3", "k1", "k2", "é", "k1k2", "none"):
                offsets = await found(store, key, topic, 10_000)
                assert offsets == model.get((topic, key), []), (topic, key)

    async def close_all() -> None:
        for bench in benches:
            for store in bench.opened:
                await store.close()

    benches: list[StoreBench] = []
    with asyncio.Runner() as runner:
        try:
            runner.run(run())
        finally:
            runner.run(close_all())


async def test_a_query_during_the_end_of_the_store_is_answered(bench: StoreBench) -> None:
    store = bench.open()
    store.start()
    bench.put(store, properties=text(KEYS="k"))
    query = asyncio.ensure_future(store.index.query("Topic", "k", 64, *ALL_TIME))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(store.close())
    answer = await query
    assert len(answer.records) <= 1
    del answer
    await closing


@pytest.mark.parametrize("size", [16 * 1024, 4 * 1024])
async def test_records_on_both_sides_of_file_ends_are_found(bench: StoreBench, size: int) -> None:
    store = bench.open(mapped_file_size_commit_log=size)
    store.start()
    offsets = [
        bench.put(store, properties=text(UNIQ_KEY=f"u{n}"), body=b"b" * (n * 13 % 900))
        for n in range(120)
    ]
    for n, result in enumerate(offsets):
        assert await found(store, f"u{n}") == [result.physical_offset]
    assert store.commit_log.end > 3 * size
