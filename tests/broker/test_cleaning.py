"""Cleaning on demand: 306, 316, 329."""

from __future__ import annotations

import asyncio
import os

from pocketmq.broker.broker import Broker
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.conftest import Client, Connect, StartBroker, fill, position


async def clean(client: Client, code: RequestCode) -> None:
    answer = await client.request(code)
    assert (answer.code, answer.remark) == (0, None)


async def test_expired_log_and_queues_are_removed_on_demand(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker(
        mapped_file_size_commit_log=16 * 1024,
        delete_commit_log_files_interval=0,
        flush_interval_commit_log=5,
    )
    client = await connect(broker)
    old = f"{topic}_old"
    await fill(client, old, "a", "a")
    log = broker.store.commit_log
    while log.end < 3 * log.file_size:
        await client.send(topic, b"b" * 1000)
    files = [file.path for file in log.files.mapped]
    for path in files[:2]:
        os.utime(path, (1e9, 1e9))

    await clean(client, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    assert old in broker.store.queues
    flushed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    broker.store.when_flushed(log.end, flushed.set_result)
    assert await flushed
    await clean(client, RequestCode.DELETE_EXPIRED_COMMITLOG)
    await broker.store.cleanup.round()  # once the one that was ordered is over
    assert not files[1].exists()
    assert log.min_offset == 2 * log.file_size
    assert files[2].exists()

    low = broker.store.min_offset(topic, 0)
    answer = await client.pull(topic, 0)
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert position(answer) == (low, low, broker.store.max_offset(topic, 0))
    assert len(await client.pulled(topic, low)) > 0

    await clean(client, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    assert old not in broker.store.queues
    assert (await client.send(old)).code == 0


async def test_queues_of_unknown_topics_are_removed(
    broker: Broker, client: Client, topic: str
) -> None:
    await fill(client, topic, "a")
    unknown = f"{topic}_unknown"
    for name in (unknown, "SCHEDULE_TOPIC_XXXX"):
        result = broker.store.put(
            name, 0, b"b", "", born_timestamp=1, born_host=bytes(8), tags_code=0
        )
        assert result.ok
    await clean(client, RequestCode.CLEAN_UNUSED_TOPIC)
    assert unknown not in broker.store.queues
    assert {topic, "SCHEDULE_TOPIC_XXXX"} <= set(broker.store.queues)
    assert len(await client.pulled(topic)) == 1
