"""Brokers whose clock is set by hand, and producers of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.message.limits import HALF_TOPIC, OP_HALF_TOPIC
from pocketmq.message.record import Record, decode, iter_records
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from pocketmq.remoting.serving.request import Request
from tests.broker.conftest import Client

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
SECOND = 1000


class Clock:
    """Milliseconds; rises only when told to."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def forward(self, milliseconds: int) -> None:
        self.now += milliseconds


class Half(NamedTuple):
    """Where a half message is: what its producer needs to end the transaction."""

    queue_offset: int
    physical_offset: int


class Check(NamedTuple):
    """A question of the broker: its header, and the half message in its body."""

    header: CheckTransactionStateRequestHeader
    half: Record

    @property
    def place(self) -> Half:
        return Half(self.header.tran_state_table_offset, self.header.commit_log_offset)


class Producer(Client):
    """A member of a producer group; `checks` gets what the broker asks."""

    def __init__(self, group: str = "PG") -> None:
        super().__init__()
        self.group = group
        self.checks: asyncio.Queue[Check] = asyncio.Queue()
        self._dispatcher.register(
            RequestCode.CHECK_TRANSACTION_STATE, self._checked, CheckTransactionStateRequestHeader
        )

    def _checked(self, request: Request[CheckTransactionStateRequestHeader]) -> None:
        self.checks.put_nowait(Check(request.header, decode(bytes(request.body))))

    async def begin(
        self, topic: str, clock: Clock, body: bytes = b"half", **properties: str
    ) -> Half:
        answer = await self.send(
            topic,
            body,
            properties={"TRAN_MSG": "true", "PGROUP": self.group, **properties},
            sys_flag=4,
            born_timestamp=clock(),
        )
        assert answer.code == 0, answer.remark
        return Half(int(answer.ext_fields["queueOffset"]), int(answer.ext_fields["msgId"][16:], 16))

    async def end(
        self, half: Half, how: int = COMMIT, *, timeout: float = 10.0, **fields: Any
    ) -> Command:
        values: dict[str, Any] = {
            "producer_group": self.group,
            "tran_state_table_offset": half.queue_offset,
            "commit_log_offset": half.physical_offset,
            "commit_or_rollback": how,
            "msg_id": "U",
            **fields,
        }
        header = EndTransactionRequestHeader(**values)
        return await self.request(RequestCode.END_TRANSACTION, header, timeout=timeout)

    async def asked(self, broker: Broker) -> list[Check]:
        """What one round of checks asks this producer."""
        await broker.components.transactions.checks.check()
        await self.heartbeat("after the checks", producer=self.group)
        return [self.checks.get_nowait() for _ in range(self.checks.qsize())]


def records(broker: Broker, topic: str, queue_id: int = 0) -> list[Record]:
    """All messages that can be read in a queue."""
    found = broker.store.get(topic, queue_id, broker.store.min_offset(topic, queue_id), 1000)
    return [record for buffer in found.buffers for record in iter_records(buffer)]


def halves(broker: Broker) -> list[Record]:
    return records(broker, HALF_TOPIC)


def ops(broker: Broker) -> list[str]:
    """The bodies in the op queue, with what is still to be written."""
    broker.components.transactions.ops.write()
    return [bytes(record.body).decode() for record in records(broker, OP_HALF_TOPIC)]


StartClocked = Callable[..., Awaitable[Broker]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def start_clocked(tmp_path: Path, clock: Clock) -> AsyncIterator[StartClocked]:
    """`await start_clocked(setting=value)`: a broker by `clock`, all on one store directory."""
    brokers: list[Broker] = []

    async def start(**settings: Any) -> Broker:
        settings.setdefault("store_path_root_dir", str(tmp_path / "store"))
        settings.setdefault("mapped_file_size_commit_log", 1 << 20)
        settings.setdefault("mapped_file_size_consume_queue", 20_000)
        config = BrokerConfig(
            broker_name="b0",
            listen_port=0,
            # Whoever tests has the ops written and the rounds made.
            transaction_check_interval=3600 * SECOND,
            transaction_op_batch_interval=3600 * SECOND,
            **settings,
        )
        broker = Broker(config, clock=clock)
        await broker.start()
        brokers.append(broker)
        return broker

    yield start
    for broker in brokers:
        await broker.stop()


Produce = Callable[..., Awaitable[Producer]]


@pytest.fixture
async def produce() -> AsyncIterator[Produce]:
    """`await produce(broker)`: a producer that the broker knows."""
    producers: list[Producer] = []

    async def open_producer(broker: Broker, group: str = "PG", client_id: str = "p") -> Producer:
        producer = Producer(group)
        await producer.open(broker.address)
        producers.append(producer)
        await producer.heartbeat(client_id, producer=group)
        return producer

    yield open_producer
    for producer in producers:
        await producer.close()


@pytest.fixture
async def broker(start_clocked: StartClocked) -> Broker:
    return await start_clocked()


@pytest.fixture
async def producer(broker: Broker, produce: Produce) -> Producer:
    return await produce(broker)
