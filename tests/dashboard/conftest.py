"""A cluster, its dashboard, and a client that asks for pages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

import pytest

from pocketmq.client.admin import Admin
from pocketmq.client.producer.producer import Producer
from pocketmq.dashboard.config import DashboardConfig
from pocketmq.dashboard.server import Dashboard
from pocketmq.embedded import EmbeddedServer

if TYPE_CHECKING:
    import aiohttp

PASSWORD = "correct horse"


class Page:
    """What the dashboard answered."""

    def __init__(self, status: int, headers: Mapping[str, str], text: str) -> None:
        self.status = status
        self.headers = headers
        self.text = text

    @property
    def words(self) -> str:
        """The text that people see, in one line."""
        return " ".join(re.sub(r"<[^>]*>", " ", self.text).split())

    @property
    def token(self) -> str:
        """The token of its forms."""
        match = re.search(r'name="token" value="(\w+)"', self.text)
        assert match, "the page has no form"
        return match[1]


class Client:
    """Asks for pages as a browser does: with cookies, and forms with their tokens."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def get(self, path: str, **headers: str) -> Page:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.get(self.url + path, headers=named, allow_redirects=False) as got:
            return Page(got.status, got.headers, await got.text(errors="replace"))

    async def post(
        self, path: str, fields: Mapping[str, str], *, page: str | None = None, **headers: str
    ) -> Page:
        """Send a form; `page` is where it stands, for its token."""
        token = {} if page is None else {"token": (await self.get(page)).token}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.post(
            self.url + path, data={**token, **fields}, headers=named, allow_redirects=False
        ) as got:
            return Page(got.status, got.headers, await got.text())

    async def shows(self, path: str, text: str) -> None:
        """Return as soon as a page has a text: what the cluster does takes a moment."""
        async with asyncio.timeout(60):
            while text not in (page := await self.get(path)).words and text not in page.text:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def log_in(self, **fields: str) -> Page:
        return await self.post("/login", fields, page="/login")


def client_session() -> aiohttp.ClientSession:
    """What keeps cookies."""
    import aiohttp

    # The cookie jar of a browser takes cookies of IP addresses; that of aiohttp has to be told.
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer() as server:
        yield server


@pytest.fixture
async def dashboard(server: EmbeddedServer) -> AsyncIterator[Dashboard]:
    config = DashboardConfig(
        namesrv=server.namesrv, port=0, password=PASSWORD, period=0.2, read_timeout=3600.0
    )
    async with Dashboard(config) as dashboard:
        yield dashboard


@pytest.fixture
async def client(dashboard: Dashboard) -> AsyncIterator[Client]:
    async with client_session() as session:
        yield Client(session, dashboard.url)


@pytest.fixture
async def admin(server: EmbeddedServer) -> AsyncIterator[Admin]:
    async with Admin(namesrv=server.namesrv) as admin:
        yield admin


@pytest.fixture
async def producer(server: EmbeddedServer) -> AsyncIterator[Producer]:
    async with Producer("shop", namesrv=server.namesrv) as producer:
        yield producer
