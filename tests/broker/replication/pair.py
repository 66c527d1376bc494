"""A name server, a master and a slave in this process, each of which can be stopped and started."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig, BrokerRole
from pocketmq.broker.replication.frames import encode_report
from pocketmq.broker.replication.replication import Replication
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.tls.tls_config import TlsConfig
from tests.broker.conftest import Client
from tests.client.waiting import until

NAME = "pair"
FILE = 256 * 1024


def classic(broker: Broker) -> Replication:
    """The replication of a broker that is not in controller mode."""
    replication = broker.components.replication
    assert isinstance(replication, Replication)
    return replication


class Pair:
    """A broker group under `directory`; `master` and `slave` are there once they are started."""

    def __init__(self, directory: Path, tls: TlsConfig | None = None) -> None:
        self.directory = directory
        self._tls = tls
        self.name_server = NameServer(
            NamesrvConfig(
                listen_port=0,
                kv_config_path=str(directory / "kv.json"),
                config_store_path=str(directory / "namesrv.properties"),
            ),
            tls=tls,
        )
        self.brokers: dict[int, Broker] = {}
        self._ports: dict[int, int] = {}

    @property
    def namesrv(self) -> str:
        return self.name_server.address

    @property
    def master(self) -> Broker:
        return self.brokers[0]

    @property
    def slave(self) -> Broker:
        return self.brokers[1]

    async def start(self, broker_id: int, **settings: Any) -> Broker:
        role = BrokerRole.SLAVE if broker_id else BrokerRole.SYNC_MASTER
        values: dict[str, Any] = {
            "namesrv_addr": self.namesrv,
            "broker_name": NAME,
            "broker_id": broker_id,
            "broker_role": role,
            "listen_port": self._ports.get(broker_id, 0),
            "ha_listen_port": 0,
            "vip_channel_enable": False,
            "store_path_root_dir": str(self.directory / str(broker_id)),
            "mapped_file_size_commit_log": FILE,
            "mapped_file_size_consume_queue": 4_000,
            "slave_read_enable": True,
            "message_index_enable": False,
            "disk_max_used_space_ratio": 95,
        }
        broker = Broker(BrokerConfig(**values | settings), tls=self._tls)
        await broker.start()
        self.brokers[broker_id] = broker
        return broker

    async def stop(self, broker_id: int) -> None:
        await self.brokers.pop(broker_id).stop()

    async def connected(self, count: int = 1) -> None:
        """Until so many slaves have reported to the master."""
        server = classic(self.master).service.server
        await until(lambda: sum(ack >= 0 for ack in server.acks()) == count)

    async def copied(self) -> None:
        """Until the slave has entered everything that the master has stored."""
        end = self.master.store.commit_log.end
        await until(lambda: self.slave.store.commit_log.whole >= end)


@contextlib.asynccontextmanager
async def running(directory: Path, tls: TlsConfig | None = None) -> AsyncIterator[Pair]:
    """A pair of which only the name server is started; `tls` is that of all servers."""
    pair = Pair(directory, tls)
    await pair.name_server.start()
    try:
        yield pair
    finally:
        for broker_id in sorted(pair.brokers, reverse=True):
            await pair.stop(broker_id)
        await pair.name_server.stop()


@contextlib.asynccontextmanager
async def client_of(broker: Broker) -> AsyncIterator[Client]:
    """A raw connection."""
    client = Client()
    await client.open(broker.address)
    try:
        yield client
    finally:
        await client.close()


class Reporter:
    """What the master takes for a slave: a connection that reports offsets, and stores nothing."""

    def __init__(self, master: Broker, writer: asyncio.StreamWriter) -> None:
        self._server = classic(master).service.server
        self._writer = writer

    async def report(self, offset: int) -> None:
        """Until the master has the report."""
        self._writer.write(encode_report(offset))
        await until(lambda: offset in self._server.acks())


@contextlib.asynccontextmanager
async def reporter(master: Broker) -> AsyncIterator[Reporter]:
    port = classic(master).service.server.port
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Reporter(master, writer)
    finally:
        writer.close()
