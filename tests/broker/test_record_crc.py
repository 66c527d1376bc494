"""A broker with enabledAppendPropCRC: each message of each kind ends with its checksum."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pocketmq.message.record_crc import is_altered, stated_crc
from pocketmq.store.check.store_check import check_store
from tests.broker.conftest import Connect, StartBroker


async def test_sends_in_one_read_and_delayed_ones(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    settings = {
        "enabled_append_prop_crc": True, "force_verify_prop_crc": True,
        "message_delay_level": "1s", "max_hash_slot_num": 100, "max_index_num": 400,
    }  # fmt: skip
    broker = await start_broker(**settings)
    client = await connect(broker)
    properties = {"TAGS": "a", "KEYS": "k"}
    sends = [client.send(topic, b"%d" % n, properties=properties) for n in range(50)]
    answers = await asyncio.gather(*sends, client.send(topic, properties={"DELAY": "1"}))
    assert {answer.code for answer in answers} == {0}
    stale = await client.send(topic, properties="__CRC32#\x010000000000\x02")
    assert stale.code == 0
    records = await client.pulled(topic, max_msg_nums=32)
    delayed = await client.pulled(topic, 51, sys_flag=6)
    log, at, count = broker.store.commit_log, 0, 0
    while at < log.end:
        record = log.record_at(at)
        assert stated_crc(record) is not None
        assert not is_altered(record)
        at += len(record)
        count += 1
    assert (len(records), len(delayed), count) == (32, 1, 53)
    await broker.stop()
    (Path(broker.config.store_path_root_dir) / "abort").touch()
    assert check_store(broker.config).problems == []
    broker = await start_broker(**settings)
    client = await connect(broker)
    assert len(await client.pulled(topic, 40)) == 12


@pytest.mark.parametrize("tags", ["*", "a"])
async def test_a_pull_skips_a_message_whose_properties_differ_from_the_checksum(
    start_broker: StartBroker, connect: Connect, topic: str, tags: str
) -> None:
    settings = {
        "enabled_append_prop_crc": True,
        "force_verify_prop_crc": True,
        "check_crc_on_read": True,
    }
    broker = await start_broker(**settings)
    client = await connect(broker)
    for number in range(20):
        properties = {"TAGS": "a", "x": f"<{number}>"}
        assert (await client.send(topic, properties=properties)).code == 0
    await broker.stop()
    # The message keeps its tag, and all that other checks compare.
    log = Path(broker.config.store_path_root_dir) / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes().replace(b"<7>", b"<8>"))
    client = await connect(await start_broker(**settings))
    records = await client.pulled(topic, subscription=tags)
    assert [record.queue_offset for record in records] == [*range(7), *range(8, 20)]
