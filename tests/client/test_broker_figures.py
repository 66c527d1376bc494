"""What is read from the runtime figures of brokers, of both makes."""

from __future__ import annotations

from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.broker_figures import BrokerFigures, broker_states
from tests.client.real_cluster import RealCluster

OFFICIAL = {
    "brokerVersionDesc": "V5_5_0",
    "putTps": "12.5 10.0 3.25",
    "getTransferredTps": "0.0 0.0 0.0",
    "msgPutTotalTodayNow": "120",
    "msgPutTotalTodayMorning": "20",
    "msgGetTotalTodayNow": "7",
    "msgGetTotalTodayMorning": "7",
    "commitLogDiskRatio": "0.314",
    "commitLogDirCapacity": "Total : 251.9 GiB, Free : 74.0 GiB.",
    "commitLogMinOffset": "1000",
    "commitLogMaxOffset": "5000",
    "remainHowManyDataToFlush": "1.5 KiB",
    "runtime": "[ 0 days, 2 hours, 5 minutes, 1 seconds ]",
    "earliestMessageTimeStamp": "1700000000000",
}


def test_the_figures_of_a_broker() -> None:
    assert BrokerFigures.read(OFFICIAL) == BrokerFigures(
        version="V5_5_0",
        in_per_second=12.5,
        out_per_second=0.0,
        stored_today=100,
        read_today=0,
        disk_percent=31,
        disk_total=int(251.9 * 2**30),
        disk_free=74 * 2**30,
        log_bytes=4000,
        unflushed_bytes=1536,
        running_seconds=7501,
        oldest_message=1700000000000,
    )


def test_what_a_broker_does_not_tell_is_none() -> None:
    assert BrokerFigures.read({}) == BrokerFigures()
    odd = {"putTps": "", "runtime": "long", "earliestMessageTimeStamp": "-1", "putTpsX": "1"}
    assert BrokerFigures.read(odd) == BrokerFigures()


async def test_our_brokers_tell_everything(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        states = await broker_states(admin)
    assert [state.broker for state in states] == ["b0", "b1"]
    assert all(state.is_master and state.problem is None for state in states)
    figures = states[0].figures
    # Of a store without messages, of slaves, and of members of a controller group.
    empty = {"oldest_message", "in_sync", "lag_bytes", "members", "epoch"}
    told = {name for name in figures.__struct_fields__ if getattr(figures, name) is not None}
    assert told == set(figures.__struct_fields__) - empty
