"""A broker in this process, raw connections to it, and a name server that takes notes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.message import properties as names
from pocketmq.message.record import Record, iter_records
from pocketmq.message.tags import tag_hash
from pocketmq.remoting.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from pocketmq.remoting.bodies.registration import RegisterBrokerBody
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import (
    BrokerHeartbeatRequestHeader,
    Header,
    NotifyConsumerIdsChangedRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    RegisterBrokerRequestHeader,
    SendMessageRequestHeaderV2,
    UnRegisterBrokerRequestHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.serving.server import RemotingServer
from tests.namesrv.registrations import finished

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4  # sysFlag of a pull


class NameServerStub:
    """Answers registrations and keeps them; `answers` may be filled with other answers."""

    def __init__(self) -> None:
        self.registered: asyncio.Queue[tuple[RegisterBrokerRequestHeader, RegisterBrokerBody]] = (
            asyncio.Queue()
        )
        self.unregistered: asyncio.Queue[UnRegisterBrokerRequestHeader] = asyncio.Queue()
        self.heartbeats: asyncio.Queue[BrokerHeartbeatRequestHeader] = asyncio.Queue()
        self.answers: list[Response] = []
        self._dispatcher = Dispatcher()
        self._dispatcher.register(
            RequestCode.REGISTER_BROKER, self._register, RegisterBrokerRequestHeader
        )
        self._dispatcher.register(
            RequestCode.UNREGISTER_BROKER, self._unregister, UnRegisterBrokerRequestHeader
        )
        self._dispatcher.register(
            RequestCode.BROKER_HEARTBEAT, self._heartbeat, BrokerHeartbeatRequestHeader
        )
        self._server = RemotingServer(self._dispatcher)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    async def start(self) -> None:
        port = self._server.port
        self._server = RemotingServer(self._dispatcher, port=port)
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop()

    def _register(self, request: Request[RegisterBrokerRequestHeader]) -> Response:
        if request.header.compressed:
            body = finished(
                RegisterBrokerBody.decode_compressed_steps(request.body, request.version)
            )
        else:
            body = RegisterBrokerBody.decode(request.body)
        self.registered.put_nowait((request.header, body))
        return self.answers.pop(0) if self.answers else Response()

    def _unregister(self, request: Request[UnRegisterBrokerRequestHeader]) -> Response:
        self.unregistered.put_nowait(request.header)
        return Response()

    def _heartbeat(self, request: Request[BrokerHeartbeatRequestHeader]) -> None:
        self.heartbeats.put_nowait(request.header)


class Client:
    """One raw connection to a broker; `notified` gets the groups of code 40."""

    def __init__(self) -> None:
        self.notified: asyncio.Queue[str] = asyncio.Queue()
        self.connection: Connection
        self._dispatcher = Dispatcher()
        self._dispatcher.register(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            self._notify,
            NotifyConsumerIdsChangedRequestHeader,
        )

    def _notify(self, request: Request[NotifyConsumerIdsChangedRequestHeader]) -> None:
        self.notified.put_nowait(request.header.consumer_group)

    async def open(self, address: str) -> None:
        self.connection = await Connection.open(address, dispatcher=self._dispatcher)

    async def close(self) -> None:
        await self.connection.close()

    async def request(
        self, code: int, header: Header | None = None, body: bytes = b"", **options: Any
    ) -> Command:
        # Long enough for a machine whose disk and processors are busy with other work.
        return await self.connection.request(code, header, body, **{"timeout": 30.0, **options})

    async def send(
        self,
        topic: str,
        body: bytes = b"body",
        *,
        code: int = RequestCode.SEND_MESSAGE_V2,
        properties: dict[str, str] | str | None = None,
        **fields: Any,
    ) -> Command:
        text = properties if isinstance(properties, str) else names.encode(properties or {})
        values: dict[str, Any] = {
            "producer_group": "PG",
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "queue_id": 0,
            "sys_flag": 0,
            "born_timestamp": 1_700_000_000_000,
            "flag": 0,
            **fields,
        }
        header = SendMessageRequestHeaderV2(topic=topic, properties=text, **values)
        return await self.request(code, header, body)

    async def pull(
        self,
        topic: str,
        offset: int = 0,
        *,
        code: int = RequestCode.PULL_MESSAGE,
        **fields: Any,
    ) -> Command:
        values: dict[str, Any] = {
            "consumer_group": "G",
            "queue_id": 0,
            "max_msg_nums": 32,
            "sys_flag": SUBSCRIPTION,
            "commit_offset": 0,
            "suspend_timeout_millis": 20_000,
            "sub_version": 0,
            "subscription": "*",
            **fields,
        }
        header = PullMessageRequestHeader(topic=topic, queue_offset=offset, **values)
        return await self.request(code, header, timeout=10.0)

    async def pulled(self, topic: str, offset: int = 0, **fields: Any) -> list[Record]:
        """The records a pull finds; the pull must find some."""
        answer = await self.pull(topic, offset, **fields)
        assert answer.code == 0, answer.remark
        return list(iter_records(answer.body))

    async def heartbeat(
        self,
        client_id: str = "c1",
        *subscriptions: SubscriptionData,
        group: str = "G",
        producer: str | None = None,
        message_model: str = "CLUSTERING",
        consume_type: str = "CONSUME_PASSIVELY",
        **fields: Any,
    ) -> Command:
        consumers = []
        if subscriptions or fields.get("without_sub"):
            consumers.append(
                ConsumerData(
                    group_name=group,
                    message_model=message_model,
                    consume_type=consume_type,
                    subscription_data_set=list(subscriptions),
                )
            )
        body = HeartbeatData(
            client_id=client_id,
            consumer_data_set=consumers,
            producer_data_set=[ProducerData(group_name=producer)] if producer else [],
            **fields,
        )
        return await self.request(RequestCode.HEART_BEAT, None, body.encode())


def subscription(topic: str, *tags: str, version: int = 1, **fields: Any) -> SubscriptionData:
    return SubscriptionData(
        topic=topic,
        sub_string=" || ".join(tags) or "*",
        tags_set=list(tags),
        code_set=[tag_hash(tag) for tag in tags],
        sub_version=version,
        **fields,
    )


def position(answer: Command) -> tuple[int | None, int | None, int | None]:
    """nextBeginOffset, minOffset, maxOffset of a pull's answer."""
    header = PullMessageResponseHeader.from_ext(answer.ext_fields)
    return header.next_begin_offset, header.min_offset, header.max_offset


async def fill(client: Client, topic: str, *tags: str, queue_id: int = 0) -> None:
    """Send messages m0, m1 … with these tags ("" for none)."""
    for n, tag in enumerate(tags):
        properties = {"TAGS": tag} if tag else {}
        answer = await client.send(topic, b"m%d" % n, properties=properties, queue_id=queue_id)
        assert answer.code == 0, answer.remark


@pytest.fixture
async def name_server() -> AsyncIterator[NameServerStub]:
    stub = NameServerStub()
    await stub.start()
    yield stub
    await stub.stop()


StartBroker = Callable[..., Awaitable[Broker]]


@pytest.fixture
async def start_broker(tmp_path: Path) -> AsyncIterator[StartBroker]:
    """`await start_broker(setting=value)`: a broker on a free port; stopped at the end.

    `options` are the other arguments of `Broker`. All brokers of a test share the store's
    directory, as restarts of one broker do.
    """
    brokers: list[Broker] = []

    async def start(*, options: Mapping[str, Any] | None = None, **settings: Any) -> Broker:
        settings.setdefault("broker_name", "b0")
        settings.setdefault("listen_port", 0)
        settings.setdefault("mapped_file_size_commit_log", 1 << 20)
        settings.setdefault("mapped_file_size_consume_queue", 20_000)
        config = BrokerConfig(store_path_root_dir=str(tmp_path / "store"), **settings)
        broker = Broker(config, **(options or {}))
        await broker.start()
        brokers.append(broker)
        return broker

    yield start
    for broker in brokers:
        await broker.stop()


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    return await start_broker()


@contextlib.asynccontextmanager
async def serving(dispatcher: Dispatcher, broker: Broker, **options: Any) -> AsyncIterator[Client]:
    """A client of another server in front of the broker's store, with the test's dispatcher."""
    server = RemotingServer(dispatcher, before_answers=broker.store.settle, **options)
    await server.start()
    client = Client()
    await client.open(f"127.0.0.1:{server.port}")
    try:
        yield client
    finally:
        await client.close()
        await server.stop()


Connect = Callable[[Broker], Awaitable[Client]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`await connect(broker)`: another connection to the broker."""
    clients: list[Client] = []

    async def open_client(broker: Broker) -> Client:
        client = Client()
        await client.open(broker.address)
        clients.append(client)
        return client

    yield open_client
    for client in clients:
        await client.close()


@pytest.fixture
async def client(broker: Broker, connect: Connect) -> Client:
    """A connection to the `broker` of the test."""
    return await connect(broker)


_topics = itertools.count(1)


@pytest.fixture
def topic() -> str:
    """A topic name of this test alone."""
    return f"Topic_{next(_topics)}"
