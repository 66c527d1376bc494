"""Users of the cluster who may see it, and no more: no page fails, and none shows more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="pip install 'pocketmq[dashboard]'")
pytest.importorskip("jinja2", reason="pip install 'pocketmq[dashboard]'")

from pocketmq.auth.policies import Acl, Action, Decision, Entry, Resource
from pocketmq.auth.users import User
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.dashboard.config import DashboardConfig
from pocketmq.dashboard.server import Dashboard
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.message import Message
from tests.dashboard.conftest import Client, client_session
from tests.dashboard.test_login import ROOT, signing

__all__ = ["signing"]

VIEWER = User("viewer", "viewer-password-1")
BODY = "the-secret-body"
KEY = "the-secret-key"
PLACE = "topic=secrets&broker=broker-a&queue=0&offset=0"
TOPICS = ("secrets", "%RETRY%readers", "%DLQ%readers")


@pytest.fixture
async def message_id(signing: EmbeddedServer) -> AsyncIterator[str]:
    options: dict[str, Any] = {"namesrv": signing.namesrv, "credentials": ROOT}
    for topic in ("secrets", "%DLQ%readers"):
        signing.broker.tables.topics.create_if_absent(topic, 1)
    async with (
        Producer("pg", **options) as producer,
        PullConsumer("readers", start="begin", **options) as consumer,
    ):
        sent = await producer.send(Message("secrets", BODY.encode(), keys=[KEY]))
        await producer.send(Message("%DLQ%readers", BODY.encode(), keys=[KEY]))
        await consumer.subscribe("secrets")
        while not await consumer.poll(1, timeout=1):
            pass
        await consumer.commit()
        yield sent.offset_msg_id or ""


@pytest.fixture
async def viewer(signing: EmbeddedServer, message_id: str) -> AsyncIterator[Client]:
    assert signing.broker.auth is not None
    signing.broker.auth.tables.put_user(VIEWER)
    async with (
        Dashboard(DashboardConfig(namesrv=signing.namesrv, port=0)) as dashboard,
        client_session() as session,
    ):
        client = Client(session, dashboard.url)
        answer = await client.log_in(user=VIEWER.username, secret=VIEWER.password)
        assert answer.status == 303
        yield client


LOOK = frozenset({Action.GET, Action.LIST})


def grant(server: EmbeddedServer, *resources: str, readable: tuple[str, ...] = ()) -> None:
    """Let the viewer look at these resources, and read messages by some others."""
    assert server.broker.auth is not None
    entries = [Entry(Resource.parse(r), LOOK, Decision.ALLOW) for r in resources]
    entries += [Entry(Resource.parse(r), LOOK | {Action.SUB}, Decision.ALLOW) for r in readable]
    server.broker.auth.tables.put_acl(VIEWER.username, Acl(custom=tuple(entries)))


def pages(message_id: str) -> list[str]:
    return [
        "/",
        "/topics",
        "/topics/secrets",
        "/topics/secrets/tail",
        "/groups",
        "/groups/readers",
        "/messages",
        "/messages?topic=secrets",
        f"/messages?topic=secrets&key={KEY}",
        f"/messages?topic=secrets&id={message_id}",
        "/messages?topic=secrets&since=-1h",
        f"/message?{PLACE}",
        f"/message/body?{PLACE}",
        "/dead-letters",
        "/dead-letters/readers",
        "/clients",
    ]


@pytest.mark.parametrize(
    "grants",
    [
        (),
        ("Cluster:*",),
        ("Cluster:*", "Group:*"),
        ("Cluster:*", "Topic:other*"),
        ("Topic:other", "Group:others"),
    ],
    ids=lambda grants: " ".join(grants) or "nothing",
)
async def test_who_may_not_read_a_topic_sees_none_of_its_messages(
    signing: EmbeddedServer, viewer: Client, message_id: str, grants: tuple[str, ...]
) -> None:
    grant(signing, *grants)
    for path in pages(message_id):
        page = await viewer.get(path)
        assert page.status < 500, (path, page.words)
        assert BODY not in page.text, path
        assert "password-1" not in page.text, path


async def test_a_reader_sees_everything_and_changes_nothing(
    signing: EmbeddedServer, viewer: Client, message_id: str
) -> None:
    readable = ("Topic:secrets", "Topic:%DLQ%*", "Group:TOOLS_CONSUMER")
    grant(signing, "Cluster:*", "Topic:*", "Group:*", readable=readable)
    for path in pages(message_id):
        page = await viewer.get(path)
        assert page.status < 400, (path, page.words)
        assert "password-1" not in page.text, path
    assert BODY in (await viewer.get(f"/message?{PLACE}")).text
    letters = "/dead-letters/readers"
    before = {name: signing.broker.store.max_offset(name, 0) for name in TOPICS}
    answer = await viewer.post(f"{letters}/resend", {}, page=letters)
    assert answer.status == 403
    assert {name: signing.broker.store.max_offset(name, 0) for name in TOPICS} == before
