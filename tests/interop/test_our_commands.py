"""Administration from the command line, of servers of both makes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pocketmq.cli import main
from pocketmq.client.admin import Admin
from pocketmq.client.admin.connected_clients import online as connected
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.serving.service import ExitCode
from tests.client.waiting import online
from tests.interop.harness.cluster import BROKER_NAME, Cluster


async def test_clients_cluster_groups_and_lag(
    cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    group, producers = f"commands_{topic}", f"producers_{topic}"

    async def rows(*arguments: str) -> list[Any]:
        code = await asyncio.to_thread(main, (*arguments, "-n", cluster.address))
        out, err = capsys.readouterr()
        assert code == ExitCode.OK, err
        return [json.loads(line) if line.startswith("{") else line for line in out.splitlines()]

    created = await rows("groups", "create", group, "--retries", "2")
    assert created == [f"group {group} is created on {BROKER_NAME}"]
    [shown] = await rows("groups", "show", group, "--json")
    assert shown["retryMaxTimes"] == 2
    async with (
        Admin(namesrv=cluster.address) as admin,
        Producer(producers, namesrv=cluster.address, heartbeat_interval=0.1) as producer,
    ):
        await admin.create_topic(topic, queues=1)
        for _ in range(3):
            await producer.send(Message(topic, b"x"))
        await admin.set_group_offset(group, MessageQueue(topic, BROKER_NAME, 0), 1)
        async with PullConsumer(
            group, namesrv=cluster.address, auto_commit=False, heartbeat_interval=0.1
        ) as consumer:
            await consumer.subscribe(topic)
            await online(admin, group, topic, producers)
            found = {row["group"]: row for row in await rows("clients", "--json")}
            assert found[group]["client"] == consumer.client_id
            assert found[group]["role"] == "pull consumer"
            assert found[producers]["client"] == producer.client_id
            assert found[producers]["version"] == "5.5.0"
            [one] = await rows("clients", group, "--json")
            assert one == found[group]
        [row] = await rows("lag", group, topic, "--over", "100ms", "--json")
        assert (row["lag"], row["inPerSecond"], row["secondsToCatchUp"]) == (2, 0.0, None)
        [whole] = await rows("cluster", "--json")
        assert (whole["masters"], whole["silent"]) == (1, 0)
        assert whole["lag"] >= 2
        assert whole["topics"] >= 1
        assert whole["log"] > 0
        async with asyncio.timeout(30):
            # An official broker forgets a client a moment after its connection is gone.
            while await connected(admin, group) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    deleted = await rows("groups", "delete", group, "--yes")
    assert deleted == [f"group {group} is deleted"]
