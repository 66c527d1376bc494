"""Every record of stores that the official broker wrote, against what its client pulled."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.message import record as records
from pocketmq.message import record_layout as layout
from pocketmq.message.identity import decode_offset_msg_id, encode_offset_msg_id, host_text
from pocketmq.message.message import MessageExt
from pocketmq.message.properties import find
from pocketmq.message.record import Record
from pocketmq.message.record_layout import BLANK_MAGIC
from pocketmq.message.sysflag import COMPRESSED


def walk(commit_log: list[tuple[int, bytes]]) -> Iterator[Record]:
    """Every record, file by file, up to the blank or the zeros behind the last one."""
    for base, content in commit_log:
        at = 0
        while at < len(content):
            size, magic = layout.peek(content, at)
            if size == 0:
                break
            if magic == BLANK_MAGIC:
                assert at + size == len(content)
                break
            record = records.decode(content, at)
            assert record.physical_offset == base + at
            yield record
            at += size


def as_listed(message: MessageExt) -> dict[str, Any]:
    """A message in the form of the golden lists."""
    return {
        "topic": message.topic,
        "storedTopic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "bodyCRC": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "tags": message.tags,
        "keys": message.properties.get("KEYS"),
        "properties": message.properties,
        "bodyLength": len(message.body),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
        "offsetMsgId": message.offset_msg_id,
    }


def expected(listed: dict[str, Any]) -> dict[str, Any]:
    # The client adds these two to what it holds; they are not stored.
    added = ("MIN_OFFSET", "MAX_OFFSET")
    stored = {name: value for name, value in listed["properties"].items() if name not in added}
    return {"tags": None, "keys": None} | listed | {"properties": stored}


def test_every_message_of_the_list_is_in_the_commit_log(golden: Any) -> None:
    found = {
        record.physical_offset: as_listed(MessageExt.from_record(record))
        for record in walk(golden.commit_log)
    }
    assert found.keys() == golden.messages.keys()
    for physical_offset, listed in golden.messages.items():
        assert found[physical_offset] == expected(listed)


def test_records_as_a_pull_answer_holds_them(golden: Any) -> None:
    found = []
    for _, content in golden.commit_log:
        # Zeros or a blank follow the last record: they end the list.
        found += [record.physical_offset for record in records.iter_records(content)]
        with pytest.raises(layout.RecordError):
            list(records.iter_records(content + b"\0\0\0\0", strict=True))
    assert found == sorted(golden.messages)


def test_encoding_gives_the_stored_bytes(golden: Any) -> None:
    number = 0
    for base, content in golden.commit_log:
        written = bytearray(len(content))
        for record in walk([(base, content)]):
            topic = record.topic.encode()
            size = layout.record_size(
                len(record.body), len(topic), len(record.properties_bytes), record.sys_flag
            )
            assert size == record.size
            at = record.physical_offset - base
            layout.encode_into(
                written,
                at,
                size=size,
                magic=record.magic,
                body_crc=record.body_crc,
                queue_id=record.queue_id,
                flag=record.flag,
                queue_offset=record.queue_offset,
                physical_offset=record.physical_offset,
                sys_flag=record.sys_flag,
                born_timestamp=record.born_timestamp,
                born_host=record.born_host,
                store_timestamp=record.store_timestamp,
                store_host=record.store_host,
                reconsume_times=record.reconsume_times,
                prepared_transaction_offset=record.prepared_transaction_offset,
                body=record.body,
                topic=topic,
                properties=bytes(record.properties_bytes),
            )
            assert written[at : at + size] == content[at : at + size]
            number += 1
    assert number == len(golden.messages)


def test_compressed_bodies_of_all_three_codecs_are_there(golden_clean: Any) -> None:
    codecs = {
        record.sys_flag & 0x700
        for record in walk(golden_clean.commit_log)
        if record.sys_flag & COMPRESSED
    }
    assert codecs == {0x100, 0x200, 0x300}


def test_ids_and_single_properties(golden: Any) -> None:
    for record in walk(golden.commit_log):
        listed = golden.messages[record.physical_offset]
        offset_msg_id = encode_offset_msg_id(record.store_host, record.physical_offset)
        place = decode_offset_msg_id(offset_msg_id)
        assert offset_msg_id == listed["offsetMsgId"]
        assert f"{place.host}:{place.port}" == host_text(record.store_host)
        assert place.physical_offset == record.physical_offset
        for name in ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "REAL_TOPIC", "NO_SUCH"):
            assert find(record.properties_text, name) == listed["properties"].get(name)
