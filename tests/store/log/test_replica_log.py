"""A store that is the copy of another one: bytes go in, and the same queues come out."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.message.record import decode, iter_records
from pocketmq.message.record_layout import PHYSICAL_OFFSET_AT
from pocketmq.message.sysflag import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from pocketmq.message.tags import tag_hash
from pocketmq.store.config import FlushDiskType
from pocketmq.store.errors import ForeignBytes
from pocketmq.store.message_store import MessageStore
from tests.store.conftest import StoreBench, bodies, put


def logged(store: MessageStore, begin: int, end: int) -> bytes:
    """The bytes of a log, file after file."""
    store.settle()
    data = b""
    while begin < end:
        size = min(end, store.commit_log.next_file(begin)) - begin
        view = store.commit_log.read(begin, size)
        assert view is not None
        data += bytes(view)
        begin += size
    return data


def fill(store: MessageStore, count: int, body: int = 100) -> None:
    for number in range(count):
        put(
            store, f"Topic{number % 3}", number % 2, b"%06d" % number + b"x" * body,
            f"TAGS\x01tag{number % 5}\x02KEYS\x01key{number}\x02",
            tags_code=tag_hash(f"tag{number % 5}"),
        )  # fmt: skip


def pieces(
    data: bytes, begin: int, file_size: int, sizes: Iterator[int]
) -> Iterator[tuple[int, bytes]]:
    """Cut a log as frames may cut it: anywhere, and at the end of each file."""
    at = 0
    while at < len(data):
        left_in_file = file_size - (begin + at) % file_size
        size = min(next(sizes), left_in_file)
        yield begin + at, data[at : at + size]
        at += size


async def feed(slave: MessageStore, data: bytes, begin: int, size: int) -> None:
    def sizes() -> Iterator[int]:
        while True:
            yield size

    for offset, piece in pieces(data, begin, slave.commit_log.file_size, sizes()):
        slave.replica.append(offset, memoryview(piece))
    await entered(slave)


async def entered(slave: MessageStore) -> None:
    """Until the turns that enter what was received are over."""
    while slave.replica.is_due:  # noqa: ASYNC110 (there is no event for that)
        await asyncio.sleep(0.001)


def queue_files(root: Path) -> dict[str, bytes]:
    top = root / "consumequeue"
    return {
        str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("0" * 8 + "*"))
    }


@pytest.fixture
async def slave_bench(tmp_path: Path) -> StoreBench:
    return StoreBench(tmp_path / "slave")


async def following(bench: StoreBench, **changes: object) -> MessageStore:
    store = bench.open(**changes)
    store.start()
    store.follow()
    return store


@pytest.mark.parametrize("size", [1, 7, 1000, 32 * 1024])
async def test_the_copy_is_equal(bench: StoreBench, slave_bench: StoreBench, size: int) -> None:
    master = bench.open()
    fill(master, 300)
    put(master, "Half", 0, b"half", sys_flag=TRANSACTION_PREPARED)
    put(master, "Half", 0, b"back", sys_flag=TRANSACTION_ROLLBACK)
    put(master, "SCHEDULE_TOPIC_XXXX", 2, b"later", "DELAY\x013\x02")
    fill(master, 10)
    end = master.commit_log.end
    slave = await following(slave_bench)
    await feed(slave, logged(master, 0, end), 0, size)
    assert slave.commit_log.whole == end
    assert bodies(slave, "Topic1", 1) == bodies(master, "Topic1", 1)
    await master.close()
    await slave.close()
    assert queue_files(slave_bench.root) == queue_files(bench.root)


async def test_many_small_records_take_the_way_of_blocks(
    bench: StoreBench, slave_bench: StoreBench
) -> None:
    big = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20_000}
    master = bench.open(**big)
    fill(master, 3000)
    slave = await following(slave_bench, **big)
    await feed(slave, logged(master, 0, master.commit_log.end), 0, 300_000)
    assert slave.commit_log.whole == master.commit_log.end
    await master.close()
    await slave.close()
    assert queue_files(slave_bench.root) == queue_files(bench.root)


async def test_a_restart_in_the_middle_of_a_record_goes_on_at_its_begin(
    bench: StoreBench, slave_bench: StoreBench
) -> None:
    master = bench.open()
    fill(master, 50)
    data = logged(master, 0, master.commit_log.end)
    for cut in (1, 40, len(data) - 150, len(data) - 1):
        slave = await following(slave_bench)
        begin = slave.commit_log.end
        if begin < cut:
            await feed(slave, data[begin:cut], begin, 500)
        whole = slave.commit_log.whole
        assert whole <= cut
        await slave.close()
        again = await following(slave_bench)
        assert again.commit_log.end == whole
        await again.close()
    slave = await following(slave_bench)
    begin = slave.commit_log.end
    await feed(slave, data[begin:], begin, 500)
    assert bodies(slave, "Topic0") == bodies(master, "Topic0")
    await slave.close()


async def test_an_empty_slave_begins_with_any_file(
    bench: StoreBench, slave_bench: StoreBench
) -> None:
    master = bench.open()
    fill(master, 300)
    end = master.commit_log.end
    begin = end - end % master.commit_log.file_size
    assert begin > 0
    slave = await following(slave_bench)
    await feed(slave, logged(master, begin, end), begin, 999)
    assert slave.commit_log.min_offset == begin
    expected = bodies(master, "Topic0")
    got = bodies(slave, "Topic0")
    assert 0 < len(got) < len(expected)
    assert expected[-len(got) :] == got
    assert slave.max_offset("Topic0", 0) == master.max_offset("Topic0", 0)
    await slave.close()
    again = await following(slave_bench)
    assert again.commit_log.min_offset == begin
    assert bodies(again, "Topic0") == got
    await again.close()


@pytest.mark.parametrize("at", [4, 30, 95])  # the magic code, the physical offset, the body
@pytest.mark.parametrize(
    ("count", "size"), [(20, 700), (300, 300_000)], ids=["a few records", "a block of records"]
)
async def test_the_first_wrong_record_ends_the_copying(
    bench: StoreBench, slave_bench: StoreBench, count: int, size: int, at: int
) -> None:
    big = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20_000}
    master = bench.open(**big)
    fill(master, count)
    data = bytearray(logged(master, 0, master.commit_log.end))
    wrong = [record.physical_offset for record in iter_records(data)][count // 2]
    data[wrong + at] ^= 0xFF
    slave = await following(slave_bench, **big)
    failures: list[ForeignBytes] = []
    slave.replica.on_failure = failures.append
    await feed(slave, bytes(data), 0, size)
    assert [failure.physical_offset for failure in failures] == [wrong]
    assert slave.commit_log.whole == wrong
    with pytest.raises(ForeignBytes, match="not the same"):
        slave.replica.append(slave.commit_log.end, memoryview(b"more"))
    await slave.close()


@pytest.mark.parametrize(
    ("factor", "text"), [(2.0, "a blank of"), (0.5, "a record of")], ids=["multiple", "divisor"]
)
async def test_files_of_another_size_than_the_masters_are_named_as_a_cause(
    bench: StoreBench, slave_bench: StoreBench, factor: float, text: str
) -> None:
    master = bench.open()
    size = master.commit_log.file_size
    fill(master, size // 200)
    assert master.commit_log.end > size
    slave = await following(slave_bench, mapped_file_size_commit_log=int(size * factor))
    failures: list[ForeignBytes] = []
    slave.replica.on_failure = failures.append
    data = logged(master, 0, master.commit_log.end)
    with contextlib.suppress(ForeignBytes):
        await feed(slave, data, 0, 700)
    [failure] = failures
    assert text in str(failure)
    assert f"mappedFileSizeCommitLog, {int(size * factor)} here, is not the" in str(failure)
    await slave.close()


async def test_sync_flush_enters_what_is_on_the_disk(
    bench: StoreBench, slave_bench: StoreBench
) -> None:
    master = bench.open()
    fill(master, 30)
    data = logged(master, 0, master.commit_log.end)
    slave = await following(slave_bench, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    arrived = asyncio.Event()
    last = master.max_offset("Topic0", 0) - 1
    slave.listen("Topic0", 0, lambda offset, code, time: arrived.set() if offset == last else None)
    await feed(slave, data, 0, 1000)
    async with asyncio.timeout(20):
        await arrived.wait()
    assert slave.flushed_offset > 0
    assert bodies(slave, "Topic0") == bodies(master, "Topic0")
    await slave.close()


async def test_a_topic_made_anew_begins_again(bench: StoreBench, slave_bench: StoreBench) -> None:
    master = bench.open()
    for number in range(5):
        put(master, "Topic", 0, b"old%d" % number)
    master.delete_topic("Topic")
    for number in range(3):
        put(master, "Topic", 0, b"new%d" % number)
    slave = await following(slave_bench)
    await feed(slave, logged(master, 0, master.commit_log.end), 0, 333)
    assert bodies(slave) == [b"new0", b"new1", b"new2"]
    await slave.close()


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=30),
    cuts=st.lists(st.integers(1, 5000), min_size=1, max_size=10),
    restarts=st.sets(st.integers(0, 20), max_size=3),
)
def test_any_cuts_and_restarts(
    sizes: list[int], cuts: list[int], restarts: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def run() -> None:
        root = tmp_path_factory.mktemp("replica")
        master_bench, slave_bench = StoreBench(root / "master"), StoreBench(root / "slave")
        master = master_bench.open()
        for number, size in enumerate(sizes):
            tag = "a" * (number % 2)
            properties = f"TAGS\x01{tag}\x02" if tag else ""
            put(master, f"T{number % 2}", 0, bytes(size), properties, tags_code=tag_hash(tag))
        end = master.commit_log.end
        log = logged(master, 0, end)
        slave = await following(slave_bench)
        for number, cut in enumerate(itertools.cycle(cuts)):
            begin = slave.commit_log.end
            if begin == end:
                break
            size = min(cut, end - begin, slave.commit_log.next_file(begin) - begin)
            slave.replica.append(begin, memoryview(log[begin : begin + size]))
            if number in restarts:
                await slave.close()
                slave = await following(slave_bench)
        await entered(slave)
        assert slave.commit_log.whole == end
        await slave.close()
        await master.close()
        assert queue_files(slave_bench.root) == queue_files(master_bench.root)

    asyncio.run(run())


async def test_a_cut_forgets_log_queues_and_what_waits(bench: StoreBench) -> None:
    store = bench.open()
    store.start()
    ends = []
    for number in range(200):
        put(store, f"T{number % 2}", 0, b"%03d" % number + b"x" * 200)
        ends.append(store.commit_log.end)
    cut = ends[99]
    with pytest.raises(ValueError, match="no record ends"):
        await store.cut(cut + 1)
    await store.cut(cut)
    assert store.commit_log.end == store.commit_log.whole == cut
    assert store.max_offset("T0", 0) == store.max_offset("T1", 0) == 50
    assert bodies(store, "T1")[-1][:3] == b"099"
    for number in range(3):
        assert put(store, "T0", 0, b"new%d" % number).queue_offset == 50 + number
    await store.close()
    again = bench.open()
    assert [body[:4] for body in bodies(again, "T0")[-4:]] == [b"098x", b"new0", b"new1", b"new2"]
    assert again.max_offset("T1", 0) == 50


async def test_after_a_cut_keys_lead_to_what_came_instead(bench: StoreBench) -> None:
    store = bench.open()
    store.start()

    async def found(key: str) -> list[bytes]:
        records = (await store.index.query("T", key, 10, 0, 1 << 60)).records
        return [bytes(decode(record).body) for record in records]

    ends = [
        put(store, "T", 0, b"old%d" % number, f"KEYS\x01k{number}\x02").end_offset
        for number in range(20)
    ]
    assert await found("k19") == [b"old19"]
    await store.cut(ends[9])
    for number in range(10, 15):
        put(store, "T", 0, b"the new %d" % number, f"KEYS\x01n{number}\x02")
    assert await found("k9") == [b"old9"]
    assert await found("n10") == [b"the new 10"]
    assert await found("n14") == [b"the new 14"]
    assert await found("k19") == []
    await store.close()


async def test_a_cut_outlasts_a_kill(bench: StoreBench) -> None:
    store = bench.open()
    store.start()
    ends = [put(store, "T", 0, b"%03d" % n + b"x" * 300).end_offset for n in range(150)]
    store.settle()
    assert await store.all_flushed()
    await store.cut(ends[20])
    killed = bench.copy("killed").open()
    assert killed.commit_log.end == ends[20]
    assert killed.max_offset("T", 0) == 21
    await killed.close()


@pytest.mark.parametrize("started", ["before", "since"])
async def test_after_a_cut_into_an_earlier_file_the_log_goes_on(
    bench: StoreBench, slave_bench: StoreBench, started: str
) -> None:
    """Earlier files have no descriptor: a flush gives it up, and so does a start."""
    master = bench.open()
    fill(master, 300)
    data = logged(master, 0, master.commit_log.end)
    slave = await following(slave_bench)
    await feed(slave, data, 0, 1000)
    assert await slave.all_flushed()
    if started == "since":
        await slave.close()
        slave = await following(slave_bench)
    earlier, last = slave.commit_log.files.mapped[-2:]
    assert earlier.base_offset > 0
    assert last.base_offset < slave.commit_log.whole
    assert not earlier.has_descriptor
    cut = next(iter_records(bytes(earlier.view))).size + earlier.base_offset
    await slave.cut(cut)
    await feed(slave, data[cut:], cut, 1000)
    assert bodies(slave, "Topic1", 1) == bodies(master, "Topic1", 1)
    await slave.cut(cut)
    slave.lead()
    assert put(slave, "Topic1", 1, b"of the new master").ok
    assert bodies(slave, "Topic1", 1)[-1] == b"of the new master"
    await master.close()
    await slave.close()


async def test_what_is_not_confirmed_is_not_read(
    bench: StoreBench, slave_bench: StoreBench
) -> None:
    master = bench.open()
    ends = [put(master, "T", 0, b"%d" % number).end_offset for number in range(10)]
    data = logged(master, 0, master.commit_log.end)
    slave = await following(slave_bench)
    slave.confirm(0)
    await feed(slave, data, 0, 100)
    assert slave.commit_log.whole == ends[-1]
    assert slave.max_offset("T", 0) == 0
    slave.confirm(ends[3] + 1)
    assert slave.max_offset("T", 0) == 4
    # A cut takes back what waits.
    await slave.cut(ends[6])
    assert slave.max_offset("T", 0) == 4
    slave.confirm(ends[9])
    assert slave.max_offset("T", 0) == 7
    slave.replica.append(ends[6], memoryview(data)[ends[6] :])
    await entered(slave)
    assert bodies(slave, "T") == bodies(master, "T")
    await slave.close()


async def test_a_slave_becomes_a_master(bench: StoreBench, slave_bench: StoreBench) -> None:
    master = bench.open()
    fill(master, 40)
    data = logged(master, 0, master.commit_log.end)
    slave = await following(slave_bench)
    assert not put(slave, "Topic0").ok
    await feed(slave, data[:-10], 0, 1000)
    await slave.cut(slave.commit_log.whole)
    slave.lead()
    fill(slave, 40)
    assert len(bodies(slave, "Topic0")) > len(bodies(master, "Topic0"))
    await slave.close()
    again = slave_bench.open()
    assert len(bodies(again, "Topic0")) > len(bodies(master, "Topic0"))
    await again.close()


@pytest.mark.parametrize("count", [3, 1000])
async def test_a_record_that_differs_from_its_checksum_is_not_copied(
    tmp_path: Path, count: int
) -> None:
    big = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 100_000}
    master = StoreBench(tmp_path / "master").open(enabled_append_prop_crc=True, **big)
    slave = await following(StoreBench(tmp_path / "slave"), force_verify_prop_crc=True, **big)
    fill(master, count)
    data = bytearray(logged(master, 0, master.commit_log.end))
    at = data.rindex(b"TAGS")
    data[at] ^= 1
    failures: list[ForeignBytes] = []
    slave.replica.on_failure = failures.append
    await feed(slave, bytes(data), 0, 1 << 20)
    [failure] = failures
    assert "differs from its own checksum" in str(failure)
    await master.close()
    await slave.close()


@pytest.mark.parametrize("confirmed", [0, 3, 5])
async def test_a_topic_that_was_made_again_waits_for_no_confirmation(
    bench: StoreBench, slave_bench: StoreBench, confirmed: int
) -> None:
    """None comes while the group has no master, and a member has to enter all before it is one. The
    earlier life of the topic has no entries afterwards, whether they were confirmed or not."""
    first, second = bench.open(), StoreBench(slave_bench.root.parent / "second").open()
    before = [put(first, body=b"before%d" % number) for number in range(5)]
    made_again = logged(first, 0, first.commit_log.end)
    put(second, topic="Topic", body=b"again")
    record = bytearray(logged(second, 0, second.commit_log.end))
    struct.pack_into(">q", record, PHYSICAL_OFFSET_AT, len(made_again))
    slave = await following(slave_bench)
    slave.confirm(before[confirmed - 1].end_offset if confirmed else 0)
    await feed(slave, made_again + record, 0, 1000)
    assert slave.commit_log.whole == len(made_again) + len(record)
    assert not slave.replica.has_more
    assert slave.max_offset("Topic", 0) == 0
    slave.confirm(slave.commit_log.whole)
    assert bodies(slave) == [b"again"]
    for store in (first, second, slave):
        await store.close()
