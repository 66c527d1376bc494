"""A name server in this process, brokers as processes of their own, and a cluster proxy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pocketmq.client.admin.admin import Admin
from pocketmq.cluster_proxy import ClusterProxy
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.proxy.config import ProxyConfig
from tests.cli.running import Running
from tests.proxy.conftest import TOPICS


class ProxiedCluster:
    """The parts; `brokers` by name."""

    def __init__(
        self, name_server: NameServer, proxy: ClusterProxy, brokers: dict[str, Running]
    ) -> None:
        self.name_server = name_server
        self.namesrv = name_server.address
        self.proxy = proxy
        self.brokers = brokers

    def freeze(self, name: str) -> None:
        os.kill(self.brokers[name].process.pid, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        os.kill(self.brokers[name].process.pid, signal.SIGCONT)


@asynccontextmanager
async def proxied_cluster(
    directory: Path, count: int, **options: Any
) -> AsyncIterator[ProxiedCluster]:
    async with contextlib.AsyncExitStack() as stack:
        config = NamesrvConfig(
            listen_port=0,
            kv_config_path=str(directory / "kv.json"),
            config_store_path=str(directory / "namesrv.properties"),
        )
        name_server = await stack.enter_async_context(NameServer(config))
        namesrv = f"127.0.0.1:{name_server.port}"
        brokers = {}
        for number in range(count):
            name = f"broker-{number}"
            running = stack.enter_context(
                Running(
                    "broker", "-n", namesrv, "--store", directory / name, "--listen-port", "0",
                    "--set", f"brokerName={name}", "--set", "mappedFileSizeCommitLog=16777216",
                )
            )  # fmt: skip
            brokers[name] = running
        for running in brokers.values():
            await asyncio.to_thread(running.wait_for, "listening on")
        async with Admin(namesrv=namesrv) as admin:
            for topic, kind in TOPICS.items():
                await admin.create_topic(topic, queues=2, attributes={"message.type": kind})
        proxy = ClusterProxy(ProxyConfig(grpc_server_port=0, namesrv_addr=namesrv), **options)
        await stack.enter_async_context(proxy)
        yield ProxiedCluster(name_server, proxy, brokers)
