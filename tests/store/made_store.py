"""Writes store directories byte by byte, whole or damaged, for the tests of reading them.

Independent of the broker's store on purpose: it can leave out entries, write records that belong
nowhere, and stop at any byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pocketmq.message import record as records
from pocketmq.message import record_layout as layout
from pocketmq.message.checksum import body_crc
from pocketmq.message.identity import pack_host
from pocketmq.message.message import MessageExt
from pocketmq.message.properties import encode, find
from pocketmq.message.tags import tag_hash
from pocketmq.store.files import Files
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.store_lock import StoreLock
from tests.unpacking import unpack

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
V4 = pack_host("10.1.2.3", 40001)
BROKER = pack_host("127.0.0.1", 10911)
NOW = 1_795_240_640_000
ENTRY = struct.Struct(">qiq")


class MadeStore:
    """A store being written: `put` messages, then `write` the files."""

    def __init__(self, root: Path, segment_size: int = 16_384) -> None:
        self.root = root
        self.segment_size = segment_size
        self.log = bytearray()
        self.entries: dict[tuple[str, int], bytearray] = defaultdict(bytearray)
        self.next_offsets: dict[tuple[str, int], int] = defaultdict(int)
        self.now = NOW

    def put(
        self,
        topic: str = "T",
        queue_id: int = 0,
        body: bytes = b"hello",
        properties: dict[str, str] | bytes | None = None,
        *,
        entry: bool = True,
        queue_offset: int | None = None,
        magic: int | None = None,
        **fields: Any,
    ) -> int:
        """Append a record, and its entry if `entry`. Returns its physical offset."""
        key = (topic, queue_id)
        offset = self.next_offsets[key] if queue_offset is None else queue_offset
        raw = properties if isinstance(properties, bytes) else encode(properties or {}).encode()
        name = topic.encode()
        version = 2 if magic == layout.MAGIC_V2 or len(name) > layout.MAX_TOPIC_V1 else 1
        sys_flag = fields.get("sys_flag", 0)
        size = layout.record_size(len(body), len(name), len(raw), sys_flag, version)
        rest = self.segment_size - len(self.log) % self.segment_size
        if rest < size + layout.MIN_BLANK:
            at = len(self.log)
            self.log += bytes(rest)
            layout.encode_blank_into(self.log, at, rest)
        physical = len(self.log)
        self.log += bytes(size)
        self.now += 1
        values: dict[str, Any] = {
            "magic": (layout.MAGIC_V1, layout.MAGIC_V2)[version - 1],
            "body_crc": body_crc(body),
            "queue_id": queue_id,
            "flag": 0,
            "queue_offset": offset,
            "physical_offset": physical,
            "sys_flag": 0,
            "born_timestamp": self.now - 1,
            "born_host": V4,
            "store_timestamp": self.now,
            "store_host": BROKER,
            "reconsume_times": 0,
            "prepared_transaction_offset": 0,
        } | fields
        layout.encode_into(
            self.log, physical, size=size, body=body, topic=name, properties=raw, **values
        )
        self.next_offsets[key] = offset + 1
        if entry:
            tag = find(raw.decode("utf-8", "replace"), "TAGS")
            self.enter(topic, queue_id, physical, size, tag_hash(tag) if tag else 0)
        return physical

    def enter(self, topic: str, queue_id: int, physical: int, size: int, code: int = 0) -> None:
        """Append an entry to a consume queue."""
        self.entries[topic, queue_id] += ENTRY.pack(physical, size, code)

    def write(
        self, *, crashed: bool = False, entries_per_file: int = 50, log_bytes: int | None = None
    ) -> Path:
        """Write the files; `log_bytes` cuts the commit log off."""
        log = bytes(self.log if log_bytes is None else self.log[:log_bytes])
        for base in range(0, max(len(log), 1), self.segment_size):
            content = log[base : base + self.segment_size]
            if log_bytes is None:
                content = content.ljust(self.segment_size, b"\0")
            self.write_file(self.root / "commitlog" / f"{base:020d}", content)
        for (topic, queue_id), entries in self.entries.items():
            directory = self.root / "consumequeue" / topic / str(queue_id)
            size = entries_per_file * ENTRY.size
            for base in range(0, len(entries), size):
                content = bytes(entries[base : base + size]).ljust(size, b"\0")
                self.write_file(directory / f"{base:020d}", content)
        if crashed:
            write(self.root / "abort", b"0")
        return self.root

    def write_file(self, path: Path, content: bytes) -> None:
        """Write one of the files of log and queues."""
        write(path, content)

    def write_checkpoint(self) -> None:
        """Write a checkpoint that knows all of the log to be on the disk."""
        checkpoint = Checkpoint(Files(), self.root / "checkpoint")
        checkpoint.open()
        checkpoint.physic_timestamp = checkpoint.logics_timestamp = self.now
        checkpoint.confirm_physical_offset = checkpoint.entered_offset = len(self.log)
        checkpoint.save()
        checkpoint.close()


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def damage(path: Path, at: int, change: Callable[[int], int] = lambda byte: byte ^ 0xFF) -> None:
    """Change one byte of a file."""
    content = bytearray(path.read_bytes())
    content[at] = change(content[at])
    path.write_bytes(content)


def unpack_golden(name: str, directory: Path) -> Path:
    return unpack(GOLDEN / f"store-5.3.3-{name}.tar.gz", directory)


def golden_rows(name: str) -> dict[int, dict[str, Any]]:
    """What the official client pulled, by physical offset, as rows of a scan.

    MIN_OFFSET and MAX_OFFSET are added by the client, and ids it makes up are left out here.
    """
    listed = json.loads((GOLDEN / f"store-5.3.3-{name}.json").read_text("utf-8"))
    rows = {}
    for message in listed:
        properties = dict(message["properties"])
        del properties["MIN_OFFSET"], properties["MAX_OFFSET"]
        rows[message["physicalOffset"]] = {
            "topic": message["storedTopic"],
            "queueId": message["queueId"],
            "brokerName": "golden",
            "queueOffset": message["queueOffset"],
            "physicalOffset": message["physicalOffset"],
            "body": (message["bodyLength"], message["bodySha256"]),
            "tags": message.get("tags"),
            "keys": (message.get("keys") or "").split(),
            "properties": properties,
            "flag": message["flag"],
            "bornTimestamp": message["bornTimestamp"],
            "storeTimestamp": message["storeTimestamp"],
            "msgId": properties.get("UNIQ_KEY", message["offsetMsgId"]),
            "reconsumeTimes": message["reconsumeTimes"],
            "bornHost": message["bornHost"],
            "storeHost": message["storeHost"],
            "sysFlag": message["sysFlag"],
            "storeSize": message["storeSize"],
            "bodyCRC": message["bodyCRC"],
            "preparedTransactionOffset": message["preparedTransactionOffset"],
            "offsetMsgId": message["offsetMsgId"],
        }
    return rows


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a scan (Arrow or Spark) in the form of `golden_rows`."""
    body = bytes(row["body"])
    # map columns come as pairs from Arrow, as dicts from Spark; duplicates would show as pairs
    properties = row["properties"]
    assert len(dict(properties)) == len(properties)
    return row | {
        "body": (len(body), hashlib.sha256(body).hexdigest()),
        "properties": dict(properties),
        "keys": list(row["keys"]),
        "bornTimestamp": round(row["bornTimestamp"].timestamp() * 1000),
        "storeTimestamp": round(row["storeTimestamp"].timestamp() * 1000),
    }


def rows_of(batches: Iterable[Any]) -> list[dict[str, Any]]:
    """The rows of Arrow batches, which must be valid in themselves."""
    found: list[dict[str, Any]] = []
    for batch in batches:
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


def decoded(store: MadeStore, physical: int) -> dict[str, Any]:
    """The row that the record codec gives for one record."""
    message = MessageExt.from_record(records.decode(store.log, physical))
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "brokerName": store.root.name,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "body": (len(message.body), hashlib.sha256(message.body).hexdigest()),
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": message.properties,
        "flag": message.flag,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "msgId": message.msg_id,
        "reconsumeTimes": message.reconsume_times,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "sysFlag": message.sys_flag,
        "storeSize": message.store_size,
        "bodyCRC": message.body_crc,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "offsetMsgId": message.offset_msg_id,
    }


def store_with_a_broken_topic(root: Path) -> Path:
    """A store with three messages of `orders`, and with a topic whose queue cannot be opened."""
    made = MadeStore(root)
    for _ in range(3):
        made.put("orders")
    written = made.write()
    # Not one without permission: root, as which tests may run, reads all.
    (written / "consumequeue" / "broken" / "0" / f"{0:020d}").mkdir(parents=True)
    return written


@contextlib.contextmanager
def held_open(root: Path) -> Iterator[None]:
    """Have a store open, as a broker of this process has it."""
    lock = StoreLock(Files(), root, root / "commitlog")
    lock.acquire()
    lock.mark_open()
    try:
        yield
    finally:
        lock.release()
