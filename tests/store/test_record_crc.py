"""Records with the checksum of all their bytes (enabledAppendPropCRC, forceVerifyPropCRC)."""

from __future__ import annotations

import logging
import zlib
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.batch_body import encode_batch
from pocketmq.message.limits import SCHEDULE_TOPIC
from pocketmq.message.properties import decode as decode_properties
from pocketmq.message.record_crc import FIELD_SIZE
from pocketmq.message.sql_filter import compile_sql
from pocketmq.message.tags import tag_hash
from pocketmq.store.check.report import Report
from pocketmq.store.check.store_check import check_store
from pocketmq.store.errors import StoreCorrupt
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import PutStatus
from tests.store.conftest import BORN_HOST

WHOLE = {"mapped_file_size_commit_log": 4 << 20, "mapped_file_size_consume_queue": 20 * 4096}
APPEND = {**WHOLE, "enabled_append_prop_crc": True}
FORCE = {**APPEND, "force_verify_prop_crc": True}
TAG = f"TAGS\x01a\x02KEYS\x01k\x02UNIQ_KEY\x01{'u' * 60}\x02"
CODE = tag_hash("a")


def raw_records(store: MessageStore) -> list[bytes]:
    """Every record of the log."""
    log, at, found = store.commit_log, 0, []
    while at < log.end:
        found.append(bytes(log.record_at(at)))
        at += len(found[-1])
    return found


def expected_field(record: bytes) -> bytes:
    """As the official broker makes it (MessageDecoder.createCrc32)."""
    value, digits = zlib.crc32(record[:-FIELD_SIZE]) & 0x7FFFFFFF, b""
    for _ in range(10):
        digits += b"%d" % (value % 10)
        value //= 10
    return b"__CRC32#\x01" + digits + b"\x02"


def put_batch(store: MessageStore, items: list[tuple[int, bytes, bytes]], suffix: str) -> Any:
    return store.put_batch(
        "Topic", 0, encode_batch(items), suffix, born_timestamp=1, born_host=BORN_HOST
    )


async def test_each_way_to_put_ends_records_with_their_checksums(bench: Any) -> None:
    store = bench.open(**APPEND)
    bench.put(store, properties=TAG, tags_code=CODE)
    bench.put(store, body=b"", properties="")
    bench.put(store, properties="KEYS\x01open")
    bench.put(store, topic="T" * 200, properties="__CRC32#\x010123456789\x02a\x01b\x02")
    bench.put(store, topic=SCHEDULE_TOPIC, properties="DELAY\x011\x02")
    bench.put(store, properties=TAG, sys_flag=4)
    bench.put(store, properties=TAG, tags_code=CODE, born_host=bytes(20))
    alike = [(0, b"%04d" % n, b"n\x01%04d\x02" % n) for n in range(500)]
    others = [(n, b"x" * (n + 1), b"TAGS\x01a" if n % 2 else b"") for n in range(50)]
    for items in (alike, others):
        for suffix in ("", "UNIQ_KEY\x01u\x02", "UNIQ_KEY\x01u"):
            assert put_batch(store, items, suffix).status is PutStatus.PUT_OK
    puts = [("Topic", 0, b"many", TAG, 0, 0, 1, BORN_HOST, 0, 0, CODE)] * 3
    assert store.put_many(puts) == []
    records = raw_records(store)
    assert len(records) == 7 + 3 * 550
    for record in records:
        assert record[-FIELD_SIZE:] == expected_field(record)
    read = bench.read_all(store)
    assert [r.properties["__CRC32#"] for r in read[:1]] == [
        expected_field(records[0])[9:-1].decode()
    ]
    assert decode_properties(read[2].properties_text).keys() == {"KEYS", "__CRC32#"}
    entries = store.queues["Topic"][0]
    assert entries.entry(0)[2] == CODE
    await store.close()
    report = check_store(bench.config(**FORCE))
    assert (report.problems, report.starts) == ([], True)


async def test_properties_have_room_for_the_checksum(bench: Any) -> None:
    store = bench.open(**APPEND)
    most = 32_767 - FIELD_SIZE
    assert bench.put(store, properties="a\x01" + "b" * (most - 3) + "\x02").ok
    result = bench.put(store, properties="a\x01" + "b" * (most - 2) + "\x02")
    assert result.status is PutStatus.MESSAGE_ILLEGAL


async def test_without_the_setting_records_stay_as_they_are(bench: Any) -> None:
    store = bench.open(**WHOLE)
    bench.put(store, properties="KEYS\x01k")
    (record,) = raw_records(store)
    assert record.endswith(b"KEYS\x01k")


@pytest.mark.parametrize("way", ["alone", "alike", "others", "suffix"])
async def test_zeros_in_properties_outlast_a_power_failure(bench: Any, way: str) -> None:
    """There a disk may leave zeros in place of what was not written. A checksum tells these zeros
    apart."""
    store = bench.open(**WHOLE)
    zero = "a\x01b\x00c\x02"
    for _ in range(300):
        bench.put(store, properties=TAG, tags_code=CODE)
    if way == "alone":
        puts = [("Topic", 0, b"many", TAG + zero, 0, 0, 1, BORN_HOST, 0, 0, CODE)]
        assert store.put_many(puts) == []
        assert bench.put(store, properties=TAG + zero, tags_code=CODE).ok
    else:
        own = b"" if way == "suffix" else zero.encode()
        items = [(0, b"%04d" % n, own) for n in range(500)]
        if way == "others":
            items = [(0, b"x" * (n + 1), own if n == 7 else b"") for n in range(50)]
        assert put_batch(store, items, zero if way == "suffix" else "u\x01v\x02").ok
    for _ in range(300):
        bench.put(store, properties=TAG, tags_code=CODE)
    with_crc = [record for record in raw_records(store) if b"__CRC32#" in record]
    assert len(with_crc) == {"alone": 1, "alike": 500, "others": 50, "suffix": 500}[way]
    assert all(record[-FIELD_SIZE:] == expected_field(record) for record in with_crc)
    stored = bench.read_all(store)
    crashed = bench.copy("crashed")
    crashed.files.boot_id = lambda: b"another boot, 16"
    opened = crashed.open(**WHOLE)
    assert len(bench.read_all(opened)) == len(stored)
    await opened.close()


def invert(path: Path, at: int, size: int = 64) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        content = file.read(size)
        file.seek(at)
        file.write(bytes(byte ^ 0xFF for byte in content))


async def damaged(bench: Any, settings: dict[str, Any], count: int = 1000) -> tuple[int, int]:
    """A store that was killed, in whose tenth last message 64 bytes of the properties are
    inverted: where that begins and ends."""
    store = bench.open(**settings)
    results = [bench.put(store, properties=TAG, tags_code=CODE) for _ in range(count)]
    store.start()
    assert await store.all_flushed()
    await store.close()
    begin, end = results[-10].physical_offset, results[-10].end_offset
    record = bench.segment().read_bytes()[begin:end]
    invert(bench.segment(), begin + record.index(b"TAGS"))
    return begin, end


@pytest.mark.parametrize("count", [20, 2000])
async def test_a_recovery_finds_damaged_properties(bench: Any, count: int) -> None:
    begin, _ = await damaged(bench, APPEND, count)
    (bench.root / "abort").touch()
    # What the official broker knows too, so that the recovery reads all.
    content = bytearray((bench.root / "checkpoint").read_bytes())
    content[32:] = bytes(len(content) - 32)
    (bench.root / "checkpoint").write_bytes(content)
    with pytest.raises(StoreCorrupt, match=f"physical offset {begin} .it differs from its own"):
        bench.open(**FORCE)
    report = check_store(bench.config(**FORCE))
    assert report.starts is False
    bench.open(**APPEND)


async def test_records_of_before_the_setting_count_as_ever(bench: Any) -> None:
    store = bench.open(**WHOLE)
    for _ in range(1000):
        bench.put(store, properties=TAG, tags_code=CODE)
    await store.close()
    (bench.root / "abort").touch()
    store = bench.open(**FORCE)
    bench.put(store, properties=TAG, tags_code=CODE)
    assert len(bench.read_all(store)) == 1001


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        (FORCE | {"check_crc_on_read": True}, 39),
        # The official broker does not compare this checksum either, unless both are set.
        (APPEND | {"check_crc_on_read": True}, 40),
        (FORCE, 40),
    ],
)
async def test_reads_skip_a_record_that_differs_from_its_checksum(
    bench: Any, settings: dict[str, Any], count: int
) -> None:
    await damaged(bench, APPEND, 40)
    store = bench.open(**settings)
    read = {record.queue_offset for record in bench.read_all(store)}
    assert read == set(range(40)) - ({30} if count < 40 else set())
    assert store.counters.messages_passed_over == 40 - count


def found(report: Report) -> set[str]:
    return {problem.part for problem in report.problems}


async def test_a_check_finds_damaged_properties_by_their_checksum(bench: Any) -> None:
    begin, end = await damaged(bench, APPEND)
    report = check_store(bench.config(**WHOLE))
    assert found(report) == {"commitlog", "consumequeue", "index"}
    (problem,) = [p for p in report.problems if p.part == "commitlog"]
    assert (problem.begin, problem.end) == (begin, end)
    assert "its own checksum" in problem.problem
    assert report.starts


async def test_a_check_compares_tags_and_keys_where_there_is_no_checksum(bench: Any) -> None:
    begin, _ = await damaged(bench, WHOLE)
    report = check_store(bench.config(**WHOLE))
    assert found(report) == {"consumequeue", "index"}
    (queue,) = [p for p in report.problems if p.part == "consumequeue"]
    assert (queue.where, queue.begin, queue.end) == ("Topic/0", 990, 991)
    assert "another tags code" in queue.problem
    (index,) = [p for p in report.problems if p.part == "index"]
    assert "3 of 1001 entries are of keys that their messages do not have" in index.problem
    assert f"physical offset {begin}:" in index.problem
    assert report.starts


async def test_a_filtered_read_says_which_message_differs_from_its_entry(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await damaged(bench, WHOLE)
    store = bench.open(**WHOLE)
    caplog.set_level(logging.WARNING)
    for begin in range(0, 1000, 100):
        store.get("Topic", 0, begin, 100, accept=compile_sql("TAGS = 'a'"))
    assert [r.getMessage() for r in caplog.records if "another tag" in r.getMessage()] == [
        "Topic/0 offset 990 has another tag than its queue entry says: one of them is damaged; "
        "`pocketmq store check` lists all of them"
    ]
