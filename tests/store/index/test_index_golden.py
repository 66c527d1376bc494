"""The index files that the official 5.3.3 broker wrote: read, queried, and written again."""

from __future__ import annotations

import shutil
import struct
import time
from typing import Any

from pocketmq.message import properties as names
from pocketmq.message.record import decode
from pocketmq.store.encoding.key_hash import key_hash
from pocketmq.store.message_store import MessageStore

ALL_TIME = (0, 2**63 - 1)


def indexed(message: dict[str, Any]) -> list[str]:
    """What a message must be found by."""
    keys = message["properties"].get("KEYS", "").split(" ")
    return [key for key in (message["properties"].get("UNIQ_KEY"), *keys) if key]


async def query(store: MessageStore, topic: str, key: str, *span: int) -> list[int]:
    """Physical offsets of the messages that really have the key."""
    found = await store.index.query(topic, key, 64, *(span or ALL_TIME))
    offsets = []
    for view in found.records:
        record = decode(bytes(view))
        properties = names.decode(record.properties_text)
        if record.topic == topic and key in indexed({"properties": properties}):
            offsets.append(record.physical_offset)
    return offsets


async def test_every_message_is_found_by_every_key(golden: Any) -> None:
    store = golden.bench.open(**golden.settings())
    store.start()
    wanted = {
        (message["storedTopic"], key, message["physicalOffset"])
        for message in golden.messages
        for key in indexed(message)
    }
    assert len(wanted) > 300
    for topic, key, offset in wanted:
        if golden.name == "clean":
            # To the second only, as the reference: it counts seconds from the file's first message.
            record = decode(bytes(store.record_at(offset)))
            begin, end = record.store_timestamp - 1000, record.store_timestamp
            assert offset in await query(store, topic, key, begin, end), (topic, key)
        assert offset in await query(store, topic, key), (topic, key)
    assert await query(store, "TopicThatIsNot", "k") == []


async def test_a_clean_store_keeps_its_index_file(golden: Any) -> None:
    [path] = (golden.bench.root / "index").iterdir()
    before = path.read_bytes()
    store = golden.bench.open(**golden.settings())
    await store.close()
    if golden.name == "clean":
        assert path.read_bytes() == before
    else:
        # The broker was killed: the file is dropped and built again from the log.
        assert not path.exists()


#: Of 500 slots, and then of entries: hash, physical offset, seconds, and the entry before in the
#: chain.
ENTRIES = struct.Struct(">iqii")
FIRST_ENTRY = 40 + 500 * 4 + ENTRIES.size


def entries(data: bytes) -> list[tuple[int, int, int]]:
    """The entries of an index file, without their chains."""
    count = int.from_bytes(data[36:40], "big") - 1
    part = data[FIRST_ENTRY : FIRST_ENTRY + count * ENTRIES.size]
    return [(key, physical, seconds) for key, physical, seconds, _ in ENTRIES.iter_unpack(part)]


async def test_an_index_built_from_the_log_has_the_official_entries(golden: Any) -> None:
    """And those of the tags, which are entered from 5.4 on."""
    bench = golden.bench
    [path] = (bench.root / "index").iterdir()
    official = path.read_bytes()
    shutil.rmtree(path.parent)
    bench.clock.now = 1_800_000_000_000
    store = bench.open(**golden.settings() | {"max_index_num": 10_000})
    await store.close()

    [rebuilt] = (bench.root / "index").iterdir()
    assert rebuilt.name == time.strftime("%Y%m%d%H%M%S", time.localtime(1_800_000_000)) + "000"
    own, known = entries(rebuilt.read_bytes()), entries(official)
    of_tags = {
        (key_hash(message["storedTopic"], f"T#{tags}"), message["physicalOffset"])
        for message in golden.messages
        if (tags := message["properties"].get("TAGS"))
    }
    assert {(key, physical) for key, physical, _ in own} >= of_tags
    others = [entry for entry in own if entry[:2] not in of_tags]
    # The killed broker had not entered its last messages; what it had is the same.
    assert len(known) > 300
    assert others[: len(known)] == known
    if golden.name == "clean":
        assert others == known
