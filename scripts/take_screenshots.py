"""Take docs/images/dashboard-*.png: pages of the dashboard, of a master and a slave under load.

    python scripts/take_screenshots.py              those in the documentation
    python scripts/take_screenshots.py DIRECTORY    every page, to look at

Needs Debian's chromium. Samples are taken for a while first, so that the charts have something to
show.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from pocketmq import Admin, Message, Producer, PushConsumer
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig, BrokerRole
from pocketmq.dashboard.config import DashboardConfig
from pocketmq.dashboard.server import Dashboard
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.message import MessageExt

CHROMIUM = "/usr/bin/chromium"
IMAGES = Path(__file__).parents[1] / "docs" / "images"
SECONDS = 45
PASSWORD = "screenshots"

#: Name, path, width, dark: of every image.
SHOTS = (
    ("cluster", "/", 1280, False),
    ("cluster-dark", "/", 1280, True),
    ("topics", "/topics", 1280, False),
    ("topic", "/topics/orders", 1280, False),
    ("topic-dark-phone", "/topics/orders", 390, True),
    ("groups", "/groups", 1280, False),
    ("group", "/groups/billing", 1280, False),
    ("group-dark", "/groups/billing", 1280, True),
    ("group-phone", "/groups/billing", 390, False),
    ("messages", "/messages?topic=orders", 1280, False),
    ("messages-phone", "/messages?topic=orders", 390, True),
    ("dead-letters", "/dead-letters/shipping", 1280, False),
    ("dead-letters-phone", "/dead-letters/shipping", 390, False),
    ("clients", "/clients", 1280, False),
    ("tail", "/topics/orders/tail", 1280, True),
    ("cluster-phone", "/", 390, True),
    ("login-phone", "/login", 390, False),
    ("missing", "/topics/ordres", 1280, False),
)
#: Those in the documentation.
IN_DOCS = frozenset(
    {
        "cluster",
        "cluster-phone",
        "dead-letters",
        "group-dark",
        "group-phone",
        "message-dark-phone",
    }
)

#: Those whose pages go on for long.
LONG = ("messages", "tail")


class Load:
    """Orders that come in, a group that falls behind, and one that fails."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._random = random.Random(7)

    async def prepare(self) -> None:
        """Create topics and groups."""
        async with Admin(namesrv=self._namesrv) as admin:
            for topic, queues in (("orders", 4), ("payments", 4), ("shipments", 2), ("audit", 1)):
                await admin.create_topic(topic, queues=queues)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send and consume in the background."""

        async def slow(message: MessageExt) -> None:
            await asyncio.sleep(0.05)

        async def failing(message: MessageExt) -> None:
            if json.loads(message.body).get("country") == "FR":
                raise ValueError("no carrier ships to FR")

        async def taking(message: MessageExt) -> None:
            pass

        async with contextlib.AsyncExitStack() as stack:
            for group, topic, handler, at_once in (
                ("billing", "orders", slow, 1),
                ("shipping", "shipments", failing, 8),
                ("fraud-check", "payments", taking, 8),
                ("reporting", "orders", taking, 8),
            ):
                consumer = PushConsumer(
                    group,
                    namesrv=self._namesrv,
                    start="begin",
                    concurrency=at_once,
                    max_reconsume_times=0,
                )
                consumer.on(topic)(handler)
                await stack.enter_async_context(consumer)
            producer = await stack.enter_async_context(Producer("shop", namesrv=self._namesrv))
            sending = asyncio.ensure_future(self._send(producer))
            stack.callback(sending.cancel)
            yield

    async def _send(self, producer: Producer) -> None:
        number = 1000
        while True:
            for _ in range(self._random.randint(2, 6)):
                number += 1
                await producer.send(self._order(number))
            await producer.send(
                Message("payments", json.dumps({"order": number, "ok": True}).encode(), tags="card")
            )
            if number % 5 == 0:
                country = "FR" if number % 25 == 0 else "DE"
                body = {"order": number, "country": country, "carrier": None, "parcels": [1, 2]}
                await producer.send(
                    Message("shipments", json.dumps(body).encode(), keys=[f"o-{number}"])
                )
            await asyncio.sleep(0.1)

    def _order(self, number: int) -> Message:
        body = {
            "id": number,
            "customer": f"c-{self._random.randint(1, 900)}",
            "total": round(self._random.uniform(5, 400), 2),
            "currency": "EUR",
            "items": [{"sku": f"A-{self._random.randint(100, 999)}", "count": 1}],
        }
        return Message(
            "orders",
            json.dumps(body).encode(),
            tags=self._random.choice(["paid", "open"]),
            keys=[f"o-{number}"],
            properties={"shop": "berlin"},
        )


async def take(browser: Browser, url: str, directory: Path, wanted: Collection[str]) -> None:
    """Log in, and take the images that are wanted, or all if that is none."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{url}/login")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Log in").click()
    await page.wait_for_url(f"{url}/")
    for name, path, width, dark in SHOTS:
        if wanted and name not in wanted:
            continue
        await page.set_viewport_size({"width": width, "height": 800 if width > 500 else 844})
        await page.emulate_media(color_scheme="dark" if dark else "light")
        await page.goto(url + path)
        if path.endswith("/tail"):
            await page.locator("#tail tbody tr").nth(12).wait_for()
        whole = width > 500 and name not in LONG
        await page.screenshot(path=directory / f"dashboard-{name}.png", full_page=whole)
    await page.goto(f"{url}/dead-letters/shipping")
    await page.locator("tbody th a").first.click()
    await page.wait_for_url("**/message?**")
    for name, width, dark in (("message", 1280, False), ("message-dark-phone", 390, True)):
        if wanted and name not in wanted:
            continue
        await page.set_viewport_size({"width": width, "height": 800 if width > 500 else 844})
        await page.emulate_media(color_scheme="dark" if dark else "light")
        await page.screenshot(path=directory / f"dashboard-{name}.png", full_page=width > 500)
    await context.close()


def slave_of(server: EmbeddedServer, store: Path) -> Broker:
    """A copy of the server's broker."""
    config = BrokerConfig(
        broker_name=server.broker.config.broker_name,
        broker_id=1,
        broker_role=BrokerRole.SLAVE,
        namesrv_addr=server.namesrv,
        listen_port=0,
        ha_listen_port=0,
        store_path_root_dir=str(store),
    )
    return Broker(config)


async def main(directory: Path, wanted: Collection[str]) -> None:
    """Start a cluster, put it under load, and take the images."""
    master = {"brokerRole": "ASYNC_MASTER", "haListenPort": "0"}
    with tempfile.TemporaryDirectory() as stores:
        async with (
            EmbeddedServer(store=Path(stores) / "master", properties=master) as server,
            slave_of(server, Path(stores) / "slave"),
        ):
            load = Load(server.namesrv)
            await load.prepare()
            config = DashboardConfig(namesrv=server.namesrv, port=0, password=PASSWORD, period=1.0)
            async with (
                load.running(),
                Dashboard(config) as dashboard,
                async_playwright() as playwright,
            ):
                browser = await playwright.chromium.launch(
                    executable_path=CHROMIUM, args=["--no-sandbox"]
                )
                await asyncio.sleep(SECONDS)
                await take(browser, dashboard.url, directory, wanted)
                await browser.close()


if __name__ == "__main__":
    logging.disable()  # of messages that become dead letters
    if len(sys.argv) > 1:
        images = Path(sys.argv[1])
        images.mkdir(parents=True, exist_ok=True)
        asyncio.run(main(images, ()))
    else:
        asyncio.run(main(IMAGES, IN_DOCS))
