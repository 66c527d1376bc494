"""/ready, brokerStatus and the metrics of a master and its slave say the same, and the truth."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.store.files import Files
from tests.broker.controller.test_group_figures import status
from tests.client.waiting import until
from tests.monitoring.pages import Page, get, scrape

from .pair import Pair, client_of, running

ON: dict[str, Any] = {
    "health_port": 0,
    "metrics_exporter_type": "PROM",
    "metrics_prom_exporter_port": 0,
}


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    pytest.importorskip("prometheus_client", reason="pip install 'pocketmq[metrics]'")
    async with running(tmp_path) as pair:
        yield pair


async def ready(broker: Broker) -> Page:
    return await get(broker.monitoring.health_port, "/ready")


async def is_ready(broker: Broker) -> None:
    await until(lambda: broker.components.health.now().ready)
    page = await ready(broker)
    assert (page.status, page.text) == (200, "ok\n")


async def metric(broker: Broker, name: str) -> float:
    return (await scrape(broker.monitoring.metrics_port)).sum(name)


class FullDisk:
    """The disk of one commit log: nothing can be written while it is full."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        prefix = f"{directory}{os.sep}"
        write = Files.write

        def guarded(files: Files, fd: int, data: memoryview, at: int) -> None:
            if self.is_full and os.readlink(f"/proc/self/fd/{fd}").startswith(prefix):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(files, fd, data, at)

        monkeypatch.setattr(Files, "write", guarded)


async def test_a_slave_in_sync_is_ready_and_refuses_nothing(pair: Pair) -> None:
    await pair.start(0, **ON)
    await pair.start(1, **ON)
    await pair.connected()
    async with client_of(pair.master) as client:
        assert (await client.send("T", b"x")).code == 0
    await pair.copied()
    for broker in (pair.master, pair.slave):
        await is_ready(broker)
        assert await metric(broker, "pocketmq_storage_refusing") == 0
        assert await metric(broker, "pocketmq_ready") == 1
    assert await metric(pair.master, "pocketmq_accepts_sends") == 1
    assert await metric(pair.slave, "pocketmq_accepts_sends") == 0
    told = await status(pair.slave)
    assert (told["memberReady"], told["haInSync"], told["memberProblems"]) == ("true", "true", "")


async def test_labels_tell_the_members_of_a_group_apart(pair: Pair) -> None:
    await pair.start(0, **ON)
    await pair.start(1, **ON)
    for broker in (pair.master, pair.slave):
        for each in (await scrape(broker.monitoring.metrics_port)).samples:
            assert each.labels["node_id"] == broker.config.broker_name
            assert each.labels["address"] == broker.address


async def test_a_slave_without_its_master_says_for_how_long(pair: Pair) -> None:
    await pair.start(0, **ON)
    slave = await pair.start(1, **ON)
    await pair.connected()
    await is_ready(slave)
    address = pair.master.address
    await pair.stop(0)
    await until(lambda: not slave.components.health.now().ready)
    page = await ready(slave)
    assert page.status == 503
    assert page.text.startswith("broker: not connected to the master ")
    assert address.rpartition(":")[0] in page.text
    assert await metric(slave, "pocketmq_ready") == 0
    assert await metric(slave, "pocketmq_storage_refusing") == 0


async def test_a_slave_with_a_full_disk_says_so(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.start(0, **ON)
    slave = await pair.start(1, **ON)
    await pair.connected()
    await is_ready(slave)
    disk = FullDisk(tmp_path / "1" / "commitlog", monkeypatch)
    disk.is_full = True
    async with client_of(pair.master) as client:
        assert (await client.send("T", b"x")).code == 0
    await until(lambda: bool(slave.components.health.now().disk.problem))
    page = await ready(slave)
    assert page.status == 503
    assert "No space left on device" in page.text
    assert await metric(slave, "pocketmq_storage_refusing") == 1
    disk.is_full = False
    await pair.copied()
    await until(lambda: slave.components.health.now().ready)


async def test_a_full_disk_of_a_master_is_known_without_a_send(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = await pair.start(0, **ON)
    await is_ready(master)
    disk = FullDisk(tmp_path / "0" / "commitlog", monkeypatch)
    disk.is_full = True
    async with client_of(master) as client:
        refused = await client.send("New", b"x")
        assert "No space left on device" in (refused.remark or "")
        page = await ready(master)
        assert page.status == 503
        assert "No space left on device" in page.text
        told = await status(master)
        assert told["memberReady"] == told["memberAcceptsSends"] == "false"
        disk.is_full = False
        await until(lambda: master.components.health.now().ready)
        assert (await client.send("New", b"x")).code == 0


async def test_a_queue_that_found_no_room_is_forgotten_without_another_send(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = await pair.start(0, **ON)
    allocate = Files.allocate

    def no_room(files: Files, fd: int, size: int) -> None:
        if "consumequeue" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(files, fd, size)

    monkeypatch.setattr(Files, "allocate", no_room)
    async with client_of(master) as client:
        refused = await client.send("New", b"x")
    assert "no room for" in (refused.remark or "")
    assert "no room for" in master.components.health.now().problems[0]
    await is_ready(master)
