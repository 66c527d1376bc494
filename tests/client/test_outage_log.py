"""What a producer logs of outages: one warning when it begins, one line when it is over."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pocketmq.client.errors import RemotingConnectError, SendError, SendTimeout
from pocketmq.client.producer.outage_log import LostPosts, OutageLog
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from pocketmq.remoting.codes import ResponseCode
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pocketmq.client.producer")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        f"{record.levelname} {record.message}"
        for record in caplog.records
        if record.name.startswith("pocketmq.client.producer")
    ]


async def test_a_broker_that_is_away_is_one_warning_and_one_line_when_it_is_back(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.put("T", "a")
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        await p.send(Message("T", b"x"))
        await cluster["a"].stop()
        sends = [asyncio.create_task(p.send(Message("T", b"x"))) for _ in range(200)]
        await until(lambda: told(caplog))
        await cluster["a"].start()
        await asyncio.gather(*sends)
    away, back = told(caplog)
    address = cluster["a"].address
    assert away.startswith(f"WARNING producer group PG cannot connect to broker a at {address};")
    assert back.startswith(f"INFO producer group PG is connected to broker a at {address} again")


async def test_sends_that_time_out_are_told_to_their_callers_and_not_in_the_log_each(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.put("T", "a")
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        await p.send(Message("T", b"x"))
        await cluster["a"].stop()
        p.timeout = 0.3
        for _ in range(2):
            outcomes = await asyncio.gather(
                *(p.send(Message("T", b"x")) for _ in range(100)), return_exceptions=True
            )
            assert {type(outcome) for outcome in outcomes} == {SendTimeout}
    [line] = told(caplog)
    assert line.startswith("WARNING producer group PG cannot connect")


async def test_posts_that_nobody_waits_for_are_one_warning_and_counted(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.put("T", "a")
    cluster["a"].mode = ResponseCode.NO_PERMISSION
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        for _ in range(3):
            posted = await p.post(Message("T", b"x"))
            await p.post(Message("T", b"y"))
            await p.flush()
            with pytest.raises(SendError):
                await posted
        [began] = told(caplog)
        cluster["a"].mode = None
        await p.send(Message("T", b"a send by itself is not looked at"))
        await (await p.post(Message("T", b"x")))
        _, ended = told(caplog)
    assert began.startswith("WARNING producer group PG, topic T: 2 posted messages were not stored")
    assert "NO_PERMISSION" in began
    assert ended.startswith("INFO producer group PG, topic T: messages are stored again after")
    assert ended.endswith("6 posted messages were not")


def test_the_brokers_that_are_remembered_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    log = OutageLog("PG", lambda address: None, lambda: 0.0)
    for number in range(3000):
        log.away(f"h:{number}", RemotingConnectError("no"))
    caplog.clear()
    for number in range(3000):
        log.connected(f"h:{number}")
    assert len(told(caplog)) == 1000


def test_the_end_of_a_producer_tells_what_was_lost(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    lost = LostPosts("PG", lambda: now)
    lost.failed("T", 1, RemotingConnectError("no"))
    lost.failed("T", 4, RemotingConnectError("no"))
    now = 2.5
    lost.end()
    lost.end()
    _, ended = told(caplog)
    assert ended == (
        "WARNING producer group PG, topic T: "
        "5 posted messages were not stored in the 2.5 s before the shutdown"
    )
