"""What Spark's tasks do with rows, at brokers of both makes; Spark itself is not needed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.message.message import MessageExt
from tests.interop.harness.cluster import Cluster

pytest.importorskip("pyspark")

import pyarrow as pa

from pocketmq.spark.options.writer_options import WriterOptions
from pocketmq.spark.rows import Rows
from pocketmq.spark.writing.row_sender import send_rows


async def stored(cluster: Cluster, topic: str, count: int) -> list[MessageExt]:
    """That many messages, queue by queue."""
    async with asyncio.timeout(30), PullConsumer("readers", namesrv=cluster.address) as consumer:
        while True:
            found: list[MessageExt] = []
            for queue in await consumer.queues(topic):
                at, end = 0, await consumer.end_offset(queue)
                while at < end:
                    pulled = await consumer.pull(queue, at)
                    found += pulled.messages
                    at = pulled.next_begin_offset
            if len(found) >= count:
                return found
            await asyncio.sleep(0.2)  # a delayed one is due later


def test_rows_in_batches_by_key_and_delayed(cluster: Cluster, topic: str) -> None:
    options = WriterOptions.parse(
        {"namesrv": cluster.address, "topic": topic, "batchMessages": "40"}, streaming=False
    )
    rows = Rows(
        topic,
        id_prefix="w/0/",
        most_messages=options.batch_messages,
        most_bytes=options.batch_bytes,
    )
    columns: dict[str, Any] = {
        "body": [b"%d" % number for number in range(300)],
        "tags": ["even", "odd"] * 150,
        "keys": [[f"k{number}"] for number in range(300)],
        "shardingKey": [None, *(f"s{number % 3}" for number in range(1, 300))],
        "delayLevel": [1, *[0] * 299],
    }
    batches = pa.table(columns).to_batches(max_chunksize=110)
    assert send_rows(iter(batches), rows, options) == 300
    messages = asyncio.run(stored(cluster, topic, 300))
    assert sorted(int(message.body) for message in messages) == list(range(300))
    for message in messages:
        number = int(message.body)
        assert message.tags == columns["tags"][number]
        assert message.keys == (f"k{number}",)
        assert message.user_properties == {"SPARK_ROW_ID": f"w/0/{number}"}
    for key in ("s0", "s1", "s2"):
        ours = [each for each in messages if columns["shardingKey"][int(each.body)] == key]
        assert len({each.queue_id for each in ours}) == 1
        numbers = [int(each.body) for each in ours]
        assert numbers == sorted(numbers)
