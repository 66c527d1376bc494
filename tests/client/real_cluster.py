"""Our own name server and brokers in this process, each of which can be stopped and started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer

CLUSTER = "c0"


class RealCluster:
    """A name server and brokers by name, with their stores under `directory`.

    A restarted server has its old port and, for a broker, its old store. `settings` are those of
    the brokers, by the names of `BrokerConfig`.
    """

    def __init__(self, directory: Path, *brokers: str, **settings: Any) -> None:
        self._settings = settings
        self._directory = directory
        self._ports: dict[str, int] = {}
        self._names = brokers
        self.name_server: NameServer
        self.brokers: dict[str, Broker] = {}

    @property
    def namesrv(self) -> str:
        return self.name_server.address

    async def start(self) -> None:
        await self.start_name_server()
        for name in self._names:
            await self.start_broker(name)

    async def stop(self) -> None:
        for name in list(self.brokers):
            await self.stop_broker(name)
        await self.name_server.stop()

    async def start_name_server(self) -> None:
        self.name_server = NameServer(
            NamesrvConfig(
                listen_port=self._ports.get("namesrv", 0),
                kv_config_path=str(self._directory / "kvConfig.json"),
                config_store_path=str(self._directory / "namesrv.properties"),
            )
        )
        await self.name_server.start()
        self._ports["namesrv"] = self.name_server.port

    async def start_broker(self, name: str) -> Broker:
        broker = Broker(
            BrokerConfig(
                namesrv_addr=self.namesrv,
                broker_cluster_name=CLUSTER,
                broker_name=name,
                listen_port=self._ports.get(name, 0),
                vip_channel_enable=False,
                store_path_root_dir=str(self._directory / name),
                mapped_file_size_commit_log=4 * 1024 * 1024,
                mapped_file_size_consume_queue=20 * 1000,
                **self._settings,
            )
        )
        await broker.start()
        self._ports[name] = broker.port
        self.brokers[name] = broker
        return broker

    async def stop_broker(self, name: str) -> None:
        await self.brokers.pop(name).stop()
