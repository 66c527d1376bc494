"""The rolling restart of docs/servers.md: processes, TLS enforced, metrics on, clients at work."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import urllib.error
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pocketmq import Message, Producer, PushConsumer
from pocketmq.client.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.first_bytes import PROTOCOL_VERSION_ALERT
from pocketmq.remoting.frames.frame import encode_command
from pocketmq.remoting.serving.service import ExitCode
from tests.certificates import Authority
from tests.client.waiting import until
from tests.interop.harness import ours
from tests.interop.harness.official import Server
from tests.interop.harness.ports import free_port
from tests.monitoring.pages import get, scrape

TOPIC, GROUP = "orders", "billing"
NAMES = ("a", "b")
QUEUES = 2
#: Sends between two restarts, and before the first and after the last.
BETWEEN = 60
PATIENCE = 60.0


class Acknowledged(NamedTuple):
    """A send that a broker has acknowledged."""

    body: bytes
    broker: str


class Cluster:
    """A name server and two brokers; `context` is that of their clients."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory / "tls")
        own = authority.sign("server")
        self.context = ssl.create_default_context(cafile=str(authority.certificate.chain))
        self._directory = directory
        self._tls = {
            "tls.server.mode": "enforcing",
            "tls.server.certPath": own.chain,
            "tls.server.keyPath": own.key,
            "tls.enable": True,
            "tls.client.trustCertPath": authority.certificate.chain,
        }
        self._ports = {name: (free_port(), free_port()) for name in NAMES}
        self._servers: dict[str, Server] = {}
        self._namesrv: Server | None = None

    @property
    def namesrv(self) -> str:
        assert self._namesrv is not None
        return self._namesrv.address

    def metrics_port(self, name: str) -> int:
        return self._ports[name][1]

    async def start(self) -> None:
        self._namesrv = await asyncio.to_thread(
            ours.start_name_server, self._directory, settings=self._tls
        )
        await asyncio.gather(*(self.start_broker(name) for name in NAMES))

    async def start_broker(self, name: str) -> None:
        """Start a broker, and return when its page says that it is ready."""
        port, metrics_port = self._ports[name]
        settings = {
            **self._tls,
            "vipChannelEnable": False,
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": metrics_port,
            "mappedFileSizeCommitLog": 4 << 20,
        }
        self._servers[name] = ours.spawn_broker(
            self._directory, self.namesrv, name=name, port=port, settings=settings
        )
        async with asyncio.timeout(PATIENCE):
            while not await self._is_ready(name):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def _is_ready(self, name: str) -> bool:
        assert self._servers[name].process.running, self._servers[name].process.tail()
        try:
            return (await get(self.metrics_port(name), "/ready")).status == 200
        except urllib.error.URLError:  # it does not listen yet
            return False

    async def stop_broker(self, name: str) -> int:
        return await asyncio.to_thread(self._servers[name].process.terminate, PATIENCE)

    async def refuses_plain_connections(self) -> bool:
        """Whether each server answers what is not a handshake with an alert, and closes."""
        closed = []
        for server in (self._namesrv, *self._servers.values()):
            assert server is not None
            host, _, port = server.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(encode_command(RequestCode.GET_BROKER_CLUSTER_INFO, 1))
            async with asyncio.timeout(PATIENCE):
                closed.append(await reader.read() == PROTOCOL_VERSION_ALERT)
            writer.close()
        return all(closed)

    def kill(self) -> None:
        for server in (self._namesrv, *self._servers.values()):
            if server is not None:
                server.process.kill()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    pytest.importorskip("prometheus_client", reason="pip install 'pocketmq[metrics]'")
    made = Cluster(tmp_path)
    try:
        await made.start()
        yield made
    finally:
        made.kill()


class Traffic:
    """A producer that sends all the time, and a consumer; a send that fails ends the test."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.acknowledged: list[Acknowledged] = []
        self.handled: set[bytes] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        cluster = self._cluster
        consumer = PushConsumer(GROUP, namesrv=cluster.namesrv, tls=cluster.context, start="begin")

        @consumer.on(TOPIC)
        async def handle(message: ConsumedMessage) -> None:
            self.handled.add(message.body)

        async with consumer, Producer("shop", namesrv=cluster.namesrv, tls=cluster.context) as shop:
            sending = asyncio.ensure_future(self._send(shop))
            try:
                yield
                assert not sending.done(), sending.exception()
            finally:
                sending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await sending
            bodies = {each.body for each in self.acknowledged}
            await until(lambda: self.handled >= bodies, PATIENCE)

    async def _send(self, shop: Producer) -> None:
        for number in itertools.count():
            body = b"%d" % number
            result = await shop.send(Message(TOPIC, body))
            self.acknowledged.append(Acknowledged(body, result.queue.broker_name))
            await asyncio.sleep(0.002)

    async def some(self) -> None:
        """Wait until some more sends are acknowledged."""
        wanted = len(self.acknowledged) + BETWEEN
        await until(lambda: len(self.acknowledged) >= wanted, PATIENCE)

    async def reaches(self, broker: str, begin: int = 0) -> None:
        """Wait until a broker has acknowledged one of these sends."""
        await until(lambda: self.of(broker, begin) > 0, PATIENCE)

    def of(self, broker: str, begin: int = 0) -> int:
        """How many sends a broker has acknowledged, from the one of number `begin` on."""
        return sum(each.broker == broker for each in self.acknowledged[begin:])


async def test_brokers_are_restarted_in_turn_and_nothing_is_lost(cluster: Cluster) -> None:
    assert await cluster.refuses_plain_connections()
    async with Admin(namesrv=cluster.namesrv, tls=cluster.context) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
        traffic = Traffic(cluster)
        before: dict[str, int] = {}
        since: dict[str, int] = {}
        async with traffic.running():
            await traffic.some()
            for name in NAMES:
                await traffic.reaches(name)
                known = traffic.of(name)
                counted = (await scrape(cluster.metrics_port(name))).sum(
                    "rocketmq_messages_in_total", topic=TOPIC
                )
                assert counted >= known > 0
                before[name] = traffic.of(name)
                assert await cluster.stop_broker(name) == ExitCode.OK
                await cluster.start_broker(name)
                since[name] = len(traffic.acknowledged)
                await traffic.some()
                # Producers come back to it.
                await traffic.reaches(name, since[name])
        await counters_are_plausible(cluster, admin, traffic, before, since)


async def counters_are_plausible(
    cluster: Cluster,
    admin: Admin,
    traffic: Traffic,
    before: dict[str, int],
    since: dict[str, int],
) -> None:
    """What each broker has counted since its restart lies between what is known to have come after
    it, and all that it has without what is known to have come before."""
    stats = await admin.topic_stats(TOPIC)
    for name in NAMES:
        stored = sum(
            offsets.max_offset
            for queue, offsets in stats.offset_table.items()
            if queue.broker_name == name
        )
        series = await scrape(cluster.metrics_port(name))
        counted = series.sum("rocketmq_messages_in_total", topic=TOPIC)
        assert traffic.of(name, since[name]) <= counted <= stored - before[name]
        requests = series.sum(
            "rocketmq_rpc_latency_milliseconds_count", request_code="send_message_v2"
        )
        assert requests >= counted
        assert series.sum("rocketmq_messages_out_total", topic=TOPIC, consumer_group=GROUP) > 0
        # A send whose answer was lost with a connection was sent again.
        assert stored >= traffic.of(name)
