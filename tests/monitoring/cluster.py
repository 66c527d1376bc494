"""A name server and two brokers in this process, all of them with metrics, under some load."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

from pocketmq import Message, Producer, PushConsumer, TransactionProducer
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.client.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.producer.transaction import TransactionState
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import MessageExt
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.codes import ResponseCode
from tests.broker.conftest import Client
from tests.broker.pop.consuming import PopClient
from tests.client.waiting import until

TOPIC, GROUP = "orders", "billing"
POP_GROUP = "packing"
SENT = 200
TRANSACTIONS = 3


class MeasuredCluster:
    """Two brokers at one name server; `ports` are those of the metrics."""

    def __init__(self, namesrv: NameServer, brokers: list[Broker]) -> None:
        self.namesrv = namesrv
        self.brokers = brokers
        self.address = namesrv.address

    @property
    def ports(self) -> list[int]:
        monitored = [self.namesrv.monitoring, *(broker.monitoring for broker in self.brokers)]
        return [each.metrics_port for each in monitored if each.metrics_port is not None]


@contextlib.asynccontextmanager
async def measured_cluster(directory: Path) -> AsyncIterator[MeasuredCluster]:
    async with contextlib.AsyncExitStack() as stack:
        namesrv = NameServer(
            NamesrvConfig(
                listen_port=0,
                kv_config_path=str(directory / "kv.json"),
                metrics_exporter_type="PROM",
                metrics_prom_exporter_port=0,
            )
        )
        await stack.enter_async_context(namesrv)
        brokers = []
        for name in ("a", "b"):
            config = BrokerConfig(
                store_path_root_dir=str(directory / name),
                broker_name=name,
                listen_port=0,
                namesrv_addr=namesrv.address,
                mapped_file_size_commit_log=1 << 22,
                metrics_exporter_type="PROM",
                metrics_prom_exporter_port=0,
            )
            brokers.append(await stack.enter_async_context(Broker(config)))
        yield MeasuredCluster(namesrv, brokers)


def all_committed(broker: Broker) -> bool:
    """Whether all that the broker has of the topic is committed."""
    offsets, store = broker.tables.offsets, broker.store
    return all(
        store.max_offset(TOPIC, queue_id) == offsets.query(GROUP, TOPIC, queue_id)
        for queue_id in store.queues.get(TOPIC, {})
    )


async def pop_without_acknowledging(broker: Broker) -> None:
    """Pop one message, and wait until it is taken back."""
    client = Client()
    await client.open(broker.address)
    try:
        [_] = await PopClient(client, TOPIC, POP_GROUP, broker.config.broker_name).pop(
            max_msg_nums=1, invisible_time=1_000
        )
    finally:
        await client.close()
    await until(lambda: broker.tables.statistics.pops.retried.total() == 1, 20)


async def send_to_no_queue(broker: Broker) -> None:
    """A send that the broker refuses."""
    client = Client()
    await client.open(broker.address)
    try:
        assert (await client.send(TOPIC, queue_id=99)).code != ResponseCode.SUCCESS
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def loaded(cluster: MeasuredCluster) -> AsyncIterator[None]:
    """Within, `SENT` messages are consumed, one of them a dead letter, and some of each other kind;
    their clients are still there."""
    async with Admin(namesrv=cluster.address) as admin:
        await admin.create_topic(TOPIC, queues=4)
    consumed = 0
    done = asyncio.Event()

    async def check(message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT

    consumer = PushConsumer(
        GROUP, namesrv=cluster.address, start="begin", commit_interval=timedelta(milliseconds=100)
    )

    @consumer.on(TOPIC)
    async def handle(message: ConsumedMessage) -> None:
        nonlocal consumed
        consumed += 1
        if consumed == SENT + TRANSACTIONS:
            done.set()
        if message.body == b"bad":
            raise ReconsumeLater("never", delay_level=-1)

    async with Producer("shop", namesrv=cluster.address) as producer:
        await producer.send(Message(TOPIC, b"bad"))
        for _ in range(SENT - 1):
            await producer.send(Message(TOPIC, b"x" * 100))
        await producer.send(Message(TOPIC, b"later", delay=3600))
    bank = TransactionProducer("bank", check=check, namesrv=cluster.address)
    async with bank, consumer:
        for _ in range(TRANSACTIONS):
            async with bank.transaction(Message(TOPIC, b"paid")):
                pass
        async with bank.transaction(Message(TOPIC, b"unpaid")) as transaction:
            transaction.rollback()
        await done.wait()
        await pop_without_acknowledging(cluster.brokers[0])
        await send_to_no_queue(cluster.brokers[0])
        # What the group has consumed is committed soon after, at both brokers.
        await until(lambda: all(all_committed(broker) for broker in cluster.brokers))
        yield
