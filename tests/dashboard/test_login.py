"""Logging in: with a password, and as users of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest.importorskip("aiohttp", reason="pip install 'pocketmq[dashboard]'")
pytest.importorskip("jinja2", reason="pip install 'pocketmq[dashboard]'")

from pocketmq.client.admin import Admin
from pocketmq.client.credentials import Credentials
from pocketmq.dashboard.config import DashboardConfig
from pocketmq.dashboard.server import Dashboard
from pocketmq.embedded import EmbeddedServer
from pocketmq.remoting.headers.auth import UserRequestHeader
from tests.dashboard.conftest import PASSWORD, Client, client_session

ROOT = Credentials("root", "root-password-1")


async def test_a_session_by_password(client: Client) -> None:
    assert "Read-only until you log in" in (await client.get("/")).words
    wrong = await client.log_in(secret="guess")
    assert wrong.status == 403
    assert "Wrong password." in wrong.words
    right = await client.log_in(secret=PASSWORD, to="/topics?q=a")
    assert right.status == 303
    assert right.headers["Location"] == "/topics?q=a"
    cookie = right.headers["Set-Cookie"]
    for word in ("HttpOnly", "SameSite=Strict", "Path=/"):
        assert word in cookie
    assert "Secure" not in cookie  # there is no TLS
    page = await client.get("/topics")
    assert "Log out" in page.words
    assert (await client.post("/logout", {}, page="/topics")).status == 303
    assert "Log out" not in (await client.get("/topics")).words


async def test_behind_a_proxy_with_tls_the_cookie_is_secure(client: Client) -> None:
    page = await client.get("/login", X_Forwarded_Proto="https")
    assert "Secure" in page.headers["Set-Cookie"]


async def test_the_session_is_another_one_after_the_login(client: Client) -> None:
    before = (await client.get("/login")).headers["Set-Cookie"].partition(";")[0]
    after = (await client.log_in(secret=PASSWORD)).headers["Set-Cookie"].partition(";")[0]
    assert before != after


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "x"])
async def test_a_login_leads_to_pages_of_the_dashboard_only(client: Client, to: str) -> None:
    assert (await client.log_in(secret=PASSWORD, to=to)).headers["Location"] == "/"


async def test_forged_forms_are_refused(client: Client) -> None:
    assert (await client.post("/login", {"secret": PASSWORD})).status == 403
    wrong = await client.post("/login", {"secret": PASSWORD, "token": "0" * 64})
    assert wrong.status == 403
    assert "The form is out of date" in wrong.words
    elsewhere = {"Origin": "http://evil.example"}
    forged = await client.post("/login", {"secret": PASSWORD}, page="/login", **elsewhere)
    assert forged.status == 403
    cross = await client.post(
        "/login", {"secret": PASSWORD}, page="/login", Sec_Fetch_Site="cross-site"
    )
    assert cross.status == 403
    assert (await client.log_in(secret=PASSWORD)).status == 303
    assert (await client.post("/logout", {})).status == 403
    assert "Log out" in (await client.get("/")).words


async def test_guesses_are_limited(client: Client) -> None:
    for _ in range(5):
        assert (await client.log_in(secret="guess")).status == 403
    limited = await client.log_in(secret=PASSWORD)
    assert limited.status == 429
    assert int(limited.headers["Retry-After"]) > 0
    assert "Too many attempts" in limited.words


async def test_a_large_form_is_refused(client: Client) -> None:
    assert (await client.post("/login", {"secret": "x" * 200_000}, page="/login")).status == 413


@pytest.fixture
async def signing() -> AsyncIterator[EmbeddedServer]:
    """A cluster with users: root, and nobody, who may do nothing."""
    properties = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"root-password-1"}',
    }
    async with EmbeddedServer(properties=properties) as server:
        yield server


@pytest.fixture
async def users(signing: EmbeddedServer) -> AsyncIterator[Client]:
    config = DashboardConfig(namesrv=signing.namesrv, port=0)
    async with Dashboard(config) as dashboard, client_session() as session:
        yield Client(session, dashboard.url)


async def create_user(server: EmbeddedServer, name: str) -> None:
    from pocketmq.auth.service import signer_of
    from pocketmq.auth.users import User
    from pocketmq.remoting.connection import Connection

    root = User(ROOT.access_key, ROOT.secret_key)
    connection = await Connection.open(server.broker.address, sign=signer_of(root))
    body = b'{"password":"%b-password-1"}' % name.encode()
    answer = await connection.request(3001, UserRequestHeader(username=name), body)
    assert answer.code == 0, answer.remark
    await connection.close()


async def test_users_of_the_cluster(users: Client, signing: EmbeddedServer) -> None:
    async with Admin(namesrv=signing.namesrv, credentials=ROOT) as admin:
        await admin.create_topic("orders", queues=1)
    await create_user(signing, "nobody")
    visitor = await users.get("/topics")
    assert visitor.status == 403
    assert "No permission" in visitor.words
    assert "orders" not in visitor.words
    assert "Log in as a user of the cluster" in (await users.get("/login")).words

    wrong = await users.log_in(user="root", secret="guess")
    assert wrong.status == 403
    assert "Wrong user or secret key." in wrong.words
    assert (await users.log_in(user="stranger", secret="guess-1")).status == 403
    assert (await users.log_in(user="", secret="")).status == 403

    assert (await users.log_in(user="root", secret="root-password-1")).status == 303
    page = await users.get("/topics")
    assert page.status == 200
    assert "orders" in page.words
    assert "root Log out" in page.words
    await users.post("/logout", {}, page="/topics")

    # This user may do nothing, which is not the same as a wrong secret key.
    assert (await users.log_in(user="nobody", secret="nobody-password-1")).status == 303
    page = await users.get("/topics")
    assert page.status == 403
    assert "You are logged in as nobody" in page.words
    assert "orders" not in page.words


async def test_the_user_of_the_dashboard_is_what_visitors_see(signing: EmbeddedServer) -> None:
    async with Admin(namesrv=signing.namesrv, credentials=ROOT) as admin:
        await admin.create_topic("orders", queues=1)
    config = DashboardConfig(namesrv=signing.namesrv, port=0, credentials=ROOT)
    async with Dashboard(config) as dashboard, client_session() as session:
        client = Client(session, dashboard.url)
        page = await client.get("/topics")
        assert "orders" in page.words
        assert "Read-only until you log in" in page.words
