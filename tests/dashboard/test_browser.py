"""The dashboard in a real browser: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest

pytest.importorskip("aiohttp", reason="pip install 'pocketmq[dashboard]'")
pytest.importorskip("jinja2", reason="pip install 'pocketmq[dashboard]'")
pytest.importorskip("playwright", reason="pip install playwright")
pytest.importorskip("axe_playwright_python", reason="pip install axe-playwright-python")

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    async_playwright,
    expect,
)

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.dashboard.config import DashboardConfig
from pocketmq.dashboard.server import Dashboard
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.message import Message, MessageExt
from tests.dashboard.conftest import PASSWORD
from tests.dashboard.dead_letters import make_dead_letters

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
#: Seconds for what takes one; a machine that is busy with other things needs more.
TIMEOUT = 60.0
PHONE = {"width": 390, "height": 844}
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium; scripts/ensure-chromium.sh"),
]


class Watched:
    """What a page did that it should not: requests to others, errors in the console, dialogs."""

    def __init__(self, page: Page, url: str) -> None:
        self.faults: list[str] = []
        self._url = url
        page.on("request", self._requested)
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: self.faults.append(f"dialog {dialog.message}"))

    def _logged(self, line: ConsoleMessage) -> None:
        if line.type == "error":
            self.faults.append(line.text)

    def _requested(self, request: Request) -> None:
        if not request.url.startswith(f"{self._url}/"):
            self.faults.append(f"request to {request.url}")


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    # Chromium has no sandbox of its own for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        await browser.close()


@pytest.fixture
async def quick(server: EmbeddedServer) -> AsyncIterator[Dashboard]:
    """A dashboard that samples often."""
    config = DashboardConfig(namesrv=server.namesrv, port=0, password=PASSWORD, period=0.2)
    async with Dashboard(config) as dashboard:
        yield dashboard


async def open_page(browser: Browser, **options: Any) -> Page:
    context = await browser.new_context(**options)
    context.set_default_timeout(TIMEOUT * 1000)
    return await context.new_page()


async def violations(page: Page, *rules: str) -> list[str]:
    """What axe finds by its rules of WCAG, A and AA, and of best practice; or by `rules` only."""
    options = {"runOnly": list(rules)} if rules else None
    found = (await Axe().run(page, options=options)).response["violations"]
    return [
        f"{page.url}: {each['id']}: {each['help']}: {node['target']}"
        for each in found
        for node in each["nodes"]
    ]


async def test_a_dead_letter_is_found_read_and_sent_again_and_the_lag_falls(
    browser: Browser,
    quick: Dashboard,
    server: EmbeddedServer,
    admin: Admin,
    producer: Producer,
) -> None:
    letter = json.dumps({"order": 42, "country": "FR"}).encode()
    await make_dead_letters(admin, producer, server.namesrv, "shipping", "shipments", [letter])
    for number in range(3):
        await producer.send(Message("shipments", b"later %d" % number))
    page = await open_page(browser)
    watched = Watched(page, quick.url)
    await page.goto(quick.url)
    await page.get_by_role("navigation").get_by_role("link", name="Dead letters").click()
    await page.get_by_role("link", name="shipping").click()
    await expect(page.locator("#left")).to_have_text("1")
    await expect(page.get_by_role("row", name="order")).to_contain_text("ValueError: refused")

    # To send it again, one has to log in, and is back where one was.
    await expect(page.get_by_role("button", name="Resend")).to_have_count(0)
    await page.get_by_role("main").get_by_role("link", name="Log in").click()
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Log in").click()
    await page.get_by_role("link", name=re.compile("order")).click()
    await expect(page.locator("pre")).to_have_text('{\n  "order": 42,\n  "country": "FR"\n}')
    await page.get_by_role("link", name="Hex").click()
    await expect(page.locator("pre")).to_contain_text("00000000  7b 22 6f 72 64 65 72 22")
    await page.get_by_role("button", name="Resend").click()
    await expect(page.get_by_role("status")).to_have_text(
        "1 dead letter was sent to the group again."
    )
    await expect(page.locator("#left")).to_have_text("0")

    # The letter waits with the others, and all are taken as soon as a consumer is there.
    await page.get_by_role("link", name="Group", exact=True).click()
    await expect(page.locator("#lag")).to_have_text("4", timeout=TIMEOUT * 1000)
    await expect(page.locator("dl.tiles")).to_contain_text("no client is online")
    queues, chart = page.get_by_role("table").first, page.locator("svg.chart.large").first
    await expect(chart).to_be_visible()
    above, below = await queues.bounding_box(), await chart.bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] < below["y"]
    await expect(page.locator("svg.chart.large .line.lag")).to_have_count(1)
    taken: list[bytes] = []

    async def take(message: MessageExt) -> None:
        taken.append(message.body)

    consumer = PushConsumer("shipping", namesrv=server.namesrv, commit_interval=0.2)
    consumer.on("shipments")(take)
    async with consumer:
        await expect(page.locator("#lag")).to_have_text("0", timeout=TIMEOUT * 1000)
    assert sorted(taken) == sorted([letter, b"later 0", b"later 1", b"later 2"])
    assert watched.faults == []


async def test_every_page_is_accessible_and_fits_a_phone(
    browser: Browser,
    quick: Dashboard,
    server: EmbeddedServer,
    admin: Admin,
    producer: Producer,
) -> None:
    body = json.dumps({"name": "x" * 300, "hostile": HOSTILE}).encode()
    await make_dead_letters(
        admin, producer, server.namesrv, "a-group-with-" + "long" * 20, "orders", [body]
    )
    await admin.create_topic("T" * 120, queues=1)
    group = "a-group-with-" + "long" * 20
    message = f"topic=%25DLQ%25{group}&broker=broker-a&queue=0&offset=0"
    page = await open_page(browser, viewport=PHONE)
    watched = Watched(page, quick.url)
    found = []
    # Of what is dark, only the colours are different.
    schemes: dict[Literal["light", "dark"], tuple[str, ...]]
    schemes = {"light": (), "dark": ("color-contrast",)}
    for scheme, rules in schemes.items():
        await page.emulate_media(color_scheme=scheme)
        await page.goto(f"{quick.url}/login")
        found += await violations(page, *rules)
        if scheme == "light":
            await page.get_by_label("Password").fill(PASSWORD)
            await page.keyboard.press("Enter")
            await page.wait_for_url(f"{quick.url}/")
        for path in (
            "/",
            "/topics?all=1",
            "/topics/orders",
            "/topics/orders/tail",
            "/groups",
            f"/groups/{group}",
            "/messages?topic=orders",
            f"/message?{message}&group={group}",
            "/dead-letters",
            f"/dead-letters/{group}",
            "/clients",
            "/topics/order",
        ):
            await page.goto(quick.url + path)
            found += await violations(page, *rules)
            width = await page.evaluate("document.documentElement.scrollWidth")
            assert width <= PHONE["width"], f"{path} is {width} pixels wide"
    assert found == []
    faults = [fault for fault in watched.faults if "404" not in fault]
    assert faults == []


async def test_the_keyboard_reaches_everything_and_the_tail_is_live(
    browser: Browser, quick: Dashboard, admin: Admin, producer: Producer
) -> None:
    await admin.create_topic("orders", queues=1)
    page = await open_page(browser)
    watched = Watched(page, quick.url)
    await page.goto(f"{quick.url}/topics/orders")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    names = []
    for _ in range(14):
        await page.keyboard.press("Tab")
        names.append(await page.evaluate("document.activeElement.textContent.trim()"))
    for name in ("Cluster", "Topics", "Clients", "Log in", "Messages", "Live tail", "Live"):
        assert name in names
    await page.get_by_role("button", name="Live").press("Space")
    await expect(page.get_by_role("button", name="Paused")).to_have_attribute(
        "aria-pressed", "false"
    )

    await page.get_by_role("link", name="Live tail").click()
    await expect(page.get_by_role("status")).to_contain_text("Waiting for messages")
    for number in range(3):
        await producer.send(Message("orders", f"{HOSTILE} {number}".encode(), keys=["k"]))
    rows = page.locator("#tail tbody tr")
    await expect(rows).to_have_count(3)
    await expect(rows.first).to_contain_text(f"{HOSTILE} 2")
    await page.get_by_role("button", name="Pause").click()
    await producer.send(Message("orders", b"while paused"))
    await page.get_by_role("button", name="Go on").click()
    async with asyncio.timeout(TIMEOUT):
        await producer.send(Message("orders", b"afterwards"))
        await rows.first.get_by_role("link", name="afterwards").click()
    await expect(page.locator("pre")).to_have_text("afterwards")
    assert watched.faults == []
