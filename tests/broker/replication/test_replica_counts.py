"""Which replicas count: connected ones, those in sync, and those that a send waits for.

After the reference's HAServerTest, SlaveBrokerIT and SendMultipleReplicasIT.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.remoting.bodies.cluster import ClusterInfo, HARuntimeInfo
from pocketmq.remoting.codes import RequestCode
from tests.broker.conftest import Client
from tests.broker.replication.pair import NAME, Pair, classic, client_of, reporter, running
from tests.client.waiting import until

GAP = 1_000


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running(tmp_path) as pair:
        yield pair


async def status_of(client: Client) -> HARuntimeInfo:
    return HARuntimeInfo.decode((await client.request(RequestCode.GET_BROKER_HA_STATUS)).body)


async def test_slaves_are_counted_and_in_sync_below_the_gap(pair: Pair) -> None:
    master = await pair.start(0, ha_max_gap_not_in_sync=GAP)
    server = classic(master).service.server
    async with client_of(master) as client:
        await client.send("T", b"x" * 2 * GAP)
        end = master.store.commit_log.written
        async with reporter(master) as one:
            await one.report(end - GAP - 1)
            status = await status_of(client)
            assert (len(status.ha_connection_info), status.in_sync_slave_nums) == (1, 0)
            await one.report(end - GAP)
            assert (await status_of(client)).in_sync_slave_nums == 0
            await one.report(end - GAP + 1)
            assert (await status_of(client)).in_sync_slave_nums == 1
            async with reporter(master) as other:
                await other.report(end)
                status = await status_of(client)
                assert sorted(slave.diff for slave in status.ha_connection_info) == [0, GAP - 1]
                assert status.in_sync_slave_nums == 2
            await until(lambda: len(server.connections) == 1)
            assert (await status_of(client)).in_sync_slave_nums == 1
        await until(lambda: not server.connections)
        assert server.most_acked == end


async def test_a_send_waits_for_so_many_slaves(pair: Pair) -> None:
    master = await pair.start(0, in_sync_replicas=3, slave_timeout=60_000)
    async with client_of(master) as client, reporter(master) as one, reporter(master) as other:
        send = asyncio.create_task(client.send("T", b"x"))
        waits = classic(master).service
        await until(lambda: len(waits) == 1)
        end = master.store.commit_log.written
        await one.report(end)
        assert len(waits) == 1
        await other.report(end)
        assert (await send).code == 0


async def test_of_three_replicas_two_are_lost(pair: Pair) -> None:
    settings = {"in_sync_replicas": 3, "enable_slave_acting_master": True}
    master = await pair.start(0, **settings)
    async with client_of(master) as client:
        for slave in (1, 2):
            await pair.start(slave)
        await pair.connected(2)
        assert (await client.send("T")).code == 0
        for slave in (1, 2):
            await pair.stop(slave)
        await until(lambda: bool(master.store.refusal))
        refused = await client.send("T")
        assert (refused.code, refused.remark) == (1, "in-sync replicas not enough")
    await pair.stop(0)
    master = await pair.start(0, **settings, enable_auto_in_sync_replicas=True)
    async with client_of(master) as client:
        assert (await client.send("T")).code == 0


async def test_a_slave_leaves_its_route_and_comes_back(pair: Pair) -> None:
    await pair.start(0)
    name_server = Client()
    await name_server.open(pair.namesrv)

    async def replicas() -> set[int]:
        answer = await name_server.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        return set(ClusterInfo.decode(answer.body).broker_addr_table[NAME].broker_addrs)

    try:
        for _ in range(2):
            await pair.start(1)
            await pair.connected()
            assert await replicas() == {0, 1}
            await pair.stop(1)
            await pair.connected(0)
            assert await replicas() == {0}
    finally:
        await name_server.close()
