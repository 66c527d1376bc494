"""Putting and getting, as the broker sees it."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.batch_body import BatchBodyError, encode_batch
from pocketmq.message.record import decode, iter_records
from pocketmq.message.record_layout import PHYSICAL_OFFSET_AT
from pocketmq.message.tags import tag_hash
from pocketmq.store.errors import RecordNotFound, StoreClosed, StoreLocked
from pocketmq.store.results import GetStatus, PutResult, PutStatus
from pocketmq.store.store_lock import Recovery, recovery_of
from tests.store.conftest import BORN_HOST, StoreBench

PROJECT = Path(__file__).parents[2]


async def test_a_message_comes_back_as_it_was_put(bench: Any) -> None:
    store = bench.open()
    bench.clock.now = 1_700_000_000_123
    result = store.put(
        "Topic", 3, b"body", "KEYS\x01k\x02", flag=7, sys_flag=1, born_timestamp=5,
        born_host=bytes(range(8)), reconsume_times=2, prepared_transaction_offset=9, tags_code=11,
    )  # fmt: skip
    assert result.ok
    assert (result.physical_offset, result.queue_offset) == (0, 0)
    assert result.store_timestamp == 1_700_000_000_123
    found = store.get("Topic", 3, 0, 32)
    assert (found.status, found.message_count, found.next_begin_offset) == (GetStatus.FOUND, 1, 1)
    assert (found.min_offset, found.max_offset) == (0, 1)
    record = decode(bytes(found.buffers[0]))
    assert bytes(record.body) == b"body"
    assert (record.flag, record.sys_flag, record.queue_id) == (7, 1, 3)
    assert (record.born_timestamp, record.born_host) == (5, bytes(range(8)))
    assert (record.store_timestamp, record.store_host[:4]) == (1_700_000_000_123, b"\x7f\0\0\1")
    assert (record.reconsume_times, record.prepared_transaction_offset) == (2, 9)
    assert record.properties == {"KEYS": "k"}
    assert found.size == record.size == result.end_offset
    assert next(store.queues["Topic"][3].read(0, 1)) == (0, record.size, 11)


async def test_hosts_of_ipv6_are_stored_with_their_flags(bench: Any) -> None:
    store = bench.open()
    bench.put(store, born_host=b"6" * 20)
    (record,) = bench.read_all(store)
    assert (record.sys_flag, record.born_host, len(record.store_host)) == (0x10, b"6" * 20, 8)
    assert store.store_time_at("Topic", 0, 0) == bench.clock.now


async def test_a_long_topic_is_stored_as_version_2(bench: Any) -> None:
    store = bench.open()
    topic = "T" * 200
    bench.put(store, topic)
    (record,) = bench.read_all(store, topic)
    assert record.magic == 0xDAA320AB


async def test_a_batch_gets_consecutive_offsets(bench: Any) -> None:
    store = bench.open()
    bench.put(store)
    body = encode_batch([(n, b"body %d" % n, b"TAGS\x01t%d\x02" % n) for n in range(3)])
    result = store.put_batch(
        "Topic", 0, memoryview(body), "UNIQ_KEY\x01u\x02", born_timestamp=1, born_host=bytes(8)
    )
    assert (result.ok, result.queue_offset, len(result.physical_offsets)) == (True, 1, 3)
    records = bench.read_all(store)[1:]
    assert [bytes(record.body) for record in records] == [b"body 0", b"body 1", b"body 2"]
    assert [record.flag for record in records] == [0, 1, 2]
    assert [record.physical_offset for record in records] == list(result.physical_offsets)
    assert records[1].properties == {"TAGS": "t1", "UNIQ_KEY": "u"}
    assert result.end_offset == records[2].physical_offset + records[2].size
    found = store.get("Topic", 0, 0, 32, codes=frozenset({tag_hash("t1")}))
    assert found.message_count == 1
    # Records side by side are one slice.
    assert len(store.get("Topic", 0, 0, 32).buffers) == 1


async def test_a_batch_that_is_none_stores_nothing(bench: Any) -> None:
    store = bench.open()
    body = encode_batch([(0, b"a", b""), (0, b"b", b"")])
    with pytest.raises(BatchBodyError):
        store.put_batch("Topic", 0, body[:-1], "", born_timestamp=1, born_host=bytes(8))
    assert store.commit_log.end == 0
    assert store.max_offset("Topic", 0) == 0


async def test_messages_roll_over_to_further_files(bench: Any) -> None:
    """A record, and a batch as a whole, never crosses the end of a commit-log file."""
    store = bench.open()
    expected = []
    for n in range(40):
        body = b"%04d" % n * 200
        assert bench.put(store, body=body).ok
        expected.append(body)
        batch = encode_batch([(0, b"%04d-%d" % (n, i) * 40, b"") for i in range(3)])
        result = store.put_batch("Topic", 0, batch, "", born_timestamp=1, born_host=bytes(8))
        expected += [b"%04d-%d" % (n, i) * 40 for i in range(3)]
        file_size = store.commit_log.file_size
        assert result.physical_offset // file_size == (result.end_offset - 1) // file_size
    assert len(store.commit_log.files.mapped) > 3
    assert len(store.queues["Topic"][0].files.mapped) == 8
    assert bench.bodies(store) == expected
    blank = store.commit_log.files.mapped[0]
    end = max(
        r.physical_offset + r.size
        for r in bench.read_all(store)
        if r.physical_offset < store.commit_log.file_size
    )
    left = store.commit_log.file_size - end
    assert bytes(blank.view[end : end + 8]) == left.to_bytes(4, "big") + b"\xcb\xd4\x31\x94"
    assert not any(blank.view[end + 8 :])


@pytest.mark.parametrize(
    "more",
    [
        {"body": b"x" * 20_000},  # larger than a file
        {"properties": "p" * 32_768},
        {"sys_flag": 0x80},
        {"topic": "../../etc"},
        {"queue_id": -1},
    ],
)
async def test_illegal_messages_are_refused_with_a_reason(bench: Any, more: dict[str, Any]) -> None:
    store = bench.open(mapped_file_size_commit_log=18_000)
    result = bench.put(store, **more)
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert result.remark
    assert store.commit_log.end == 0
    assert store.counters.puts_refused == 1
    assert bench.put(store).queue_offset == 0


async def test_messages_by_their_place_before_they_may_be_read(bench: Any) -> None:
    """A client knows the place as soon as it has the answer, which may come before a replica has
    the message."""
    store = bench.open()
    bench.put(store)
    bench.put(store, topic="Other")
    store.confirm(store.commit_log.end)
    puts = [(topic, 0, b"x", "", 0, 0, 1, BORN_HOST, 0, 0, 0) for topic in ("Other", "Topic") * 3]
    places = [bench.put(store).physical_offset]
    places += [place for place, _, _ in store.put_many(puts)]
    places.append(bench.put(store, topic="Other").physical_offset)
    assert store.max_offset("Topic", 0) == store.max_offset("Other", 0) == 1
    for place in places:
        assert store.message_at(place).physical_offset == place
    # Bytes that look like a message claim an offset that another one has.
    made_up = bytearray(store.record_at(places[0]))
    place = store.commit_log.end + made_up.index(b"body")
    struct.pack_into(">q", made_up, PHYSICAL_OFFSET_AT, place)
    bench.put(store, body=made_up)
    assert decode(store.record_at(place)).physical_offset == place
    with pytest.raises(RecordNotFound):
        store.message_at(place)


async def test_limits_of_bodies_and_batches(bench: StoreBench) -> None:
    store = bench.open(mapped_file_size_commit_log=1 << 20, max_message_size=2000)
    assert bench.put(store, body=b"x" * 2000).ok
    assert bench.put(store, body=b"x" * 2001).status is PutStatus.MESSAGE_ILLEGAL
    batch = encode_batch([(0, b"x" * 989, b"")] * 2)
    assert len(batch) == 2022

    def put_batch(body: bytes, **more: Any) -> PutResult:
        return store.put_batch("Topic", 0, body, "", born_timestamp=1, born_host=bytes(8), **more)

    assert put_batch(batch).status is PutStatus.MESSAGE_ILLEGAL
    assert put_batch(encode_batch([(0, b"x" * 900, b"")] * 2)).ok
    small = encode_batch([(0, b"x", b"")])
    assert put_batch(small, sys_flag=4).status is PutStatus.MESSAGE_ILLEGAL
    many = encode_batch([(0, b"x", b"")] * 86)  # 1978 bytes become 86 records
    assert put_batch(many).ok


async def test_a_batch_too_large_for_a_file(bench: Any) -> None:
    store = bench.open()
    batch = encode_batch([(0, b"x" * 1000, b"")] * 16)
    result = store.put_batch("Topic", 0, batch, "", born_timestamp=1, born_host=bytes(8))
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert store.commit_log.end == 0


async def test_transactions_in_preparation_are_not_in_the_queue(bench: Any) -> None:
    """By the sysFlag: prepared and rolled back have no entry, committed ones do."""
    store = bench.open()
    for sys_flag in (0x4, 0xC):
        result = bench.put(store, body=b"half", sys_flag=sys_flag)
        assert result.ok
        assert result.queue_offset == 0
        assert bytes(decode(bytes(store.record_at(result.physical_offset))).body) == b"half"
    assert store.max_offset("Topic", 0) == 0
    assert not bench.queue_file("Topic", 0).exists()
    assert bench.put(store, sys_flag=0x8).queue_offset == 0
    assert store.max_offset("Topic", 0) == 1


async def test_delayed_messages_are_entered_with_their_delivery_time(bench: Any) -> None:
    store = bench.open(message_delay_level="1s 2m")
    topic = "SCHEDULE_TOPIC_XXXX"
    bench.put(store, topic, 1, properties="DELAY\x012\x02TAGS\x01t\x02", tags_code=5)
    bench.put(store, topic, 1, properties="DELAY\x019\x02", tags_code=5)
    bench.put(store, topic, 1, properties="TAGS\x01t\x02", tags_code=5)
    bench.put(store, "Topic", 1, properties="DELAY\x012\x02", tags_code=5)
    due = bench.clock.now + 120_000
    assert [entry[2] for entry in store.queues[topic][1].read(0, 3)] == [due, due, 5]
    assert next(store.queues["Topic"][1].read(0, 1))[2] == 5


async def test_every_status_of_a_get(bench: Any) -> None:
    store = bench.open()
    get = store.get
    result = get("Nothing", 0, 7, 1)
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    bench.put(store, "Topic", 0, sys_flag=4)  # makes the queue known, but enters nothing
    result = get("Topic", 0, 7, 1)
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    for _ in range(5):
        bench.put(store, tags_code=1)
    assert get("Topic", 0, 0, 32).status is GetStatus.FOUND
    result = get("Topic", 0, 5, 32)
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 5)
    result = get("Topic", 0, 9, 32)
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 5)
    result = get("Topic", 0, 1, 32, codes=frozenset({2}))
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 5)
    store.queues["Topic"][0].min_offset = 2
    result = get("Topic", 0, 1, 32)
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, 2)
    assert (result.min_offset, result.max_offset) == (2, 5)


async def test_how_much_one_get_gives(bench: Any) -> None:
    store = bench.open()
    sizes = [bench.put(store, body=b"x" * 100).end_offset for _ in range(10)]
    size = sizes[0]
    assert store.get("Topic", 0, 0, 3).message_count == 3
    assert store.get("Topic", 0, 0, 32, max_bytes=2 * size).message_count == 2
    assert store.get("Topic", 0, 0, 32, max_bytes=3 * size - 1).message_count == 2
    first = store.get("Topic", 0, 0, 32, max_bytes=1)
    assert (first.message_count, first.size, first.next_begin_offset) == (1, size, 1)
    assert first.behind == 9 * size
    # One get does not go on in the next consume-queue file, which begins at 20 here.
    for _ in range(20):
        bench.put(store)
    assert store.get("Topic", 0, 15, 32).next_begin_offset == 20


async def test_a_filtered_get_scans_a_limited_number_of_entries(bench: Any) -> None:
    store = bench.open(mapped_file_size_consume_queue=100_000, max_filter_message_size=2000)
    for n in range(250):
        bench.put(store, body=b"%d" % n, tags_code=n % 125)
    result = store.get("Topic", 0, 0, 32, codes=frozenset({124}))
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 100)
    result = store.get("Topic", 0, 100, 32, codes=frozenset({124, -7}))
    assert (result.message_count, result.next_begin_offset) == (1, 200)
    assert bytes(decode(bytes(result.buffers[0])).body) == b"124"
    result = store.get("Topic", 0, 0, 2, codes=frozenset({0, 3, 6, 99}))
    assert (result.message_count, result.next_begin_offset) == (2, 4)
    records = iter_records(b"".join(result.buffers), strict=True)
    assert [bytes(record.body) for record in records] == [b"0", b"3"]


async def test_scattered_and_neighbouring_records(bench: Any) -> None:
    """Slices are in order whether records lie side by side, apart, or in different files."""
    store = bench.open()
    expected: dict[int, list[bytes]] = {0: [], 1: []}
    for n in range(60):
        queue_id = int(n % 5 > 2)
        body = b"%03d" % n * 300
        expected[queue_id].append(body)
        bench.put(store, "Topic", queue_id, body=body)
    for queue_id in (0, 1):
        assert bench.bodies(store, "Topic", queue_id) == expected[queue_id]
    result = store.get("Topic", 0, 0, 12)
    assert result.message_count == 12
    assert len(result.buffers) < 12


@pytest.mark.parametrize(("size", "buffers"), [(100, 1), (20_000, 5)])
async def test_small_records_that_lie_apart_share_a_copy(
    bench: Any, size: int, buffers: int
) -> None:
    """Large ones are slices of the log, which cost no copy."""
    store = bench.open(mapped_file_size_commit_log=1 << 20)
    for n in range(10):
        bench.put(store, "Topic", n % 2, body=bytes([n]) * size)
    result = store.get("Topic", 1, 0, 32)
    assert (result.message_count, len(result.buffers)) == (5, buffers)
    assert sum(map(len, result.buffers)) == result.size
    assert bench.bodies(store, "Topic", 1) == [bytes([n]) * size for n in (1, 3, 5, 7, 9)]


async def test_a_record_by_its_physical_offset(bench: Any) -> None:
    store = bench.open()
    first = bench.put(store, body=b"one")
    second = bench.put(store, body=b"two")
    assert bytes(decode(bytes(store.record_at(second.physical_offset))).body) == b"two"
    for wrong in (-1, 1, first.end_offset + 1, second.end_offset, 1 << 40):
        with pytest.raises(RecordNotFound, match=str(wrong)):
            store.record_at(wrong)


async def test_offsets_by_time(bench: StoreBench) -> None:
    store = bench.open()
    start = bench.clock.now
    for n in range(30):
        bench.clock.now = start + n // 3 * 10
        bench.put(store)

    def lower(time: int) -> int:
        return store.offset_by_time("Topic", 0, start + time)

    def upper(time: int) -> int:
        return store.offset_by_time("Topic", 0, start + time, "upper")

    assert [lower(time) for time in (-5, 0, 5, 10, 89, 90, 91)] == [0, 0, 3, 3, 27, 27, 30]
    assert [upper(time) for time in (-5, 0, 5, 10, 89, 90, 91)] == [0, 2, 2, 5, 26, 29, 29]
    assert store.offset_by_time("Nothing", 0, start) == 0
    assert store.earliest_store_time("Topic", 0) == start
    assert store.store_time_at("Topic", 0, 29) == start + 90
    assert store.store_time_at("Topic", 0, 30) == -1
    assert store.earliest_store_time("Nothing", 0) == -1


async def test_listeners_hear_of_each_message(bench: Any) -> None:
    store = bench.open()
    heard: list[tuple[int, int, int]] = []

    def listener(offset: int, tags_code: int, time: int) -> None:
        heard.append((offset, tags_code, time))

    def broken(*arrival: int) -> None:
        raise RuntimeError("a listener's own fault")

    store.listen("Topic", 0, broken)
    store.listen("Topic", 0, listener)  # before there is such a queue
    bench.put(store, tags_code=3)
    bench.put(store, "Topic", 1)
    store.put_batch(
        "Topic", 0, encode_batch([(0, b"x", b"TAGS\x01t\x02"), (0, b"y", b"")]), "",
        born_timestamp=1, born_host=bytes(8),
    )  # fmt: skip
    now = bench.clock.now
    assert heard == [(0, 3, now), (1, tag_hash("t"), now), (2, 0, now)]
    store.unlisten("Topic", 0, listener)
    bench.put(store)
    assert len(heard) == 3


async def test_arrivals_during_an_arrival_are_announced_after_it(bench: Any) -> None:
    store = bench.open()
    store.start()
    heard: list[tuple[str, int]] = []
    running: list[str] = []

    def reading(topic: str, offset: int, *_: int) -> None:
        heard.append((topic, offset))
        assert not running, "one listener is called while another one runs"
        running.append(topic)
        bench.put(store, "C")
        # Reading settles what was put, and enters it.
        assert store.max_offset(topic, 0) == 3
        running.pop()

    def broken(*arrival: int) -> None:
        raise RuntimeError("a listener's own fault")

    for topic in "AB":
        store.listen(topic, 0, broken)
        store.listen(topic, 0, partial(reading, topic))
    store.listen("C", 0, lambda offset, *_: heard.append(("C", offset)))
    for topic in "ABBABA":
        bench.put(store, topic)
    assert heard == []
    store.settle()

    before = [("A", 0), ("B", 0), ("B", 1), ("A", 1), ("B", 2), ("A", 2)]
    assert heard == [*before, *(("C", offset) for offset in range(6))]
    await store.close()


def test_the_directory_that_a_power_failure_brought_back_goes_with_its_topic(bench: Any) -> None:
    store = bench.open()
    remains = store.config.consume_queue_directory / "Topic"
    remains.mkdir()
    elsewhere = store.config.root / "elsewhere"
    elsewhere.mkdir()
    assert not store.delete_topic("Topic")
    assert not remains.exists()
    assert not store.delete_topic("../elsewhere")
    assert elsewhere.exists()


@pytest.mark.parametrize("killed", [False, True])
async def test_a_removal_of_queues_that_was_cut_short_is_finished(bench: Any, killed: bool) -> None:
    """A kill came when the files of the queue were gone, but not its directory."""
    store = bench.open()
    for _ in range(3):
        bench.put(store, "Gone")
        bench.put(store, "Other")
    end = store.commit_log.end
    bench.put(store, "Gone", 1)
    await store.close()
    store = bench.open()
    bench.put(store, "Other")  # a start after a kill looks no further back than this
    store.settle()
    killed_one = bench.copy("killed")
    await store.close()
    if killed:
        bench = killed_one
    bench.queue_file("Gone", 0).unlink()
    store = bench.open()
    for _ in store.delete_deleted_queues({"Gone": end}):
        pass
    await store.cleanup.remove_deleted()
    assert sorted(path.name for path in (bench.root / "consumequeue" / "Gone").iterdir()) == ["1"]
    assert bench.put(store, "Gone").queue_offset == 0
    await store.close()


async def test_a_deleted_topic_begins_anew(bench: Any) -> None:
    store = bench.open()
    bench.put(store, body=b"old")
    bench.put(store, "Topic", 1)
    bench.put(store, "Other", body=b"other")
    held = store.get("Topic", 0, 0, 1).buffers[0]
    assert store.delete_topic("Topic")
    assert not store.delete_topic("Topic")
    assert "Topic" not in store.queues
    await store.cleanup.remove_deleted()
    assert not bench.queue_file("Topic", 0).parent.parent.exists()
    assert store.get("Topic", 0, 0, 1).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert bytes(decode(bytes(held)).body) == b"old"
    assert bench.put(store, body=b"new").queue_offset == 0
    assert bench.bodies(store) == [b"new"]
    assert bench.bodies(store, "Other") == [b"other"]


async def test_only_one_store_per_directory(bench: Any) -> None:
    store = bench.open()
    with pytest.raises(StoreLocked, match="in use by process"):
        bench.open()
    await store.close()
    again = bench.open()
    await again.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_does_not_hold_the_lock_of_its_parent(bench: StoreBench) -> None:
    """The parent has recovered the store; the child, which asks under its own id, sees that."""
    bench.open()
    child = os.fork()
    if not child:
        os._exit(recovery_of(bench.root) is not Recovery.NONE)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def test_a_closed_store_refuses_and_can_be_closed_again(bench: Any) -> None:
    store = bench.store()
    with pytest.raises(StoreClosed):
        store.start()
    assert bench.put(store).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.open()
    store.open()  # does nothing
    assert bench.put(store).ok
    await store.close()
    await store.close()
    assert bench.put(store).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.get("Topic", 0, 0, 1).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    with pytest.raises(StoreClosed):
        store.open()


async def test_a_slice_outlives_the_store(bench: Any) -> None:
    """A reader that still holds a slice keeps the mapping; nothing is unmapped underneath it."""
    store = bench.open()
    bench.put(store, body=b"held")
    held = store.get("Topic", 0, 0, 1).buffers[0]
    await store.close()
    assert bytes(decode(held).body) == b"held"


async def test_counters(bench: Any) -> None:
    store = bench.open()
    for _ in range(3):
        bench.put(store)
    found = store.get("Topic", 0, 0, 2)
    store.get("Topic", 0, 9, 2)
    counters = store.counters
    assert (counters.messages_put, counters.bytes_put) == (3, store.commit_log.end)
    assert (counters.messages_got, counters.bytes_got) == (2, found.size)
    assert (counters.gets_found, counters.gets_missed) == (1, 1)


def test_no_read_waits_for_the_import_of_numpy(tmp_path: Path) -> None:
    program = """
import sys, threading
from pathlib import Path
from pocketmq.store.numpy_loader import numpy_loader
from tests.store.conftest import BORN_HOST, StoreBench

importers = []

class Watch:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "numpy":
            importers.append(threading.current_thread().name)

sys.meta_path.insert(0, Watch)
store = StoreBench(Path(sys.argv[1])).open()
for _ in range(200):
    store.put("T", 0, b"b", "", born_timestamp=1, born_host=BORN_HOST, tags_code=0)
for _ in range(2):
    assert store.get("T", 0, 0, 200).message_count
    numpy_loader.load().join()
print(*importers)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], cwd=PROJECT, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("store-load-numpy\n", "")
