"""Servers go on whatever ends one of their background tasks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from pocketmq import Admin, Message, Producer, PullConsumer
from pocketmq.cluster_proxy import ClusterProxy
from pocketmq.embedded import EmbeddedServer
from pocketmq.proxy.config import ProxyConfig
from tests.broker.controller import group
from tests.broker.replication import pair
from tests.client.real_cluster import RealCluster
from tests.client.waiting import until
from tests.supervised import Supervised


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


@contextlib.asynccontextmanager
async def embedded(directory: Path) -> AsyncIterator[str]:
    """A name server, a broker and a proxy."""
    async with EmbeddedServer(store=directory, grpc_port=0) as server:
        yield server.namesrv


@contextlib.asynccontextmanager
async def replicated(directory: Path) -> AsyncIterator[str]:
    """A master and its slave."""
    async with pair.running(directory) as servers:
        await servers.start(0)
        await servers.start(1)
        await servers.connected()
        yield servers.namesrv


@contextlib.asynccontextmanager
async def elected(directory: Path) -> AsyncIterator[str]:
    """The members of a controller group."""
    async with group.running(directory) as servers:
        await servers.start("a")
        await servers.leads("a")
        await servers.start("b")
        await servers.in_sync(2)
        yield servers.namesrv


@contextlib.asynccontextmanager
async def proxied(directory: Path) -> AsyncIterator[str]:
    """A proxy that reads the users of its cluster."""
    config = ProxyConfig(
        grpc_server_port=0,
        authentication_enabled=True,
        inner_client_authentication_credentials='{"accessKey":"inner","secretKey":"secret"}',
    )
    servers = RealCluster(directory, "b0")
    await servers.start()
    config.namesrv_addr = servers.namesrv
    async with ClusterProxy(config):
        yield servers.namesrv
    await servers.stop()


def logged(caplog: pytest.LogCaptureFixture) -> str:
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    return "".join(f"{record.getMessage()} {record.exc_info}\n" for record in errors)


async def serves(namesrv: str, body: bytes) -> None:
    """A message is sent, and pulled."""
    async with (
        Producer("P", namesrv=namesrv) as producer,
        PullConsumer("G", namesrv=namesrv) as consumer,
    ):
        sent = await producer.send(Message("T", body))
        await consumer.assign([sent.queue])
        await consumer.seek(sent.queue_offset, queue=sent.queue)
        async with asyncio.timeout(30):
            while not (messages := await consumer.poll()):
                pass
        assert messages[0].body == body


@pytest.mark.parametrize(
    "error", [None, KeyError("planted"), GeneratorExit("planted")], ids=lambda error: repr(error)
)
@pytest.mark.parametrize("servers", [embedded, replicated, elected, proxied])
async def test_each_task_of_a_server_runs_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    servers: Callable[[Path], AbstractAsyncContextManager[str]],
    error: BaseException | None,
) -> None:
    before = asyncio.all_tasks()
    supervised = Supervised(monkeypatch)
    async with servers(tmp_path) as namesrv:
        async with Admin(namesrv=namesrv) as admin:
            await admin.create_topic("T", queues=1)
        await serves(namesrv, b"before")
        # Whatever runs on without a client is supervised; requests under way end by themselves.
        await until(lambda: asyncio.all_tasks() <= before | supervised.running, 30.0)
        names = supervised.names()
        assert len(names) > 5
        for name in sorted(names):
            caplog.clear()
            supervised.end(name, error)
            cause = f"{name} was cancelled" if error is None else repr(error)
            # Work that survives an error logs it as well.
            await until(lambda cause=cause: cause in logged(caplog))  # type: ignore[misc]
            await until(lambda: supervised.names() >= names)
            await serves(namesrv, name.encode())
    await until(lambda: asyncio.all_tasks() <= before | {asyncio.current_task()})
