"""Whatever sysFlag a client sends: what is stored can be read, and recovery finds all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.message.batch_body import encode_batch
from pocketmq.message.record import Record, decode
from pocketmq.message.sysflag import (
    BORN_HOST_V6,
    HOST_MASK,
    INNER_BATCH,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
)
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import PutStatus
from tests.store.conftest import BORN_HOST, HOST, StoreBench

V6 = bytes(range(20))
# All that have a meaning, in every combination; the others one by one, and all together.
SYS_FLAGS = [*range(0x800), *(1 << bit for bit in range(11, 31)), -(1 << 31), -1, 0x7FFFFFFF]

#: Puts one message with a sysFlag; its physical offset, None when it is refused.
PutOne = Callable[[MessageStore, int, bytes], int | None]


def alone(store: MessageStore, sys_flag: int, born_host: bytes) -> int | None:
    result = store.put(
        "T", 0, b"%d" % sys_flag, "TAGS\x01a\x02", sys_flag=sys_flag, born_timestamp=1,
        born_host=born_host, tags_code=97,
    )  # fmt: skip
    assert result.ok or result.status is PutStatus.MESSAGE_ILLEGAL
    return result.physical_offset if result.ok else None


def among_many(store: MessageStore, sys_flag: int, born_host: bytes) -> int | None:
    """`put_many` stops before a message that it does not take; that one is put alone."""
    put = ("T", 0, b"%d" % sys_flag, "TAGS\x01a\x02", 0, sys_flag, 1, born_host, 0, 0, 97)
    stored = store.put_many([put])
    return stored[0][0] if stored else alone(store, sys_flag, born_host)


def in_a_batch(store: MessageStore, sys_flag: int, born_host: bytes) -> int | None:
    body = encode_batch([(0, b"%d" % sys_flag, b"TAGS\x01a\x02")])
    result = store.put_batch(
        "T", 0, body, "", sys_flag=sys_flag, born_timestamp=1, born_host=born_host
    )
    assert result.ok or result.status is PutStatus.MESSAGE_ILLEGAL
    return result.physical_offset if result.ok else None


@pytest.mark.parametrize("store_host", [HOST, V6])
@pytest.mark.parametrize("born_host", [BORN_HOST, V6])
@pytest.mark.parametrize(
    ("put", "refused"),
    [
        (alone, INNER_BATCH),
        (among_many, INNER_BATCH),
        (in_a_batch, INNER_BATCH | TRANSACTION_MASK),
    ],
)
async def test_every_sys_flag_leaves_a_record_that_can_be_read(
    bench: StoreBench, put: PutOne, refused: int, born_host: bytes, store_host: bytes
) -> None:
    sizes = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 80_000}

    def opened(at: StoreBench) -> MessageStore:
        store = MessageStore(
            at.config(**sizes), store_host=store_host, files=at.files, clock=at.clock
        )
        store.open()
        bench.opened.append(store)
        return store

    hosts = (BORN_HOST_V6 if born_host == V6 else 0) | (STORE_HOST_V6 if store_host == V6 else 0)
    store = opened(bench)
    alone(store, 0, born_host)
    readable = [(b"0", hosts)]
    for sys_flag in SYS_FLAGS:
        at = put(store, sys_flag, born_host)
        assert (at is None) == bool(sys_flag & refused), f"{sys_flag:#x}"
        if at is None:
            continue
        record = decode(store.record_at(at))
        assert (record.born_host, record.store_host) == (born_host, store_host), f"{sys_flag:#x}"
        assert record.sys_flag == sys_flag & ~HOST_MASK | hosts
        if not sys_flag & TRANSACTION_PREPARED:
            readable.append((b"%d" % sys_flag, record.sys_flag))

    def found(of: MessageStore) -> list[Any]:
        records: list[Record] = bench.read_all(of, "T")
        return [(bytes(record.body), record.sys_flag) for record in records]

    assert found(store) == readable
    # As a crash leaves it, and without the queues: recovery enters all of them anew.
    for name in ("crashed", "without_queues"):
        copy = bench.copy(name)
        if name == "without_queues":
            copy.queue_file("T", 0).unlink()
        again = opened(copy)
        assert again.commit_log.end == store.commit_log.end
        assert found(again) == readable
        old, new = store.queues["T"][0], again.queues["T"][0]
        assert [new.entry(n) for n in range(new.max_offset)] == [
            old.entry(n) for n in range(old.max_offset)
        ]
