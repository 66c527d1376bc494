"""Many messages at once leave the same bytes as the same messages put one by one."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pocketmq.message.limits import SCHEDULE_TOPIC
from pocketmq.store.config import FlushDiskType
from pocketmq.store.log.log_walk import LogWalk
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import PutResult
from pocketmq.store.writer import Put
from tests.store.conftest import BORN_HOST, StoreBench

# The third makes records of version 2; in the last one, entries hold the time of delivery.
TOPICS = ("A", "B", "T" * 200, SCHEDULE_TOPIC)


def message(topic: str = "A", queue_id: int = 0, body: bytes = b"body", **more: Any) -> Put:
    values: dict[str, Any]
    values = {"properties": "", "flag": 0, "sys_flag": 0, "born": 1, "reconsume": 0, "code": 0}
    values |= {"born_host": BORN_HOST, "prepared": 0} | more
    return (
        topic, queue_id, body, values["properties"], values["flag"], values["sys_flag"],
        values["born"], values["born_host"], values["reconsume"],
        values["prepared"], values["code"],
    )  # fmt: skip


def put_alone(store: MessageStore, put: Put) -> Any:
    (
        topic, queue_id, body, properties, flag, sys_flag, born, born_host, reconsume_times,
        prepared, code,
    ) = put  # fmt: skip
    return store.put(
        topic, queue_id, body, properties, flag=flag, sys_flag=sys_flag, born_timestamp=born,
        born_host=born_host, reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared, tags_code=code,
    )  # fmt: skip


def put_all(store: MessageStore, puts: list[Put]) -> list[Any]:
    """Put as the broker does: many at once, and alone the message that ends a write."""
    results: list[Any] = []
    while len(results) < len(puts):
        done = store.put_many(puts[len(results) :])
        results += done or [outcome(put_alone(store, puts[len(results)]))]
    return results


def outcome(result: PutResult) -> Any:
    """What `put_many` returns for a message that was stored, or why it was refused."""
    if not result.ok:
        return result.status, result.remark
    size = result.end_offset - result.physical_offset
    return result.physical_offset, size, result.queue_offset


puts = st.builds(
    message,
    st.sampled_from(TOPICS),
    st.integers(0, 2),
    st.binary(max_size=600) | st.just(bytes(5000)),
    properties=st.text("ab\x01\x02é", max_size=30)
    | st.sampled_from(["DELAY\x012\x02", "DELAY\x01x\x02", "DELAY\x01-1\x02"]),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.sampled_from([0, 1, 2, 8, 4, 12])
    | st.integers(0, 0x7FF)
    | st.integers(-(2**31), 2**31 - 1),
    born=st.integers(0, 2**40),
    born_host=st.sampled_from([BORN_HOST, bytes(range(20))]),
    reconsume=st.integers(0, 5),
    prepared=st.integers(0, 2**40),
    code=st.integers(-(2**31), 2**31 - 1),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.lists(puts, min_size=1, max_size=40), min_size=1, max_size=4),
)
def test_many_leave_what_single_puts_leave(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[Put]]
) -> None:
    root: Path = tmp_path_factory.mktemp("many")
    one, other = (
        StoreBench(root / name).open(max_message_size=4096) for name in ("together", "alone")
    )
    hosts = []
    for part in parts:
        together = put_all(one, part)
        alone = [outcome(put_alone(other, put)) for put in part]
        assert together == alone
        hosts += [put[7] for put, done in zip(part, alone, strict=True) if isinstance(done[0], int)]
    assert one.counters == other.counters
    logs = [
        b"".join(bytes(file.view) for file in store.commit_log.files.mapped)
        for store in (one, other)
    ]
    assert logs[0] == logs[1]
    walk = LogWalk(one.commit_log.files, 0)
    assert [record.born_host for record in walk] == hosts
    assert walk.end == one.commit_log.end
    assert list(one.queues) == list(other.queues)
    for topic, queues in one.queues.items():
        for queue_id, queue in queues.items():
            twin = other.queues[topic][queue_id]
            assert (queue.max_offset, queue.next_offset) == (twin.max_offset, twin.next_offset)
            for offset in range(queue.max_offset):
                assert queue.entry(offset) == twin.entry(offset)


async def test_many_end_where_one_write_cannot_go_on(bench: Any) -> None:
    store = bench.open()
    assert store.put_many([message()]) == [], "neither the queue nor a file is there"
    put_alone(store, message())
    several = [message(), message(body=bytes(5 << 20)), message()]
    assert len(store.put_many(several)) == 1, "too large"
    assert len(store.put_many([message(), message(queue_id=1)])) == 1, "a new queue"
    assert len(store.put_many([message(), message(sys_flag=4)])) == 1, "half a message"
    assert len(store.put_many([message(body=bytes(9000))] * 2)) == 1, "the file's end"
    assert len(store.put_many([message()] * 50)) < 50, "the consume queue's end"


async def test_more_than_the_buffer_of_the_log_is_taken_whole(bench: Any) -> None:
    store = bench.open(mapped_file_size_commit_log=4 << 20, mapped_file_size_consume_queue=20_000)
    store.start()
    bench.put(store, "A")
    bodies = [b"%d" % n * 1000 for n in range(200)]
    assert len(store.put_many([message(body=body) for body in bodies])) == 200
    assert bench.bodies(store, "A")[1:] == bodies
    await store.close()


async def test_accepted_messages_may_be_larger_than_new_ones(bench: Any) -> None:
    store = bench.open(max_message_size=100)
    put_alone(store, message())
    large = message(body=bytes(200))
    assert store.put_many([large]) == []
    assert len(store.put_many([large, message()], accepted=True)) == 2
    assert bench.bodies(store, "A") == [b"body", bytes(200), b"body"]


async def test_nothing_is_taken_while_the_store_refuses(bench: Any) -> None:
    store = bench.store()
    assert store.put_many([message()]) == []


async def test_arrivals_are_told_in_order(bench: Any) -> None:
    store = bench.open()
    put_alone(store, message())
    seen: list[tuple[int, int, int]] = []
    store.listen("A", 0, lambda *arrival: seen.append(arrival))
    store.put_many([message(code=n) for n in range(3)])
    assert [(offset, code) for offset, code, _ in seen] == [(1, 0), (2, 1), (3, 2)]


async def test_a_failure_leaves_the_queues_where_they_were(bench: Any) -> None:
    store = bench.open()
    put_alone(store, message())
    with pytest.raises((struct.error, OverflowError)):
        store.put_many([message(), message(born=1 << 70)])
    assert store.queues["A"][0].next_offset == 1
    assert put_alone(store, message()).queue_offset == 1


async def test_with_sync_flush_a_run_is_readable_when_it_is_flushed(bench: Any) -> None:
    store = bench.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store.start()
    flushed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    put_alone(store, message())
    results = store.put_many([message(body=b"%d" % n) for n in range(5)])
    assert len(results) == 5
    physical_offset, size, _ = results[-1]
    store.when_flushed(physical_offset + size, flushed.set_result)
    assert store.max_offset("A", 0) == 0
    assert await flushed
    assert bench.bodies(store, "A") == [b"body", *(b"%d" % n for n in range(5))]
    await store.close()
