"""A slave keeps timed and delayed messages ready, and delivers none."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerRole
from pocketmq.message import properties as names
from pocketmq.remoting.bodies.table import KVTable
from pocketmq.remoting.bodies.timer import TimerCheckpointBody, TimerMetricsSerializeWrapper
from pocketmq.remoting.codes import RequestCode
from tests.broker.replication.pair import client_of, running
from tests.client.waiting import until

HOUR_MS = 3_600_000


async def waiting(broker: Broker) -> int:
    """How many timed messages a broker has in its timers."""
    async with client_of(broker) as client:
        answer = await client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    return int(KVTable.decode(answer.body).table["timerCongestNum"])


async def waiting_by_topic(broker: Broker) -> dict[str, int]:
    async with client_of(broker) as client:
        answer = await client.request(RequestCode.GET_TIMER_METRICS)
    counts = TimerMetricsSerializeWrapper.decode(answer.body).timing_count
    return {topic: metric.count for topic, metric in counts.items()}


async def until_waiting(broker: Broker, count: int) -> None:
    async with asyncio.timeout(30):
        while await waiting(broker) != count:  # noqa: ASYNC110 (asked over the wire)
            await asyncio.sleep(0.05)


async def test_timed_messages_outlast_the_master(tmp_path: Path) -> None:
    async with running(tmp_path) as pair:
        await pair.start(0)
        await pair.start(1)
        await pair.connected()
        now = time.time_ns() // 1_000_000
        async with client_of(pair.master) as client:
            for after in (1000, HOUR_MS, 2 * HOUR_MS):
                sent = await client.send(
                    "T", b"%d" % after, properties={names.TIMER_DELIVER_MS: str(now + after)}
                )
                assert sent.code == 0
            await client.send("T", b"delayed", properties={names.DELAY: "18"})
            await until(lambda: pair.master.store.max_offset("T", 0) == 1)
            answer = await client.request(RequestCode.GET_TIMER_CHECK_POINT)
            assert TimerCheckpointBody.decode(answer.body).read_time > now
        await pair.copied()
        # It counts the delivered one until the master has said that it is delivered.
        await until_waiting(pair.slave, 2)
        assert pair.slave.store.max_offset("T", 0) == 1
        await pair.stop(0)
        await pair.stop(1)
        promoted = await pair.start(
            0, broker_role=BrokerRole.ASYNC_MASTER, store_path_root_dir=str(tmp_path / "1")
        )
        await until_waiting(promoted, 2)
        assert await waiting_by_topic(promoted) == {"T": 2}
        assert promoted.store.max_offset("T", 0) == 1
        assert promoted.store.max_offset("SCHEDULE_TOPIC_XXXX", 17) == 1
        async with client_of(promoted) as client:
            assert (await client.send("T", b"next")).ext_fields["queueOffset"] == "1"


async def test_a_master_without_timed_messages_has_no_checkpoint(tmp_path: Path) -> None:
    async with running(tmp_path) as pair:
        await pair.start(0)
        async with client_of(pair.master) as client:
            answer = await client.request(RequestCode.GET_TIMER_CHECK_POINT)
            assert (answer.code, answer.remark) == (1, "The checkpoint is null")
            answer = await client.request(RequestCode.GET_TIMER_METRICS)
            assert answer.code == 0
