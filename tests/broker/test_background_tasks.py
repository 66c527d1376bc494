"""Servers go on whatever ends one of their background tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pocketmq import Admin, Message, Producer
from tests.client.real_cluster import RealCluster
from tests.client.waiting import until


async def test_a_broker_and_a_name_server_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    servers = RealCluster(tmp_path, "b0")
    await servers.start()
    own = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert own
    for task in own:
        task.cancel()
    await asyncio.wait(own)
    # The registration is back, tables are written, messages and their deliveries are stored.
    async with (
        Admin(namesrv=servers.namesrv) as admin,
        Producer("P", namesrv=servers.namesrv) as producer,
    ):
        await admin.create_topic("T", queues=1)
        await producer.send(Message("T", b"x", delay_level=1))
        [queue] = await producer.queues("T")
        async with asyncio.timeout(30):
            while not await admin.max_offset(queue):  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.05)
    named = [record.getMessage() for record in caplog.records if "restarted it" in record.msg]
    assert any("registration at" in text for text in named)
    assert any("topics.json" in text for text in named)
    await servers.stop()
    await until(lambda: asyncio.all_tasks() <= before | {asyncio.current_task()})
