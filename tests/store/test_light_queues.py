"""Light queues: one message is in several queues, and stays there whatever happens to the store."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pocketmq.message.batch_body import encode_batch
from pocketmq.message.multi_dispatch import MOST_LIGHT_QUEUES, is_light_queue, light_places
from pocketmq.message.record import iter_records
from pocketmq.message.sysflag import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from pocketmq.message.tags import tag_hash
from pocketmq.store.check.store_check import check_store
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.repair.store_repair import repair_store
from pocketmq.store.results import PutResult, PutStatus
from tests.store.conftest import BORN_HOST, StoreBench, put
from tests.store.log.test_replica_log import feed, following, logged, queue_files

ON = {"enable_lmq": True, "enable_multi_dispatch": True}
A, B = "%LMQ%a", "%LMQ%$Parent$b c"


def dispatched(store: MessageStore, names: str, topic: str = "Topic", **more: Any) -> PutResult:
    return put(store, topic, properties=f"INNER_MULTI_DISPATCH\x01{names}\x02", **more)


def offsets_of(store: MessageStore, name: str) -> list[tuple[int, str]]:
    """For each message of a light queue its physical offset, and the offsets that it says."""
    return [
        (record.physical_offset, record.properties["INNER_MULTI_QUEUE_OFFSET"])
        for record in records_of(store, name)
    ]


def records_of(store: MessageStore, name: str) -> list[Any]:
    found: list[Any] = []
    offset = store.min_offset(name, 0)
    while offset < store.max_offset(name, 0):
        result = store.get(name, 0, offset, 32)
        for buffer in result.buffers:
            found += iter_records(bytes(buffer), strict=True)
        offset = result.next_begin_offset
    return found


def fill(store: MessageStore, count: int = 300) -> dict[str, list[int]]:
    """Put messages, many of which are in light queues; return where those are."""
    places: dict[str, list[int]] = {A: [], B: []}
    for number in range(count):
        names = [name for n, name in enumerate((A, B)) if number % (n + 2) == 0]
        tag = f"tag{number % 3}"
        properties = f"TAGS\x01{tag}\x02"
        if names:
            properties += f"INNER_MULTI_DISPATCH\x01{','.join(names)}\x02"
        result = put(
            store, f"Topic{number % 2}", number % 3, b"%05d" % number, properties,
            tags_code=tag_hash(tag),
        )  # fmt: skip
        assert result.ok
        for name in names:
            places[name].append(result.physical_offset)
    return places


def places_in(store: MessageStore) -> dict[str, list[int]]:
    return {name: [each for each, _ in offsets_of(store, name)] for name in (A, B)}


async def test_a_message_has_an_entry_in_each_of_its_queues(bench: StoreBench) -> None:
    store = bench.open(**ON)
    first = dispatched(store, A, tags_code=7)
    second = dispatched(store, f"{B},{A}", tags_code=8)
    put(store)
    (record,) = bench.read_all(store)[1:2]
    assert record.properties["INNER_MULTI_QUEUE_OFFSET"] == "0,1"
    assert [each.topic for each in records_of(store, A)] == ["Topic", "Topic"]
    assert offsets_of(store, B) == [(second.physical_offset, "0,1")]
    sizes = [each.end_offset - each.physical_offset for each in (first, second)]
    expected = struct.pack(
        ">qiqqiq", first.physical_offset, sizes[0], 7, second.physical_offset, sizes[1], 8
    )
    content = bench.queue_file(A, 0).read_bytes()
    assert content[:40] == expected
    assert not any(content[40:])
    assert [r.physical_offset for r in bench.read_all(store)][:2] == [
        first.physical_offset, second.physical_offset,
    ]  # fmt: skip
    assert len(bench.read_all(store)) == 3
    assert store.get(A, 0, 0, 8, codes=frozenset({8})).message_count == 1
    assert store.offset_by_time(A, 0, 0) == 0


@pytest.mark.parametrize(
    "switches", [{}, {"enable_lmq": True}, {"enable_multi_dispatch": True}], ids=str
)
async def test_nothing_is_dispatched_without_both_switches(
    bench: StoreBench, switches: dict[str, bool]
) -> None:
    store = bench.open(**switches)
    assert dispatched(store, A).ok
    (record,) = bench.read_all(store)
    assert record.properties == {"INNER_MULTI_DISPATCH": A}
    assert list(store.queues) == ["Topic"]


@pytest.mark.parametrize(
    "topic",
    [
        "%RETRY%g",
        "%DLQ%g",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        "SCHEDULE_TOPIC_XXXX",
    ],
)
async def test_messages_that_are_on_their_way_are_not_dispatched(
    bench: StoreBench, topic: str
) -> None:
    store = bench.open(**ON)
    assert dispatched(store, A, topic).ok
    assert list(store.queues) == [topic]


async def test_half_messages_and_those_of_batches_are_not_dispatched(bench: StoreBench) -> None:
    store = bench.open(**ON)
    assert dispatched(store, A, sys_flag=TRANSACTION_PREPARED).ok
    body = encode_batch([(0, b"x", f"INNER_MULTI_DISPATCH\x01{A}\x02".encode())])
    assert store.put_batch("Topic", 0, body, "", born_timestamp=1, born_host=BORN_HOST).ok
    assert A not in store.queues
    assert dispatched(store, A, sys_flag=TRANSACTION_COMMIT).ok
    assert store.max_offset(A, 0) == 1


async def test_names_that_cannot_be_recovered_are_left_out(bench: StoreBench) -> None:
    store = bench.open(**ON)
    bad = ["plain", "%LMQ%", "%LMQ%a/b", "%LMQ%\n", "%LMQ%" + "x" * 251, "%LMQ%\u2028", ""]
    names = ",".join([*bad[:3], A, *bad[3:], A])
    assert dispatched(store, names).ok
    assert dispatched(store, "plain").ok
    first, second = (record.properties for record in bench.read_all(store))
    assert first == {"INNER_MULTI_DISPATCH": A, "INNER_MULTI_QUEUE_OFFSET": "0"}
    assert second == {"INNER_MULTI_DISPATCH": "plain"}
    assert {*store.queues} == {"Topic", A}
    assert not any(map(is_light_queue, bad))


async def test_one_message_is_in_so_many_light_queues_at_most(bench: StoreBench) -> None:
    store = bench.open(**ON)
    names = [f"%LMQ%{number}" for number in range(MOST_LIGHT_QUEUES + 1)]
    assert dispatched(store, ",".join(names)).ok
    assert {*store.queues} == {"Topic", *names[:-1]}


async def test_the_number_of_light_queues_is_bounded(bench: StoreBench) -> None:
    store = bench.open(**ON, max_lmq_consume_queue_num=1)
    assert dispatched(store, A).ok
    result = dispatched(store, f"{A},{B}")
    assert result.status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
    assert B in result.remark
    assert store.max_offset("Topic", 0) == 1
    # One that was acknowledged before is stored nevertheless.
    assert dispatched(store, f"{A},{B}", accepted=True).ok
    assert bench.read_all(store)[1].properties["INNER_MULTI_DISPATCH"] == A
    await store.close()
    store = bench.open(**ON, max_lmq_consume_queue_num=1)
    assert not dispatched(store, B).ok
    store.delete_topic(A)
    assert not dispatched(store, f"{A},{B}").ok
    assert dispatched(store, B).ok
    assert not dispatched(store, A).ok


async def test_an_acknowledged_message_is_stored_without_room_for_light_queues(
    bench: StoreBench,
) -> None:
    store = bench.open(**ON, mapped_file_size_commit_log=1 << 20)
    text = f"INNER_MULTI_DISPATCH\x01{A}\x02k\x01"
    text += "v" * (32_767 - len(text) - 1) + "\x02"
    assert put(store, properties=text).status is PutStatus.MESSAGE_ILLEGAL
    assert put(store, properties=text, accepted=True).ok
    assert store.max_offset(A, 0) == 0
    (record,) = bench.read_all(store)
    assert record.properties_text == text


async def test_a_light_queue_takes_no_message_of_its_own(bench: StoreBench) -> None:
    store = bench.open(**ON)
    dispatched(store, A)
    assert put(store, A).status is PutStatus.MESSAGE_ILLEGAL
    result = store.put_batch(A, 0, encode_batch([(0, b"x", b"")]), "", born_timestamp=1,
                             born_host=BORN_HOST)  # fmt: skip
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert store.max_offset(A, 0) == 1


async def test_listeners_hear_of_messages_in_light_queues(bench: StoreBench) -> None:
    store = bench.open(**ON)
    heard: list[int] = []
    store.listen(A, 0, lambda offset, code, timestamp: heard.append(offset))
    dispatched(store, A)
    put(store)
    dispatched(store, A)
    assert heard == [0, 1]


@pytest.mark.parametrize("lost", ["nothing", "entries", "consumequeue", "checkpoint"])
@pytest.mark.parametrize("count", [40, 3000])
async def test_a_recovery_makes_the_entries_again(bench: StoreBench, lost: str, count: int) -> None:
    """Also without the switches, which may have been turned off since."""
    big = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20_000}
    store = bench.open(**ON, **big)
    places = fill(store, count)
    store.settle()
    expected = queue_files(bench.root)
    crashed = bench.copy("crashed")
    if lost == "entries":
        path = crashed.queue_file(A, 0)
        path.write_bytes(path.read_bytes()[:80] + bytes(19_920))
        (crashed.root / "checkpoint").unlink()
    elif lost == "consumequeue":
        shutil.rmtree(crashed.root / "consumequeue")
    elif lost == "checkpoint":
        (crashed.root / "checkpoint").unlink()
    opened = crashed.open(**big)
    assert places_in(opened) == places
    await opened.close()
    assert queue_files(crashed.root) == expected
    opened = crashed.open(**ON, **big)
    dispatched(opened, f"{B},{A}")
    end = f"{len(places[B])},{len(places[A])}"
    assert offsets_of(opened, A)[-1][1] == offsets_of(opened, B)[-1][1] == end
    await opened.close()


@pytest.mark.parametrize("size", [7, 1000, 300_000])
async def test_a_slave_has_the_same_light_queues(
    bench: StoreBench, tmp_path: Path, size: int
) -> None:
    slave_bench = StoreBench(tmp_path / "slave")
    big = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20_000}
    master = bench.open(**ON, **big)
    places = fill(master, 3000 if size > 1000 else 200)
    slave = await following(slave_bench, **big)
    await feed(slave, logged(master, 0, master.commit_log.end), 0, size)
    assert places_in(slave) == places
    await master.close()
    await slave.close()
    assert queue_files(slave_bench.root) == queue_files(bench.root)


async def test_a_message_is_entered_when_all_of_its_queues_have_it(bench: StoreBench) -> None:
    """The mark, from which a recovery after a kill begins, comes before one that lacks an entry."""
    store = bench.open(**ON, message_index_enable=False)
    store.start()
    dispatched(store, A)
    dispatched(store, f"{A},{B}")
    queue = store.queues[B][0]
    entered = store.commit_log.end
    dispatched(store, f"{A},{B}")
    end = store.commit_log.end
    with mock.patch.object(type(queue), "append", failing_at(queue)):
        with pytest.raises(OSError, match="no mapping"):
            store.settle()
        assert store.max_offset(A, 0) == 3
        assert end - store.dispatch_behind == entered
        opened = bench.copy("killed").open(**ON)
    assert opened.max_offset(A, 0) == 3
    assert opened.max_offset(B, 0) == 2
    await opened.close()


def failing_at(queue: ConsumeQueue) -> Callable[[ConsumeQueue, bytes], None]:
    append = ConsumeQueue.append

    def appended(each: ConsumeQueue, entries: bytes) -> None:
        if each is queue:
            raise OSError("no mapping")
        append(each, entries)

    return appended


async def test_a_damaged_entry_is_mended_when_it_is_read(bench: StoreBench) -> None:
    store = bench.open(**ON)
    places = fill(store, 60)
    store.settle()
    path = bench.queue_file(A, 0)
    with path.open("r+b") as file:  # the mapping sees it
        file.seek(5 * 20)
        file.write(struct.pack(">qi", places[A][6], 200))
    assert places_in(store) == places
    assert store.counters.entries_rebuilt == 1


async def test_light_queues_expire_with_the_log(bench: StoreBench) -> None:
    store = bench.open(**ON, file_reserved_time=0, delete_when=";".join(map(str, range(24))))
    store.start()
    places = fill(store, 300)
    assert await store.all_flushed()
    for path in bench.root.glob("commitlog/*"):
        bench.clock.now = max(bench.clock.now, path.stat().st_mtime_ns // 1_000_000 + 1)
    assert await store.cleanup.round() > 0
    begin = store.commit_log.min_offset
    left = {name: [place for place in of if place >= begin] for name, of in places.items()}
    assert places_in(store) == left
    assert store.min_offset(A, 0) == len(places[A]) - len(left[A])


async def test_a_deleted_light_queue_begins_again(bench: StoreBench) -> None:
    store = bench.open(**ON)
    fill(store, 20)
    assert store.delete_topic(A)
    assert A not in store.queues
    result = dispatched(store, A)
    assert offsets_of(store, A) == [(result.physical_offset, "0")]


async def test_a_check_finds_what_is_wrong_with_a_light_queue(bench: StoreBench) -> None:
    store = bench.open(**ON)
    fill(store)
    await store.close()
    assert check_store(bench.config()).problems == []
    path = bench.queue_file(A, 0)
    content = path.read_bytes()
    path.write_bytes(content[:100] + struct.pack(">qi", 0, 100) + content[112:])
    shutil.rmtree(bench.root / "consumequeue" / B)
    found = {(problem.where, problem.problem) for problem in check_store(bench.config()).problems}
    assert (f"{A}/0", "the entry does not lead to its message") in found
    assert any(where == f"{B}/0" for where, _ in found)
    before = places_of_log(bench)
    repair_store(bench.config())
    assert check_store(bench.config()).problems == []
    store = bench.open(**ON)
    assert places_in(store) == before


def places_of_log(bench: StoreBench) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {A: [], B: []}
    for path in sorted(bench.root.glob("commitlog/*")):
        for record in iter_records(path.read_bytes()):
            for name, _ in light_places(record.topic, record.properties_text):
                found[name].append(record.physical_offset)
    return found


@pytest.mark.parametrize("last", [True, False])
async def test_a_repair_gives_no_offset_of_a_lost_message_again(
    bench: StoreBench, last: bool
) -> None:
    store = bench.open(**ON)
    lost = dispatched(store, f"{A},{B}") if not last else None
    dispatched(store, f"{A},{B}")
    lost = lost or dispatched(store, f"{A},{B}")
    put(store)
    await store.close()
    with bench.segment().open("r+b") as file:
        file.seek(lost.physical_offset + 88)
        file.write(b"?")
    done = repair_store(bench.config())
    gone = {(each.topic, each.begin, each.end) for each in done.lost}
    assert gone == {(topic, last, last + 1) for topic in ("Topic", A, B)}
    assert check_store(bench.config()).problems == []
    for _ in range(2):
        store = bench.open(**ON)
        assert len(records_of(store, A)) == len(records_of(store, B)) == 1
        await store.close()
        shutil.rmtree(bench.root / "consumequeue")
    store = bench.open(**ON)
    dispatched(store, f"{A},{B}")
    assert offsets_of(store, B)[-1][1] == "2,2"
    assert bench.read_all(store)[-1].queue_offset == 3


async def test_what_an_official_broker_stores_besides_is_passed_over(bench: StoreBench) -> None:
    """Records of light queues themselves, and names that are no light queues'."""
    store = bench.open()
    text = "INNER_MULTI_DISPATCH\x01{}\x02INNER_MULTI_QUEUE_OFFSET\x01{}\x02"
    put(store, properties=text.format("plain,%LMQ%a", ",0"))
    put(store, properties=text.format("%LMQ%a", "x"))
    put(store, properties=text.format("%LMQ%a,%LMQ%b", "1"))
    half = put(store, "RMQ_SYS_TRANS_HALF_TOPIC", properties=text.format("%LMQ%a", "1"))
    put(store, "YLMQYa", body=b"z" * 3000)
    store.settle()
    crashed = bench.copy("official")
    log = crashed.segment()
    log.write_bytes(log.read_bytes().replace(b"YLMQYa", b"%LMQ%a"))
    shutil.rmtree(crashed.root / "consumequeue")
    opened = crashed.open()
    assert opened.max_offset(A, 0) == 2
    assert records_of(opened, A)[1].physical_offset == half.physical_offset
    assert {*opened.queues} == {"Topic", A, "RMQ_SYS_TRANS_HALF_TOPIC"}
    await opened.close()
