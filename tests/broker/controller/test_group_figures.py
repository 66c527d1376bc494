"""What a group waits for, and what brokerStatus and the metrics say of it meanwhile."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.health import MemberRole
from pocketmq.remoting.codes import RequestCode
from pocketmq.store.config import FlushDiskType
from pocketmq.store.files import Files
from tests.broker.replication.pair import client_of
from tests.client.waiting import until
from tests.monitoring.pages import get, scrape

from .group import NAME, PATIENCE, Group, running


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with running(tmp_path) as group:
        yield group


class HeldDisk:
    """The disk of the commit log in a directory, which syncs nothing while it is held."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._prefix = f"{directory}{os.sep}"
        self._free = threading.Event()
        self._free.set()
        sync = Files.fdatasync

        def fdatasync(files: Files, fd: int) -> None:
            if os.readlink(f"/proc/self/fd/{fd}").startswith(self._prefix):
                self._free.wait()
            sync(files, fd)

        monkeypatch.setattr(Files, "fdatasync", fdatasync)

    def hold(self) -> None:
        self._free.clear()

    def free(self) -> None:
        self._free.set()


@pytest.fixture
def disk_of_b(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldDisk]:
    disk = HeldDisk(tmp_path / "b" / "commitlog", monkeypatch)
    yield disk
    disk.free()


async def status(broker: Broker) -> dict[str, str]:
    """What brokerStatus shows."""
    async with client_of(broker) as client:
        answer = await client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table


async def metrics(broker: Broker) -> dict[str, float]:
    prefix = "pocketmq_replication_"
    series = await scrape(broker.monitoring.metrics_port)
    return {
        each.name.removeprefix(prefix): each.value
        for each in series.samples
        if each.name.startswith(prefix)
    }


async def test_a_slave_with_sync_flush_acknowledges_what_its_disk_has(
    group: Group, disk_of_b: HeldDisk
) -> None:
    pytest.importorskip("prometheus_client", reason="pip install 'pocketmq[metrics]'")
    on: dict[str, Any] = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0}
    a = await group.start("a", slave_timeout=3_600_000, **on)
    b = await group.start("b", flush_disk_type=FlushDiskType.SYNC_FLUSH, **on)
    await group.in_sync(2)
    replica = a.components.group.replica if a.components.group is not None else None
    assert replica is not None
    async with client_of(a) as client:
        assert (await client.send("T", b"before")).code == 0
        before = a.store.commit_log.written
        disk_of_b.hold()
        sending = asyncio.create_task(client.send("T", b"held"))
        end = 0

        def is_written() -> bool:
            nonlocal end
            end = a.store.commit_log.written
            return end > before and b.store.commit_log.end == end

        await until(is_written, PATIENCE)
        # A report that comes later than the one that b would have sent for these bytes.
        [link] = replica.links
        heard = link.last_heard
        await until(lambda: link.last_heard > heard + 50, PATIENCE)
        assert not sending.done()
        held = await status(a)
        assert (await metrics(a))["lag_bytes"] == end - before
        assert (await metrics(a))["sends_waiting"] == 1
        disk_of_b.free()
        assert (await sending).code == 0
    assert b.store.flushed_offset == end
    assert held["masterEpoch"] == "1"
    assert held["syncStateSet"] == "1,2"
    assert held["confirmOffset"] == str(before)
    assert held["haLargestLag"] == str(end - before)
    assert (held["haSlaves"], held["haSlavesInSync"], held["haSendsWaiting"]) == ("1", "1", "1")
    free = await status(a)
    assert (free["confirmOffset"], free["haLargestLag"], free["haSendsWaiting"]) == (
        str(end), "0", "0",
    )  # fmt: skip
    await group.copied()
    whole = {"slaves": 1, "slaves_in_sync": 1, "lag_bytes": 0, "sends_waiting": 0}
    assert await metrics(a) == whole | {"copies": 2, "copies_needed": 2}
    slave = {"master_connected": 1, "unchecked_bytes": 0, "behind_bytes": 0}
    assert await metrics(b) == slave
    of_slave = await status(b)
    assert of_slave["brokerRole"] == "SLAVE"
    assert of_slave["masterEpoch"] == "1"
    await until(lambda: b.components.replication.figures()["confirmOffset"] == end, PATIENCE)


async def test_a_member_without_a_role_says_so(group: Group) -> None:
    group.controller.leads = False
    broker = await group.start("a", wait=False)
    told = await status(broker)
    assert told["brokerRole"] == "FENCED"
    assert "syncStateSet" not in told
    health = broker.components.health.now()
    assert not health.ready
    assert health.problems[0].startswith("this broker has no role in its group yet: ")


async def test_each_member_is_ready_once_it_is_in_the_set(group: Group) -> None:
    a = await group.start("a", health_port=0)
    b = await group.start("b", health_port=0)
    await group.in_sync(2)
    for member in (a, b):
        await until(lambda member=member: member.components.health.now().ready, PATIENCE)  # type: ignore[misc]
        page = await get(member.monitoring.health_port, "/ready")
        assert (page.status, page.text) == (200, "ok\n")
    told = await status(b)
    assert (told["memberReady"], told["memberAcceptsSends"]) == ("true", "false")
    group.elect("b")
    await until(lambda: b.components.health.now().role is MemberRole.MASTER, PATIENCE)


async def test_roles_and_members_are_in_the_log_at_the_default_level(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    group.controller.leads = False
    await group.start("a", wait=False)
    await until(lambda: "controllers do not accept this broker" in caplog.text, PATIENCE)
    group.controller.leads = True
    await until(lambda: "broker is member 1 of group" in caplog.text, PATIENCE)
    assert f"broker is master of group {NAME}, epoch 1" in caplog.text
    await group.start("b")
    await group.in_sync(2)
    assert f"is master of group {NAME}, epoch 1" in caplog.text
    assert "slave 2 connected from" in caplog.text
    await until(lambda: "SyncStateSet is [1, 2]" in caplog.text, PATIENCE)


async def test_a_master_whose_disk_fails_at_a_flush_gives_up_its_role(
    group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await group.start("a", flush_disk_type=FlushDiskType.SYNC_FLUSH)
    prefix = f"{tmp_path / 'a' / 'commitlog'}{os.sep}"
    sync = Files.fdatasync

    def fdatasync(files: Files, fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(prefix):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(files, fd)

    async with client_of(a) as client:
        assert (await client.send("T", b"x")).code == 0
        monkeypatch.setattr(Files, "fdatasync", fdatasync)
        assert (await client.send("T", b"y")).code != 0
    health = a.components.health.now()
    assert "only a restart of this broker helps" in health.problems[0]
    assert a.components.group is not None
    assert a.components.group.standing is None
