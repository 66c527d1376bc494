"""A reader is given right messages only, and goes on behind what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.record import iter_records
from pocketmq.message.tags import tag_hash
from pocketmq.store.message_store import GetStatus, MessageStore
from pocketmq.store.reader import DiskLimits

UNIT = 20
COUNT = 200  # enough of them for numpy
WHOLE = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 400 * UNIT}
TAG = tag_hash("a")


def filled(bench: Any, **changes: Any) -> MessageStore:
    """Messages of three queues in turn; queue 1 has the bodies b"0", b"1" … and tags."""
    store: MessageStore = bench.open(**WHOLE, **changes)
    for n in range(COUNT):
        for queue_id in range(3):
            body = b"%d" % n if queue_id == 1 else b"of another queue"
            bench.put(store, queue_id=queue_id, body=body, properties="TAGS\1a\2", tags_code=TAG)
    return store


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes((byte ^ 1 << bit,)))


def read(store: MessageStore, most: int = 32, start: int = 0, **options: Any) -> list[bytes]:
    """The bodies of queue 1, as a consumer reads on from `start`; the bodies as they are stored."""
    bodies: list[bytes] = []
    offset = start
    while offset < store.max_offset("Topic", 1):
        result = store.get("Topic", 1, offset, most, **options)
        assert result.next_begin_offset > offset
        for buffer in result.buffers:
            bodies += [bytes(r.body) for r in iter_records(buffer, strict=True, check_crc=False)]
        offset = result.next_begin_offset
    return bodies


def expected(*without: int) -> list[bytes]:
    return [b"%d" % n for n in range(COUNT) if n not in without]


READS = [
    pytest.param({}, id="plain"),
    pytest.param({"codes": frozenset([TAG])}, id="tags"),
    pytest.param({"accept": lambda properties: True}, id="properties"),
    pytest.param({"disk": DiskLimits(0, 8, 1 << 20)}, id="from the disk"),
    pytest.param({"most": 1}, id="one by one"),
    pytest.param({"max_bytes": 500}, id="few bytes"),
]


@pytest.mark.parametrize("options", READS)
@pytest.mark.parametrize("offset", [0, 100, COUNT - 1])
async def test_a_flipped_bit_in_an_entry_is_mended(
    bench: Any, caplog: pytest.LogCaptureFixture, options: dict[str, Any], offset: int
) -> None:
    store = filled(bench)
    path = bench.queue_file("Topic", 1)
    sound = path.read_bytes()
    start = max(0, offset - 70)
    for bit in range(0, 96, 7):  # physical offset and size
        await store.close()
        store = bench.open(**WHOLE)  # it has compared nothing yet
        flip(path, offset * UNIT + bit // 8, bit % 8)
        assert read(store, start=start, **options) == expected()[start:]
        assert store.counters.entries_rebuilt == 1, bit
        assert store.counters.messages_passed_over == 0
        assert path.read_bytes() == sound
    assert f"queue Topic/1: the damaged entry at {offset} is rebuilt" in caplog.text


async def test_a_bit_that_flips_while_the_store_is_open(bench: Any) -> None:
    store = filled(bench)
    for bit in range(96):
        flip(bench.queue_file("Topic", 1), (bit + 50) * UNIT + bit // 8, bit % 8)
    assert read(store) == expected()
    assert store.counters.entries_rebuilt == 96


@pytest.mark.parametrize("options", READS)
async def test_zeros_instead_of_entries(bench: Any, options: dict[str, Any]) -> None:
    store = filled(bench)
    with bench.queue_file("Topic", 1).open("r+b") as file:
        file.seek(40 * UNIT)
        file.write(bytes(80 * UNIT))
    assert read(store, **options) == expected()
    assert store.counters.entries_rebuilt == 80


@pytest.mark.parametrize("options", READS)
@pytest.mark.parametrize("byte", [1, 5, 13, 15, 22, 27, 29, 35])
async def test_a_record_that_is_damaged_is_passed_over(
    bench: Any, caplog: pytest.LogCaptureFixture, options: dict[str, Any], byte: int
) -> None:
    """Size, magic, queue id, queue offset or physical offset in its head."""
    store = filled(bench)
    entry = store.queues["Topic"][1].entry(70)
    assert entry is not None
    flip(bench.segment(), entry[0] + byte, 3)
    assert read(store, **options) == expected(70)
    assert store.counters.messages_passed_over == 1
    assert "queue Topic/1: the message at 70 cannot be read, so consumers skip it" in caplog.text


async def test_what_is_damaged_alone_is_answered_with_the_next_offset(bench: Any) -> None:
    store = filled(bench)
    entry = store.queues["Topic"][1].entry(70)
    assert entry is not None
    flip(bench.segment(), entry[0] + 5, 0)
    result = store.get("Topic", 1, 70, 1)
    assert result.status is GetStatus.NO_MATCHED_MESSAGE
    assert (result.next_begin_offset, result.message_count) == (71, 0)


async def test_bodies_and_tags_are_compared_by_option(bench: Any) -> None:
    store = filled(bench)
    tagged: dict[str, Any] = {"codes": frozenset([TAG])}
    entry = store.queues["Topic"][1].entry(70)
    assert entry is not None
    flip(bench.segment(), entry[0] + 88, 0)  # the body
    flip(bench.queue_file("Topic", 1), 75 * UNIT + 19, 0)  # the tags code
    assert len(read(store)) == COUNT
    assert read(store, **tagged)[75:76] == [b"76"]
    await store.close()

    store = bench.open(**WHOLE, check_crc_on_read=True)
    assert read(store) == expected(70)
    assert read(store, **tagged) == expected(70)
    assert store.counters.entries_rebuilt == 1


async def test_messages_that_expired_are_no_damage(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = bench.open()
    for n in range(60):
        bench.put(store, body=b"%d" % n + bytes(1000))
    await store.close()
    bench.segment().unlink()
    store = bench.open()
    queue = store.queues["Topic"][0]
    first = queue.min_offset
    queue.min_offset = 0  # as before the next round of cleaning
    result = store.get("Topic", 0, 0, 32)
    while result.message_count == 0:
        assert result.status is GetStatus.MESSAGE_WAS_REMOVING
        result = store.get("Topic", 0, result.next_begin_offset, 32)
    assert result.next_begin_offset > first
    assert store.counters.messages_passed_over == 0
    assert "Topic/0" not in caplog.text


async def test_a_damaged_entry_does_not_hide_the_messages_before_it(bench: Any) -> None:
    """Where a queue begins is searched by halving, when the log before it has expired."""
    store = bench.open(**WHOLE | {"mapped_file_size_commit_log": 16 * 1024})
    for n in range(60):
        bench.put(store, body=b"%d" % n + bytes(1000))
    await store.close()
    bench.segment().unlink()
    store = bench.open(**WHOLE | {"mapped_file_size_commit_log": 16 * 1024})
    first = store.min_offset("Topic", 0)
    assert 10 < first < 20
    await store.close()
    path = bench.queue_file("Topic", 0)
    sound = path.read_bytes()
    for offset in range(first, 59):
        path.write_bytes(sound[: offset * UNIT] + bytes(8) + sound[offset * UNIT + 8 :])
        store = bench.open(**WHOLE | {"mapped_file_size_commit_log": 16 * 1024})
        # Only the first one cannot be told from one that has expired.
        assert store.min_offset("Topic", 0) == first + (offset == first)
        await store.close()


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("options", READS)
async def test_a_file_of_another_topics_queue_is_not_served(
    bench: Any, options: dict[str, Any], crc: bool
) -> None:
    """Its entries lead to whole records with the same queue ids and offsets. All files but the last
    were swapped, which a start does not look at."""
    sizes = {**WHOLE, "mapped_file_size_consume_queue": COUNT // 2 * UNIT, "check_crc_on_read": crc}
    store: MessageStore = bench.open(**sizes)
    for n in range(COUNT + 1):
        for topic in ("Topic", "Other"):
            body = b"%d" % n if topic == "Topic" else b"of another topic"
            bench.put(store, topic, 1, body=body, properties="TAGS\1a\2", tags_code=TAG)
    await store.close()
    for begin in (0, COUNT // 2):
        ours, others = (bench.queue_file(topic, 1, begin * UNIT) for topic in ("Topic", "Other"))
        content = ours.read_bytes()
        ours.write_bytes(others.read_bytes())
        others.write_bytes(content)
    store = bench.open(**sizes)
    assert read(store, **options) == [b"%d" % n for n in range(COUNT + 1)]
    await store.close()


@pytest.mark.parametrize("reopened", [False, True])
async def test_a_message_of_a_deleted_topic_is_not_taken_for_a_new_one(
    bench: Any, caplog: pytest.LogCaptureFixture, reopened: bool
) -> None:
    store = bench.open(**WHOLE)
    bench.put(store, body=b"deleted")
    end = store.commit_log.end
    store.delete_topic("Topic")
    new = bench.put(store, body=b"new")
    if reopened:
        await store.close()
        store = bench.open(**WHOLE)
        for _ in store.delete_deleted_queues({"Topic": end}):
            pass
    # The record, not its entry: it now says that it is another message.
    flip(bench.segment(), new.physical_offset + 27, 0)
    assert store.get("Topic", 0, 0, 32).buffers == []
    assert "consumers skip it" in caplog.text
