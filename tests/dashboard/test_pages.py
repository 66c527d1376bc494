"""The pages as a client gets them, without a browser."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="pip install 'pocketmq[dashboard]'")
pytest.importorskip("jinja2", reason="pip install 'pocketmq[dashboard]'")

import aiohttp

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.dashboard.access import MOST_DECOMPRESSED
from pocketmq.dashboard.app import MOST_CONNECTIONS
from pocketmq.dashboard.config import DashboardConfig
from pocketmq.dashboard.guard import HEADERS
from pocketmq.dashboard.pages import MOST_DOWNLOADS
from pocketmq.dashboard.server import Dashboard
from pocketmq.dashboard.views.dead_letters import dead_letter_view
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.message import Message, MessageQueue
from tests.broker.replication.pair import Pair, classic
from tests.dashboard.conftest import PASSWORD, Client, Page, client_session
from tests.dashboard.dead_letters import TIMEOUT, bury, make_dead_letters

PAGES = ("/", "/topics", "/groups", "/messages", "/dead-letters", "/clients", "/login")
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def assert_loads_nothing_from_elsewhere(page: Page) -> None:
    for address in re.findall(r'(?:src|href|action|data-events)="([^"]*)"', page.text):
        assert address.startswith(("/", "#")), address
        assert not address.startswith("//"), address
    assert not re.search(r"<style|\sstyle=|\son\w+=\"|<script(?! src=)|javascript:", page.text)
    assert "http://" not in page.text
    assert "https://" not in page.text


async def place_of(client: Client, listing: str) -> str:
    """The address of the first message in a list."""
    page = await client.get(listing)
    match = re.search(r'href="(/message\?[^"]+)"', page.text)
    assert match, page.words
    return match[1].replace("&amp;", "&")


async def test_an_empty_cluster(client: Client) -> None:
    for path in PAGES:
        page = await client.get(path)
        assert page.status == 200, path
        assert_loads_nothing_from_elsewhere(page)
    assert "There is no topic yet" in (await client.get("/topics")).words
    assert "There is no consumer group yet" in (await client.get("/groups")).words
    assert "There are no dead letters" in (await client.get("/dead-letters")).words
    assert "No client is connected" in (await client.get("/clients")).words
    assert "Brokers 1 " in (await client.get("/")).words


async def test_a_master_says_how_far_its_replicas_are(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(pair.name_server)
        for broker_id in (0, 1):
            await pair.start(broker_id)
            stack.push_async_callback(pair.stop, broker_id)
        await pair.connected()
        config = DashboardConfig(namesrv=pair.namesrv, port=0, period=0.2)
        dashboard = await stack.enter_async_context(Dashboard(config))
        client = Client(await stack.enter_async_context(client_session()), dashboard.url)
        words = (await client.get("/")).words
        assert "pair master 127.0.0.1" in words
        assert "1 replica, 1 in sync, 0 B behind" in words
        assert "pair replica 1 127.0.0.1" in words
        copying = classic(pair.slave).client
        assert copying is not None
        await copying.stop()
        await client.shows("/", "0 of 1 replicas connected")


async def test_every_answer_has_the_headers(client: Client) -> None:
    for path in (*PAGES, "/nothing", "/topics/nothing", "/static/app.js", "/static/icon.svg"):
        page = await client.get(path)
        for name, value in HEADERS.items():
            assert page.headers[name] == value, (path, name)
        assert "Server" not in page.headers
    refused = await client.get("/", Host="evil.example")
    assert refused.status == 421
    assert refused.headers["X-Frame-Options"] == "DENY"


async def test_its_own_files_ask_nobody_else(client: Client) -> None:
    for name in ("app.js", "app.css"):
        text = (await client.get(f"/static/{name}")).text
        assert not re.search(r"https?://|@import|url\(|innerHTML|eval\(|document\.write", text)


async def test_topics_groups_and_clients(
    client: Client, admin: Admin, producer: Producer, server: EmbeddedServer
) -> None:
    await admin.create_topic("orders", queues=2, attributes={"message.type": "NORMAL"})
    for number in range(6):
        await producer.send(Message("orders", b"%d" % number))
    async with PullConsumer(
        "billing", namesrv=server.namesrv, start="begin", auto_commit=False
    ) as consumer:
        await consumer.subscribe("orders", "paid || open")
        await admin.set_group_offset("billing", MessageQueue("orders", "broker-a", 0), 1)
        await admin.set_group_offset("billing", MessageQueue("orders", "broker-a", 1), 0)
        topics = await client.get("/topics")
        assert re.search(r"orders 6 [\d.–]+ 2 ", topics.words)
        topic = await client.get("/topics/orders")
        assert "Stored messages 6 " in topic.words
        assert "broker-a/0 0 3 3 " in topic.words
        assert "billing 5" in topic.words
        assert "read and write message.type=NORMAL" in topic.words
        groups = await client.get("/groups")
        assert "billing 1 " in groups.words
        group = await client.get("/groups/billing")
        assert "Lag 5 " in group.words
        assert "paid || open" in group.words
        clients = await client.get("/clients")
        assert consumer.client_id in clients.words
        assert f"{producer.client_id} producer shop" in clients.words
        assert "python 5.5.0" in clients.words
        assert "No client matches" in (await client.get("/clients?q=nobody")).words
        for page in (topics, topic, groups, group, clients):
            assert_loads_nothing_from_elsewhere(page)
    assert "No topic matches “zz”" in (await client.get("/topics?q=zz")).words
    assert "TBW102" in (await client.get("/topics?all=1")).words
    assert "TOOLS_CONSUMER" in (await client.get("/groups?all=1")).words


async def test_the_history_is_sampled_and_drawn(
    client: Client, admin: Admin, producer: Producer
) -> None:
    await admin.create_topic("orders", queues=1)
    await admin.create_group("billing")
    await producer.send_batch([Message("orders", b"%d" % n) for n in range(40)])
    await admin.set_group_offset("billing", MessageQueue("orders", "broker-a", 0), 10)
    await client.shows("/", "Lag of all groups 30 ")
    for span in ("1h", "24h"):
        await client.shows(f"/groups/billing?span={span}", "; lag now 30.0")
    page = await client.get("/groups/billing")
    assert page.text.count('<svg class="chart') == 4  # two, each for wide windows and for phones


async def test_lists_have_pages(client: Client, admin: Admin) -> None:
    for number in range(51):
        await admin.create_topic(f"topic-{number:02}", queues=1)
    first = await client.get("/topics")
    assert "Page 1 of 2" in first.words
    assert "topic-49" in first.words
    assert "topic-50" not in first.words
    assert "topic-50" in (await client.get("/topics?page=2")).words
    for page in ("0", "99", "x", "-1", "9" * 40):
        assert (await client.get(f"/topics?page={page}")).status == 200


async def test_messages_are_found(client: Client, admin: Admin, producer: Producer) -> None:
    await admin.create_topic("orders", queues=2)
    sent = [
        await producer.send(
            Message("orders", json.dumps({"id": n}).encode(), keys=[f"o-{n}"], tags="paid")
        )
        for n in range(5)
    ]
    newest = await client.get("/messages?topic=orders")
    assert re.findall(r'"id": (\d)', newest.words.replace("&#34;", '"')) == list("43210")
    by_id = await client.get(f"/messages?topic=orders&by=id&value={sent[2].msg_id}")
    assert "{&#34;id&#34;: 2}" in by_id.text
    assert "1 message" in by_id.words
    by_place = await client.get(f"/messages?by=id&value={sent[3].offset_msg_id}")
    assert "{&#34;id&#34;: 3}" in by_place.text
    await client.shows("/messages?topic=orders&by=key&value=o-1", "1 message")
    since = await client.get("/messages?topic=orders&by=time&value=-10m")
    assert re.findall(r'"id": (\d)', since.words.replace("&#34;", '"')) == list("01234")
    later = await client.get("/messages?topic=orders&by=time&value=2100-01-01T00:00Z")
    assert "No message was found" in later.words


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("by=key&value=x", "Name a topic."),
        ("topic=orders&by=key", "Say what to look for."),
        ("topic=orders&by=time&value=soon", "is not a time such as -10m"),
        ("topic=orders&value=o-1", "Choose whether that is a key"),
        ("topic=or/ders&by=key&value=x", "has characters outside"),
    ],
)
async def test_a_search_that_cannot_be(client: Client, query: str, problem: str) -> None:
    page = await client.get(f"/messages?{query}")
    assert page.status == 400
    assert problem in page.words


async def test_messages_by_time_go_on_where_a_page_ends(
    client: Client, admin: Admin, producer: Producer
) -> None:
    await admin.create_topic("orders", queues=2)
    for number in range(130):
        await producer.send(Message("orders", f"m{number:03}".encode()))
    path, seen = "/messages?topic=orders&by=time&value=-10m", []
    for _ in range(20):
        page = await client.get(path)
        seen += re.findall(r">(m\d{3})<", page.text)
        more = re.search(r'rel="next" href="([^"]+)"', page.text)
        if more is None:
            break
        path = more[1].replace("&amp;", "&")
    assert sorted(set(seen)) == [f"m{number:03}" for number in range(130)]


async def test_a_large_body_is_decompressed_only_where_it_is_shown_by_itself(
    client: Client, admin: Admin, producer: Producer
) -> None:
    """A page with many of them would take the memory of the process."""
    await admin.create_topic("orders", queues=1)
    body = b"0" * (MOST_DECOMPRESSED + 1)
    await producer.send(Message("orders", body))
    await client.shows("/messages?topic=orders", "1 message")
    listing = await client.get("/messages?topic=orders")
    assert "1.0 KiB" in listing.words  # as it is stored
    place = await place_of(client, "/messages?topic=orders")
    assert "00000000" in (await client.get(place)).words
    download = "/message/body?topic=orders&broker=broker-a&queue=0&offset=0"
    async with client.session.get(client.url + download) as got:
        assert await got.read() == body
    async with client.session.head(client.url + download) as got:
        assert got.headers["Content-Length"] == str(len(body))


BODY_PATH = "/message/body?topic=orders&broker=broker-a&queue=0&offset=0"


async def bodies_that_nobody_reads(port: int, cleanup: AsyncExitStack) -> None:
    """As many downloads as there may be; they are closed by `cleanup`. With the usual buffers the
    kernel may take a whole body."""
    loop = asyncio.get_running_loop()
    for _ in range(MOST_DOWNLOADS):
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        small.setblocking(False)
        await loop.sock_connect(small, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=small, limit=1024)
        cleanup.callback(writer.close)
        writer.write(f"GET {BODY_PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert b" 200 OK" in await reader.readline()


async def a_place_is_free(client: Client, url: str) -> None:
    async with asyncio.timeout(TIMEOUT):
        while (await client.session.head(url + BODY_PATH)).status == 503:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.fixture
async def large_body(client: Client, admin: Admin, producer: Producer) -> None:
    await admin.create_topic("orders", queues=1)
    await producer.send(Message("orders", os.urandom(4_000_000)))
    await client.shows("/messages?topic=orders", "4")


@pytest.mark.usefixtures("large_body")
async def test_bodies_that_nobody_reads_are_few(dashboard: Dashboard, client: Client) -> None:
    async with AsyncExitStack() as cleanup:
        await bodies_that_nobody_reads(dashboard.port, cleanup)
        refused = await client.get(BODY_PATH)
        assert refused.status == 503
        assert "as may be" in refused.words
        assert (await client.get("/topics")).status == 200
    await a_place_is_free(client, client.url)


@pytest.mark.usefixtures("large_body")
async def test_who_takes_nothing_of_a_body_is_dropped(
    server: EmbeddedServer, client: Client
) -> None:
    config = DashboardConfig(namesrv=server.namesrv, port=0, period=0.2, read_timeout=0.5)
    async with Dashboard(config) as impatient, AsyncExitStack() as cleanup:
        await bodies_that_nobody_reads(impatient.port, cleanup)
        await a_place_is_free(client, impatient.url)


async def test_a_message_in_all_its_forms(client: Client, admin: Admin, producer: Producer) -> None:
    await admin.create_topic("orders", queues=1)
    hostile = Message("orders", HOSTILE.encode(), keys=["<b>"], properties={"<i>": HOSTILE})
    await producer.send(hostile)
    await producer.send(Message("orders", b'{"a":[1]}'))
    address = await place_of(client, "/messages?topic=orders")  # the newest
    page = await client.get(address)
    assert "{\n  &#34;a&#34;: [\n    1\n  ]\n}" in page.text
    assert "00000000 7b 22 61" in (await client.get(f"{address}&as=hex")).words
    first = await client.get("/message?topic=orders&broker=broker-a&queue=0&offset=0")
    for each in (first, await client.get("/messages?topic=orders")):
        assert "<script>alert" not in each.text
        assert "<img" not in each.text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in each.text
        assert_loads_nothing_from_elsewhere(each)
    body = await client.get("/message/body?topic=orders&broker=broker-a&queue=0&offset=0")
    assert body.text == HOSTILE
    assert body.headers["Content-Type"] == "application/octet-stream"
    assert body.headers["Content-Disposition"].startswith("attachment;")
    assert body.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/topics/nothing", 404),
        ("/topics/nothing/tail", 404),
        ("/groups/nothing", 404),
        ("/dead-letters/nothing", 404),
        ("/message?topic=T&broker=broker-a&queue=0&offset=x", 400),
        ("/message?topic=T&broker=broker-a&queue=0&offset=" + "9" * 40, 400),
        ("/message?topic=nothing&broker=broker-a&queue=0&offset=0", 404),
        ("/message?topic=TBW102&broker=broker-a&queue=0&offset=7", 404),
        ("/topics/" + "x" * 300, 404),
        ("/topics/%00%FF", 404),
    ],
)
async def test_what_is_not_there(client: Client, path: str, status: int) -> None:
    page = await client.get(path)
    assert page.status == status
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "This page failed" not in page.words


async def test_a_missing_topic_is_said_as_the_command_line_says_it(
    client: Client, admin: Admin
) -> None:
    await admin.create_topic("invoices", queues=1)
    for path in ("/topics/invoises", "/topics/invoises/tail", "/messages?topic=invoises"):
        page = await client.get(path)
        assert page.status == 404
        assert "topic invoises does not exist, did you mean invoices? Show invoices" in page.words
    page = await client.get("/topics/zzz")
    assert "topic zzz does not exist Show all topics" in page.words


async def test_a_group_that_nobody_consumes_for_says_so(
    client: Client, admin: Admin, producer: Producer, server: EmbeddedServer
) -> None:
    """There is no rate at which it would ever catch up: nobody works on it."""
    await admin.create_topic("letters", queues=1)
    await producer.send(Message("letters", b"1"))
    queue = MessageQueue("letters", "broker-a", 0)
    await admin.create_group("absent")
    await admin.set_group_offset("absent", queue, 0)
    page = await client.get("/groups/absent")
    assert "Lag 1 Time to catch up no client is online Arriving" in page.words
    assert page.words.index("Next to consume") < page.words.index("Messages per second")
    assert "no client is online" in (await client.get("/groups?q=absent")).words
    topic = await client.get("/topics/letters")
    assert topic.words.index("First offset") < topic.words.index("Messages in per second")


async def test_dead_letters_say_why_they_died(
    client: Client, admin: Admin, producer: Producer, server: EmbeddedServer
) -> None:
    await make_dead_letters(admin, producer, server.namesrv, "paying", "payments", [b"a"])
    page = await client.get("/dead-letters/paying")
    assert "ValueError: refused" in page.words
    queue = MessageQueue("%DLQ%paying", "broker-a", 0)
    message = await admin.message_at(queue, 0)
    assert message is not None
    assert message.properties["DLQ_CONSUMER"] in page.words
    shown = await client.get(
        "/message?topic=%25DLQ%25paying&broker=broker-a&queue=0&offset=0&group=paying"
    )
    assert "Reason ValueError: refused Consumer" in shown.words
    assert "not recorded" not in page.words
    await producer.send(Message("%DLQ%paying", b"of a client that gives no reason"))
    assert "not recorded" in (await client.get("/dead-letters/paying")).words


async def test_dead_letters_are_sent_again(
    client: Client, admin: Admin, producer: Producer, server: EmbeddedServer
) -> None:
    await make_dead_letters(admin, producer, server.namesrv, "billing", "bills", [b"a", b"b", b"c"])
    assert "billing 3 3" in (await client.get("/dead-letters")).words
    page = await client.get("/dead-letters/billing")
    assert "Left to resend 3 Stored 3 Clients online 0" in page.words
    assert "Log in to send them again" in page.words
    assert "Resend" not in page.text
    fields = {"broker": "broker-a", "queue": "0", "offset": "1"}
    refused = await client.post("/dead-letters/billing/resend", fields, page="/login")
    assert refused.status == 403

    assert (await client.log_in(secret=PASSWORD)).status == 303
    # One that is not the oldest stays in the list.
    path = "/dead-letters/billing"
    sent = await client.post(f"{path}/resend", fields, page=path)
    assert sent.status == 303
    assert "It stays in this list" in (await client.get(sent.headers["Location"])).words
    sent = await client.post(f"{path}/resend", {**fields, "offset": "0"}, page=path)
    assert "Left to resend 2 Stored 3" in (await client.get(sent.headers["Location"])).words
    await client.shows("/groups/billing", "Lag 2 ")  # in the retry topic
    await client.post(f"{path}/resend", {}, page=path)
    done = await client.get(path)
    assert "Left to resend 0 Stored 3" in done.words
    assert "No dead letter is left" in done.words
    assert "sent again" in (await client.get(f"{path}?all=1")).words
    gone = await client.post(f"{path}/resend", {**fields, "offset": "9"}, page=path)
    assert "No dead letter was sent again" in (await client.get(gone.headers["Location"])).words


async def test_a_dead_letter_that_the_broker_refuses_does_not_keep_the_others(
    client: Client, admin: Admin, producer: Producer, server: EmbeddedServer
) -> None:
    await make_dead_letters(admin, producer, server.namesrv, "sorting", "sorted", [b"a"])
    await bury(admin, "sorting", {"UNIQ_KEY": "U", "long": "x" * 32_620})  # no room for more
    await bury(admin, "sorting", {"RETRY_TOPIC": "sorted"})
    assert (await client.log_in(secret=PASSWORD)).status == 303
    path = "/dead-letters/sorting"
    sent = await client.post(f"{path}/resend", {}, page=path)
    page = await client.get(sent.headers["Location"])
    assert "2 of the dead letters were sent to the group again" in page.words
    assert "1 that the broker refuses stays" in page.words
    assert "Left to resend 2 Stored 3" in page.words


async def test_a_list_of_dead_letters_holds_only_the_beginnings_of_bodies(
    admin: Admin, producer: Producer, server: EmbeddedServer
) -> None:
    bodies = [b"x" * 1_000_000] * 2
    await make_dead_letters(admin, producer, server.namesrv, "moving", "moves", bodies)
    dead = [letter.message for letter in (await dead_letter_view(admin, "moving")).letters]
    assert [len(message.body) < 10_000 for message in dead] == [True] * 2


async def test_a_tail_shows_what_comes(client: Client, admin: Admin, producer: Producer) -> None:
    await admin.create_topic("orders", queues=2)
    await producer.send(Message("orders", b"before"))
    assert (await client.get("/topics/orders/tail")).status == 200
    async with (
        asyncio.timeout(TIMEOUT),
        client.session.get(f"{client.url}/topics/orders/tail/events?tags=paid") as events,
    ):
        assert events.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert await events.content.readline() == b"event: open\n"
        await producer.send(Message("orders", HOSTILE.encode(), tags="paid", keys=["k"]))
        await producer.send(Message("orders", b"other", tags="open"))
        async for line in events.content:
            if line.startswith(b'data: {"messages":[{'):
                break
        [message] = json.loads(line.removeprefix(b"data: "))["messages"]
    assert message["excerpt"] == HOSTILE
    assert (message["tag"], message["keys"], message["size"]) == ("paid", ["k"], len(HOSTILE))


async def test_a_tail_leaves_out_what_comes_too_fast(
    client: Client, admin: Admin, producer: Producer
) -> None:
    await admin.create_topic("orders", queues=2)
    shown, skipped = 0, 0
    async with (
        asyncio.timeout(TIMEOUT),
        client.session.get(f"{client.url}/topics/orders/tail/events") as events,
    ):
        assert await events.content.readline() == b"event: open\n"
        for _ in range(10):
            await producer.send_batch([Message("orders", b"%d" % n) for n in range(100)])
        while shown + skipped < 1000:
            line = await events.content.readline()
            if line.startswith(b'data: {"messages"'):
                part = json.loads(line.removeprefix(b"data: "))
                assert len(part["messages"]) <= 50
                shown += len(part["messages"])
                skipped += part["skipped"]
    assert (shown + skipped, skipped > 0) == (1000, True)


async def test_the_number_of_tails_is_bounded(client: Client, admin: Admin) -> None:
    await admin.create_topic("orders", queues=1)
    path = f"{client.url}/topics/orders/tail/events"
    opened = []
    for _ in range(8):
        events = await client.session.get(path)
        assert await events.content.readline() == b"event: open\n"
        opened.append(events)
    assert (await client.get("/topics/orders/tail/events")).status == 503
    for events in opened:
        events.close()
    async with asyncio.timeout(TIMEOUT):
        while (again := await client.session.get(path)).status == 503:
            again.close()
            await asyncio.sleep(0.1)
        again.close()


async def test_a_cluster_that_does_not_answer() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        namesrv = f"127.0.0.1:{free.getsockname()[1]}"
        async with (
            Dashboard(DashboardConfig(namesrv=namesrv, port=0, password=PASSWORD)) as dashboard,
            client_session() as session,
        ):
            client = Client(session, dashboard.url)
            page = await client.get("/")
            assert page.status == 503
            assert "The cluster does not answer" in page.words
            assert namesrv in page.words
            assert 'data-refresh="5"' in page.text
            assert (await client.log_in(secret=PASSWORD)).status == 303


async def test_without_a_password_and_users_it_stays_read_only(server: EmbeddedServer) -> None:
    config = DashboardConfig(namesrv=server.namesrv, port=0)
    async with Dashboard(config) as dashboard, client_session() as session:
        client = Client(session, dashboard.url)
        page = await client.get("/login")
        assert page.status == 200
        assert "This dashboard is read-only" in page.words
        assert (await client.post("/login", {"user": "a", "secret": "b"})).status == 403


@pytest.fixture
async def two(server: EmbeddedServer) -> AsyncIterator[tuple[Dashboard, Dashboard]]:
    config = DashboardConfig(namesrv=server.namesrv, port=0, password=PASSWORD)
    async with Dashboard(config) as one, Dashboard(config) as other:
        yield one, other


async def test_two_dashboards_of_one_machine_keep_their_logins_apart(
    two: tuple[Dashboard, Dashboard],
) -> None:
    async with client_session() as session:
        one, other = (Client(session, dashboard.url) for dashboard in two)
        await one.log_in(secret=PASSWORD)
        await other.log_in(secret=PASSWORD)
        for client in (one, other):
            assert "Log out" in (await client.get("/")).words


async def test_the_dashboard_ends_while_pages_are_open(
    server: EmbeddedServer, admin: Admin
) -> None:
    await admin.create_topic("orders", queues=1)
    dashboard = Dashboard(DashboardConfig(namesrv=server.namesrv, port=0))
    await dashboard.start()
    async with client_session() as session:
        events = await session.get(f"{dashboard.url}/topics/orders/tail/events")
        assert await events.content.readline() == b"event: open\n"
        await dashboard.stop()
        await dashboard.stop()
        with pytest.raises(aiohttp.ClientPayloadError):
            await events.content.read()


async def test_a_port_that_is_taken(server: EmbeddedServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        dashboard = Dashboard(DashboardConfig(namesrv=server.namesrv, port=port))
        with pytest.raises(OSError, match="the dashboard cannot listen on"):
            await dashboard.start()
        await dashboard.start(or_any_port=True)
        assert dashboard.port not in (0, port)
        await dashboard.stop()


@pytest.mark.parametrize(
    "request_head",
    [b"GET /" + b"x" * 9000 + b" HTTP/1.1", b"\x16\x03\x01 hello"],
    ids=["long", "TLS"],
)
async def test_a_request_that_is_not_http_leaves_one_line(
    dashboard: Dashboard, client: Client, request_head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await client.get("/")
    reader, writer = await asyncio.open_connection("127.0.0.1", dashboard.port)
    writer.write(request_head + b"\r\nHost: localhost\r\n\r\n")
    assert b" 400 Bad Request" in await reader.read()
    writer.close()
    for record in caplog.records:
        assert not record.exc_info
        assert record.getMessage().startswith("request from 127.0.0.1 refused: ")


FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"
LARGE_BODY = bytes(1 << 20)


def refused(port: int, head: bytes) -> bytes:
    """Send a request with a large body; return the status, or nothing if the body broke it off."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        try:
            peer.sendall(head + LARGE_BODY)
            return peer.recv(64).split()[1]
        except ConnectionError:
            return b""


@pytest.mark.parametrize(
    ("method", "fields", "status"),
    [
        (b"POST", FORM + b"Transfer-Encoding: chunked\r\n\r\n100000\r\n", b"411"),
        (b"POST", FORM + b"Content-Length: 1048576\r\n\r\n", b"413"),
        (b"POST", b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 65535\r\n\r\n",
         b"415"),
        (b"GET", b"Content-Length: 1048576\r\n\r\n", b"200"),
        (b"GET", b"X: ", b"400"),
        (b"\x16\x03\x01", b"\r\n\r\n", b"400"),
    ],
    ids=["chunked", "large", "other type", "with GET", "in the head", "no HTTP"],
)  # fmt: skip
async def test_what_is_refused_is_not_kept(
    dashboard: Dashboard, client: Client, method: bytes, fields: bytes, status: bytes
) -> None:
    """Not as garbage either: the collector goes by the number of objects, not by their size."""
    await client.get("/login")
    head = method + b" /login HTTP/1.1\r\nHost: 127.0.0.1\r\n" + fields
    connections = 20
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(connections):
            assert await asyncio.to_thread(refused, dashboard.port, head) in (status, b"")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert kept < connections * len(LARGE_BODY) // 8


async def test_connections_are_bounded(dashboard: Dashboard, client: Client, admin: Admin) -> None:
    """aiohttp keeps those that send nothing for ever. They do not keep others out."""
    await admin.create_topic("orders", queues=1)
    assert (await client.get("/")).status == 200  # the pages are loaded
    opened = [
        await asyncio.open_connection("127.0.0.1", dashboard.port)
        for _ in range(MOST_CONNECTIONS + 10)
    ]
    try:
        ends = [asyncio.ensure_future(reader.read()) for reader, _ in opened]
        tail = await client.session.get(f"{client.url}/topics/orders/tail/events")
        more = [
            await asyncio.open_connection("127.0.0.1", dashboard.port)
            for _ in range(MOST_CONNECTIONS)
        ]
        opened += more
        await asyncio.gather(*ends[:MOST_CONNECTIONS], return_exceptions=True)
        assert (await client.get("/")).status == 200
        assert not tail.closed
        assert await tail.content.readline() == b"event: open\n"
        tail.close()
    finally:
        for _, writer in opened:
            writer.close()
        await asyncio.gather(*ends, return_exceptions=True)
