"""A store for benchmarks to read: messages as producers and brokers of the field write them."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Final

from pocketmq.message.identity import UniqueIdFactory, pack_host
from pocketmq.message.properties import encode
from pocketmq.message.tags import tag_hash
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import PutStatus

TOPIC: Final = "Bench"
QUEUES: Final = 4
_TAGS: Final = ("TagA", "TagB", "TagC", "TagD")
_HOST: Final = pack_host("127.0.0.1", 10911)
_BORN_HOST: Final = pack_host("127.0.0.1", 41394)
_NOW: Final = 1_795_240_640_000


def write_store(root: Path, size: int, body_size: int) -> None:
    """Fill a store at `root` with at least `size` bytes of messages, whose bodies have `body_size`
    bytes."""
    asyncio.run(_write_store(root, size, body_size))


async def _write_store(root: Path, size: int, body_size: int) -> None:
    store = MessageStore(StoreConfig(store_path_root_dir=str(root)), store_host=_HOST)
    store.open()
    store.start()
    new_id = UniqueIdFactory(lambda: _NOW * 1_000_000, 1, _HOST[:4]).new_id
    noise = random.Random(1).randbytes(body_size + 65_536)
    number = written = 0
    try:
        while written < size:
            tag = _TAGS[number % len(_TAGS)]
            at = number * 37 % 65_536
            properties = {
                "KEYS": f"key{number}",
                "UNIQ_KEY": new_id(),
                "CLUSTER": "DefaultCluster",
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
                "WAIT": "true",
                "TAGS": tag,
            }
            result = store.put(
                TOPIC,
                number % QUEUES,
                noise[at : at + body_size],
                encode(properties),
                born_timestamp=_NOW,
                born_host=_BORN_HOST,
                tags_code=tag_hash(tag),
            )
            if result.status is not PutStatus.PUT_OK:
                raise RuntimeError(f"message {number}: {result}")
            written = result.end_offset
            number += 1
            if number % 1000 == 0:
                await asyncio.sleep(0)  # the store makes its files beside us
    finally:
        await store.close()
