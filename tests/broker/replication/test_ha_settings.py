"""Settings of a pair: where a slave connects, and when a silent peer is left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.replication.pair import Pair, classic, client_of, reporter, running
from tests.client.waiting import until
from tests.interop.harness.ha_proxy import HaProxy


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running(tmp_path) as pair:
        yield pair


async def test_a_slave_copies_the_master_that_its_settings_name(pair: Pair) -> None:
    """haMasterAddress: the name server's answer is not taken."""
    await pair.start(0)
    proxy = HaProxy(classic(pair.master).ha_address)
    try:
        await pair.start(1, ha_master_address=proxy.address)
        await pair.connected()
        async with client_of(pair.master) as client:
            assert (await client.send("T")).code == 0
        await pair.copied()
        metadata = classic(pair.slave).metadata
        assert metadata is not None
        # The master's address for its tables comes from the name server.
        await until(lambda: "T" in pair.slave.tables.topics.table, 30)
        assert metadata.master == pair.master.address
        slave = classic(pair.slave).client
        assert slave is not None
        assert slave.address == proxy.address
        assert proxy.by_slave()
    finally:
        proxy.close()


async def test_a_slave_with_a_named_master_needs_no_name_server(pair: Pair) -> None:
    await pair.start(0)
    await pair.start(1, namesrv_addr="", ha_master_address=classic(pair.master).ha_address)
    await pair.connected()
    async with client_of(pair.master) as client:
        assert (await client.send("T", b"x")).code == 0
    await pair.copied()
    assert pair.slave.store.max_offset("T", 0) == 1


async def test_a_master_leaves_a_slave_that_is_silent(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    master = await pair.start(0, ha_housekeeping_interval=200, ha_send_heartbeat_interval=50)
    server = classic(master).service.server
    async with reporter(master) as one:
        await one.report(0)
        await until(lambda: not server.connections, 30)
    assert "which has been silent for 200 ms" in caplog.text


async def test_a_slave_leaves_a_master_that_is_silent_and_connects_again(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    await pair.start(0, ha_send_heartbeat_interval=50)
    proxy = HaProxy(classic(pair.master).ha_address)
    try:
        await pair.start(
            1, ha_master_address=proxy.address, ha_housekeeping_interval=500,
            ha_send_heartbeat_interval=50,
        )  # fmt: skip
        await pair.connected()
        proxy.let_pass(0)
        line = f"master {proxy.address} has been silent for 500 ms: connecting again"
        await until(lambda: caplog.text.count(line) >= 1, 30)
        proxy.cut()
        async with client_of(pair.master) as client:
            assert (await client.send("T")).code == 0
        await until(
            lambda: pair.slave.store.commit_log.whole >= pair.master.store.commit_log.end, 30
        )
    finally:
        proxy.close()
