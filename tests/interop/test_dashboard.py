"""The dashboard over servers of both makes: its pages and its counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("aiohttp", reason="pip install 'pocketmq[dashboard]'")
pytest.importorskip("jinja2", reason="pip install 'pocketmq[dashboard]'")

from pocketmq.client.admin import Admin
from pocketmq.client.producer.producer import Producer
from pocketmq.dashboard.config import DashboardConfig
from pocketmq.dashboard.server import Dashboard
from pocketmq.message.message import Message
from tests.dashboard.conftest import PASSWORD, Client, client_session
from tests.dashboard.dead_letters import make_dead_letters
from tests.interop.harness import official
from tests.interop.harness.cluster import BROKER_NAME, Cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    config = DashboardConfig(namesrv=cluster.address, port=0, password=PASSWORD, period=0.5)
    async with Dashboard(config) as dashboard, client_session() as session:
        yield Client(session, dashboard.url)


async def test_pages_render_and_counts_agree(client: Client, cluster: Cluster, topic: str) -> None:
    group = f"shown_{topic}"
    async with (
        Admin(namesrv=cluster.address) as admin,
        Producer(f"producer_{topic}", namesrv=cluster.address) as producer,
    ):
        bodies = [b'{"n":%d}' % n for n in range(3)]
        await make_dead_letters(admin, producer, cluster.address, group, topic, bodies)
        sent = [await producer.send(Message(topic, b"more", keys=["k-9"])) for _ in range(2)]

        cluster_page = await client.get("/")
        assert f"{BROKER_NAME} " in cluster_page.words
        assert (official.VERSION if cluster.make == "official" else "5.5.0") in cluster_page.words
        assert "does not answer" not in cluster_page.words
        await client.shows(f"/topics?q={topic}", f"{topic} 5 ")
        topic_page = await client.get(f"/topics/{topic}")
        assert "Stored messages 5 " in topic_page.words
        assert f"{group} 2" in topic_page.words
        await client.shows(f"/groups/{group}", "Lag 2 ")
        await client.shows(f"/groups/{group}", "; lag now 2.0")
        assert f"{producer.client_id} producer" in (await client.get(f"/clients?q={topic}")).words

        found = await client.get(f"/messages?topic={topic}")
        assert "5 messages" in found.words
        await client.shows(f"/messages?topic={topic}&by=key&value=k-9", "2 messages")
        await client.shows(f"/messages?topic={topic}&by=id&value={sent[0].msg_id}", "1 message")
        assert (
            "5 messages" in (await client.get(f"/messages?topic={topic}&by=time&value=-10m")).words
        )

        path = f"/dead-letters/{group}"
        assert "Left to resend 3 Stored 3" in (await client.get(path)).words
        assert (await client.log_in(secret=PASSWORD)).status == 303
        await client.post(f"{path}/resend", {}, page=path)
        assert "Left to resend 0 Stored 3" in (await client.get(path)).words
        await client.shows(f"/groups/{group}", "Lag 5 ")

        async with (
            asyncio.timeout(60),
            client.session.get(f"{client.url}/topics/{topic}/tail/events") as events,
        ):
            assert await events.content.readline() == b"event: open\n"
            await producer.send(Message(topic, b"tailed"))
            async for line in events.content:
                if b"tailed" in line:
                    break
