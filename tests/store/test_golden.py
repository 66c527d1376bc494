"""Stores that the official 5.3.3 broker wrote: after a clean stop, and after SIGKILL."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from typing import Any

from pocketmq.message.message import MessageExt
from pocketmq.message.record import decode
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue import FILLER_SIZE


def check_every_message(store: MessageStore, messages: list[dict[str, Any]]) -> None:
    for expected in messages:
        place = (expected["storedTopic"], expected["queueId"], expected["queueOffset"])
        found = store.get(*place, 1)
        assert found.message_count == 1, place
        raw = bytes(found.buffers[0])
        assert bytes(store.record_at(expected["physicalOffset"])) == raw
        record = decode(raw)
        assert record.size == expected["storeSize"]
        message = MessageExt.from_record(record)
        assert message.topic == expected["topic"] or "RETRY_TOPIC" in message.properties
        assert message.queue_offset == expected["queueOffset"]
        assert message.store_timestamp == expected["storeTimestamp"]
        assert len(message.body) == expected["bodyLength"]
        assert hashlib.sha256(message.body).hexdigest() == expected["bodySha256"]


async def test_every_message_is_served_at_its_offset(golden: Any) -> None:
    store = golden.bench.open(**golden.settings())
    check_every_message(store, golden.messages)
    by_queue: dict[tuple[str, int], int] = {}
    for message in golden.messages:
        queue = (message["storedTopic"], message["queueId"])
        by_queue[queue] = max(by_queue.get(queue, 0), message["queueOffset"] + 1)
    # The broker also had queues whose messages it consumed itself; none of ours is missing.
    for (topic, queue_id), end in by_queue.items():
        assert store.max_offset(topic, queue_id) == end
    last = max(golden.messages, key=lambda message: message["physicalOffset"])
    assert store.commit_log.end == last["physicalOffset"] + last["storeSize"]


async def test_times_are_found(golden: Any) -> None:
    store = golden.bench.open(**golden.settings())
    for message in golden.messages[::7]:
        topic, queue_id = message["storedTopic"], message["queueId"]
        at = store.offset_by_time(topic, queue_id, message["storeTimestamp"])
        assert at <= message["queueOffset"]
        assert store.store_time_at(topic, queue_id, at) == message["storeTimestamp"]


async def test_rebuilt_queues_equal_the_official_ones_byte_for_byte(golden: Any) -> None:
    """The consume queues are derived from the log; where the killed broker had not come to enter
    its last messages, ours may hold more."""
    bench = golden.bench
    official = bench.root.with_name("official")
    shutil.copytree(bench.root / "consumequeue", official)
    shutil.rmtree(bench.root / "consumequeue")
    store = bench.open(**golden.settings())
    await store.close()
    files = [path for path in official.rglob("*") if path.is_file()]
    assert len(files) == len([p for p in (bench.root / "consumequeue").rglob("*") if p.is_file()])
    for path in files:
        written = path.read_bytes().rstrip(b"\0")
        ours = (bench.root / "consumequeue" / path.relative_to(official)).read_bytes()
        # An entry may end in zeros.
        written += bytes(-len(written) % 20)
        assert ours.startswith(written)
        if golden.name == "clean":
            assert not any(ours[len(written) :])


async def test_writing_goes_on_where_the_official_broker_stopped(golden: Any) -> None:
    bench = golden.bench
    store = bench.open(**golden.settings())
    first = golden.messages[0]
    topic, queue_id = first["storedTopic"], first["queueId"]
    end, log_end = store.max_offset(topic, queue_id), store.commit_log.end
    bench.clock.now = golden.messages[-1]["storeTimestamp"] + 1
    for n in range(300):
        result = bench.put(store, topic, queue_id, body=b"%d" % n * 100)
        assert result.queue_offset == end + n
        assert n or result.physical_offset == log_end
    await store.close()
    assert not (bench.root / "abort").exists()
    store = bench.open(**golden.settings())
    check_every_message(store, golden.messages)
    assert store.max_offset(topic, queue_id) == end + 300
    found = store.get(topic, queue_id, end + 299, 1)
    assert decode(bytes(found.buffers[0])).body == b"299" * 100


async def test_opening_changes_nothing_but_the_tail(golden: Any) -> None:
    """What is there stays as it is: commit log, config and index are not touched."""
    bench = golden.bench
    before = {p: p.read_bytes() for p in bench.root.rglob("*") if p.is_file()}
    store = bench.open(**golden.settings())
    await asyncio.sleep(0)
    await store.close()
    for path, content in before.items():
        part = path.relative_to(bench.root).parts[0]
        if part in ("config", "index", "commitlog") and path.exists():
            assert path.read_bytes() == content, path
    # Files behind the end are the preallocated ones, which hold nothing; an index that a crash may
    # have torn is built again.
    gone = [path for path in before if not path.exists() and path.name.isdigit()]
    if golden.name == "killed":
        gone.remove(*[path for path in gone if path.parent.name == "index"])
    assert all(not any(before[path]) for path in gone)
    for queues in store.queues.values():
        assert not any(entry[1] == FILLER_SIZE for q in queues.values() for entry in q.read(0, 1))
