"""A server with a proxy in it, and its topics."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.embedded import EmbeddedServer
from tests.proxy.grpc_client import GrpcClient

#: Topics by the types that they take.
TOPICS = {
    "Normal": "NORMAL",
    "Fifo": "FIFO",
    "Delay": "DELAY",
    "Transaction": "TRANSACTION",
    "Priority": "PRIORITY",
}


async def create_topics(namesrv: str) -> None:
    async with Admin(namesrv=namesrv) as admin:
        for topic, kind in TOPICS.items():
            await admin.create_topic(topic, queues=2, attributes={"message.type": kind})


def grpc_port(server: EmbeddedServer) -> int:
    assert server.proxy is not None
    return server.proxy.port


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    properties = {"enablePropertyFilter": "true", "recallMessageEnable": "true"}
    async with EmbeddedServer(grpc_port=0, properties=properties) as server:
        await create_topics(server.namesrv)
        yield server


@pytest.fixture
async def client(server: EmbeddedServer) -> AsyncIterator[GrpcClient]:
    async with GrpcClient(grpc_port(server)) as client:
        yield client
