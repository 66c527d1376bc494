"""Two brokers with enforced TLS and metrics are restarted in turn, by their health alone."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq import Message, Producer
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.client.admin import Admin
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.tls.tls_config import TlsConfig, TlsMode
from tests.certificates import Authority
from tests.interop.harness.ports import free_port
from tests.monitoring.pages import get, scrape

TOPIC = "orders"


class Rolling:
    """A cluster; `context` is that of its clients."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory)
        own = authority.sign("server")
        self.tls = TlsConfig(
            mode=TlsMode.ENFORCING,
            cert_path=str(own.chain),
            key_path=str(own.key),
            enable=True,
            client_trust_cert_path=str(authority.certificate.chain),
            client_auth_server=True,
        )
        self.context = ssl.create_default_context(cafile=str(authority.certificate.chain))
        self._directory = directory
        self.brokers: dict[str, Broker] = {}

    async def start_name_server(self, stack: contextlib.AsyncExitStack) -> str:
        config = NamesrvConfig(
            listen_port=0, kv_config_path=str(self._directory / "kv.json"), health_port=0
        )
        server = await stack.enter_async_context(NameServer(config, tls=self.tls))
        return server.address

    async def start(self, name: str, namesrv: str, port: int, metrics_port: int) -> None:
        config = BrokerConfig(
            store_path_root_dir=str(self._directory / name),
            broker_name=name,
            listen_port=port,
            vip_channel_enable=False,
            namesrv_addr=namesrv,
            mapped_file_size_commit_log=1 << 22,
            metrics_exporter_type="PROM",
            metrics_prom_exporter_port=metrics_port,
        )
        broker = self.brokers[name] = Broker(config, tls=self.tls)
        await broker.start()

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.stop()


@pytest.fixture
async def rolling(tmp_path: Path) -> AsyncIterator[Rolling]:
    made = Rolling(tmp_path)
    yield made
    await made.stop()


async def test_nothing_is_lost_and_health_tells_when_to_go_on(rolling: Rolling) -> None:
    pytest.importorskip("prometheus_client", reason="pip install 'pocketmq[metrics]'")
    ports = {name: (free_port(), free_port()) for name in ("a", "b")}
    async with contextlib.AsyncExitStack() as stack:
        namesrv = await rolling.start_name_server(stack)
        for name in ports:
            await rolling.start(name, namesrv, *ports[name])
        async with Admin(namesrv=namesrv, tls=rolling.context) as admin:
            await admin.create_topic(TOPIC, queues=2)
        acknowledged = 0
        reached: set[str] = set()
        over = asyncio.Event()

        async def send() -> None:
            nonlocal acknowledged
            async with Producer("shop", namesrv=namesrv, tls=rolling.context) as producer:
                while not over.is_set():
                    result = await producer.send(Message(TOPIC, b"%d" % acknowledged))
                    acknowledged += 1
                    reached.add(result.queue.broker_name)

        sending = asyncio.ensure_future(send())
        for name, broker in list(rolling.brokers.items()):
            metrics_port = ports[name][1]
            before = acknowledged
            stopping = asyncio.ensure_future(broker.stop())
            await asyncio.sleep(0)
            draining = await get(metrics_port, "/ready")
            # The page is there until the end of the stop, and says no all the time.
            assert draining.status == 503
            assert draining.text == "the server is stopping\n"
            await stopping
            await rolling.start(name, namesrv, *ports[name])
            assert (await get(metrics_port, "/ready")).text == "ok\n"
            # The producer comes back to it; until then, sends go to the other one.
            reached.clear()
            async with asyncio.timeout(60):
                while acknowledged < before + 20 or name not in reached:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        over.set()
        await sending
        stored = sum(
            broker.store.max_offset(TOPIC, queue_id)
            for broker in rolling.brokers.values()
            for queue_id in broker.store.queues.get(TOPIC, {})
        )
        # A send whose answer was lost with a connection was sent again.
        assert stored >= acknowledged > 40
        counted = [await scrape(metrics) for _, metrics in ports.values()]
        assert all(each.sum("rocketmq_messages_in_total", topic=TOPIC) > 0 for each in counted)
