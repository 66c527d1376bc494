"""POP consumption: the same clients on both makes of brokers, and stores that change hands.

The raw client of tests/broker/pop speaks to either broker. The Java client is the push consumer
that lets the broker share out the queues (setClientRebalance(false)).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pocketmq.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody, bit_set_of
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import PopMessageResponseHeader
from tests.broker.conftest import Client
from tests.broker.pop.consuming import PopClient, Popped
from tests.interop.harness import official, ours, wire
from tests.interop.harness.cluster import BROKER_NAME, Cluster
from tests.interop.harness.mqadmin import Both, normal
from tests.interop.harness.official import JavaPeer, Server

PATIENCE = 90.0


@asynccontextmanager
async def connected(
    address: str, topic: str, group: str = "G", broker_name: str = BROKER_NAME
) -> AsyncIterator[PopClient]:
    client = Client()
    await client.open(address)
    try:
        yield PopClient(client, topic, group, broker_name)
    finally:
        await client.close()


async def send(pops: PopClient, *bodies: bytes, queue_id: int = 0) -> None:
    for body in bodies:
        answer = await pops.client.send(pops.topic, body, queue_id=queue_id)
        assert answer.code == 0, answer.remark


def bodies(messages: list[Popped]) -> list[bytes]:
    return sorted(message.body for message in messages)


async def popped_in_all(pops: PopClient, count: int, **fields: Any) -> list[Popped]:
    """So many messages, of as many pops as that takes."""
    found: list[Popped] = []
    end = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < end:
        found += await pops.pop(poll_time=2_000, **fields)
    return found


# --- the raw client -------------------------------------------------------------------------------


@pytest.mark.long("official")
async def test_what_is_acknowledged_stays_away_and_the_rest_comes_back(
    cluster: Cluster, topic: str
) -> None:
    async with connected(cluster.broker.address, topic) as pops:
        await send(pops, b"0", b"1", b"2")
        await send(pops, b"3", queue_id=2)
        got = await popped_in_all(pops, 4, invisible_time=5_000)
        assert bodies(got) == [b"0", b"1", b"2", b"3"]
        assert {message.record.reconsume_times for message in got} == {0}
        acked = {b"1", b"3"}
        for message in got:
            if message.body in acked:
                assert (await pops.ack(message)).code == 0
        back = await popped_in_all(pops, 2)
        assert bodies(back) == [b"0", b"2"]
        for message in back:
            assert message.record.reconsume_times == 1
            assert message.record.topic == topic
            assert message.handle.stored_topic(topic, "G") == f"%RETRY%G_{topic}"
            assert "1ST_POP_TIME" in message.record.properties
            assert (await pops.ack(message)).code == 0
        assert await pops.pop(poll_time=3_000) == []


async def test_the_answers_of_pops(cluster: Cluster, topic: str) -> None:
    async with connected(cluster.broker.address, topic) as pops:
        await send(pops, b"0", b"1", b"2")
        answer = await pops.request(queue_id=0, max_msg_nums=2)
        header = PopMessageResponseHeader.from_ext(answer.ext_fields)
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert (header.start_offset_info, header.msg_offset_info) == ("0 0 0", "0 0 0,1")
        assert (header.rest_num, header.invisible_time) == (1, 60_000)
        assert header.order_count_info is None
        rest = PopMessageResponseHeader.from_ext((await pops.request()).ext_fields)
        assert (rest.start_offset_info, rest.msg_offset_info) == ("0 0 2", "0 0 2")
        nothing = await pops.request()
        assert (nothing.code, nothing.remark) == (210, "NO_MESSAGE_IN_QUEUE")
        codes = {}
        wrong: dict[str, dict[str, Any]] = {
            "topic": {"topic": "NoSuchTopic"},
            "queue": {"queue_id": 9},
            "count": {"max_msg_nums": 33},
            "filter": {"exp": "n >", "exp_type": "SQL92"},
        }
        for name, fields in wrong.items():
            codes[name] = (await pops.request(**fields)).code
        assert codes == {"topic": 17, "queue": 29, "count": 29, "filter": 23}


@pytest.mark.long("official")
async def test_a_batch_of_acknowledgements(cluster: Cluster, topic: str) -> None:
    async with connected(cluster.broker.address, topic) as pops:
        await send(pops, *[b"%d" % n for n in range(5)])
        got = await popped_in_all(pops, 5, invisible_time=5_000)
        handle = got[0].handle
        ack = BatchAck(
            consumer_group="G",
            topic=topic,
            retry="0",
            start_offset=handle.start_offset,
            queue_id=0,
            revive_queue_id=handle.revive_queue_id,
            pop_time=handle.pop_time,
            invisible_time=handle.invisible_time,
            bit_set=bit_set_of(handle.start_offset, [0, 1, 3]),
        )
        body = BatchAckMessageRequestBody(acks=[ack], broker_name=BROKER_NAME).encode()
        answer = await pops.client.request(RequestCode.BATCH_ACK_MESSAGE, None, body)
        assert answer.code == 0
        assert bodies(await popped_in_all(pops, 2)) == [b"2", b"4"]


async def test_a_changed_invisible_time(cluster: Cluster, topic: str) -> None:
    async with connected(cluster.broker.address, topic) as pops:
        await send(pops, b"0", b"1")
        first, second = await popped_in_all(pops, 2)
        given_back = time.monotonic()
        await pops.change(first, 1_000)
        longer = await pops.change(second, 120_000)
        async with connected(cluster.broker.address, topic) as others:
            (back,) = await popped_in_all(others, 1)
            took = time.monotonic() - given_back
            assert (back.body, back.record.reconsume_times) == (b"0", 1)
            assert took >= 1.0
            assert (await others.ack(back)).code == 0
        assert (await pops.ack(longer)).code == 0


async def test_in_order(cluster: Cluster, topic: str) -> None:
    async with connected(cluster.broker.address, topic) as pops:
        await send(pops, b"0", b"1", b"2", b"3")
        order = {"order": True, "queue_id": 0, "max_msg_nums": 2, "invisible_time": 60_000}
        answer = await pops.request(**order, attempt_id="a")
        header = PopMessageResponseHeader.from_ext(answer.ext_fields)
        assert (header.revive_qid, header.order_count_info) == (999, "0 0 0")
        assert await pops.pop(**order, attempt_id="b") == []
        again = await pops.request(**order, attempt_id="a")
        header = PopMessageResponseHeader.from_ext(again.ext_fields)
        assert header.order_count_info == "0 0 0"
        got = await pops.pop(**order, attempt_id="a")
        assert bodies(got) == [b"0", b"1"]
        assert (await pops.ack(got[1])).code == 0
        assert await pops.pop(**order, attempt_id="b") == []
        await pops.change(got[0], 1_000)
        (first, third) = await popped_in_all(pops, 2, **order, attempt_id="c")
        assert (first.body, third.body) == (b"0", b"1")
        for message in (first, third):
            assert (await pops.ack(message)).code == 0
        answer = await pops.request(**order, attempt_id="d")
        header = PopMessageResponseHeader.from_ext(answer.ext_fields)
        assert header.msg_offset_info == "0 0 2,3"


# --- the Java push consumer -----------------------------------------------------------------------


def prepare(java: JavaPeer, cluster: Cluster, topic: str, group: str) -> str:
    """A topic that the group pops from; gives what setConsumeMode printed."""
    address = cluster.broker.address
    made = java.mqadmin(
        "updateTopic", "-n", cluster.address, "-b", address, "-t", topic, "-r", "4", "-w", "4"
    )
    assert "success" in made
    java.mqadmin("updateSubGroup", "-n", cluster.address, "-b", address, "-g", group)
    return java.mqadmin(
        "setConsumeMode", "-n", cluster.address, "-b", address, "-t", topic, "-g", group,
        "-m", "POP", "-q", "8",
    )  # fmt: skip


def java_send(java: JavaPeer, cluster: Cluster, topic: str, messages: list[dict[str, Any]]) -> None:
    java("send", namesrv=cluster.address, group="P", topic=topic, mode="sync", messages=messages)


def collect(java: JavaPeer, group: str, count: int, seconds: float = PATIENCE) -> list[Any]:
    return list(java("pop-collect", group=group, count=count, timeoutMillis=int(seconds * 1000)))


@pytest.mark.long("official")
def test_java_consumers_share_every_queue(java: JavaPeer, cluster: Cluster, topic: str) -> None:
    group = f"pop_{topic}"
    prepare(java, cluster, topic, group)
    java(
        "pop-start", namesrv=cluster.address, group=group, topic=topic, members=2,
        maxReconsumeTimes=3,
    )  # fmt: skip
    try:
        java_send(java, cluster, topic, [{"body": f"{n:03}"} for n in range(200)])
        got = collect(java, group, 200)
        assert sorted(one["body"] for one in got) == [f"{n:03}" for n in range(200)]
        assert all(one["popped"] for one in got)
        # Longer than the invisible time: what was acknowledged does not come again.
        assert collect(java, group, 1, 14.0) == []
    finally:
        java("pop-stop", group=group)


@pytest.mark.long
def test_java_failures_come_again_until_the_client_gives_up(
    java: JavaPeer, cluster: Cluster, topic: str
) -> None:
    group = f"pop_{topic}"
    prepare(java, cluster, topic, group)
    java(
        "pop-start", namesrv=cluster.address, group=group, topic=topic, members=1,
        maxReconsumeTimes=1,
    )  # fmt: skip
    try:
        java_send(
            java, cluster, topic,
            [
                {"body": "good"},
                {"body": "second", "properties": {"succeeds": "2"}},
                {"body": "never", "properties": {"succeeds": "99"}},
            ],
        )  # fmt: skip
        got = collect(java, group, 5)
        times = sorted((one["body"], one["reconsumeTimes"]) for one in got)
        assert times == [("good", 0), ("never", 0), ("never", 1), ("second", 0), ("second", 1)]
        # It comes once more, 30 s later. The client then acknowledges it without a word to its
        # listener: in POP mode, it has no dead letters.
        assert collect(java, group, 1, 50.0) == []
        dead = {"topic": f"%DLQ%{group}", "queueId": "0"}
        answer = wire.call(cluster.broker.address, RequestCode.GET_MAX_OFFSET, dead)
        assert answer.ext_fields.get("offset", "0") == "0"
    finally:
        java("pop-stop", group=group)


def test_the_mode_is_set_by_mqadmin(
    java: JavaPeer, both: Both, new_topic: str, our_cluster: Cluster, official_cluster: Cluster
) -> None:
    theirs, own = both(
        "setConsumeMode", "-b", "BROKER", "-t", new_topic, "-g", "G", "-m", "POP", "-q", "3"
    )
    assert normal(own) == normal(theirs)
    assert "success" in own
    for wrong in (("-t", "NoSuchTopic", "-g", "G"), ("-t", f"%RETRY%{new_topic}", "-g", "G")):
        theirs, own = both("setConsumeMode", "-b", "BROKER", *wrong, "-m", "POP")
        assert normal(own).splitlines()[:1] == normal(theirs).splitlines()[:1]


# --- stores that change hands ---------------------------------------------------------------------


def start(make: str, tmp_path: Path, namesrv: str, store: Path) -> Server:
    starter = ours.start_broker if make == "ours" else official.start_broker
    return starter(tmp_path / make, namesrv, name="exchanged", store=store)


@pytest.mark.long("cleanly")
@pytest.mark.parametrize("stop", ["cleanly", "by SIGKILL"])
@pytest.mark.parametrize(
    ("before", "after"),
    [pytest.param("ours", "official", marks=pytest.mark.long), ("official", "ours")],
)
async def test_open_checkpoints_go_to_the_other_broker(
    jars: Path, tmp_path: Path, own_namesrv: Server, before: str, after: str, stop: str
) -> None:
    store, topic, group = tmp_path / "store", "Exchanged", "G"
    broker = await asyncio.to_thread(start, before, tmp_path, own_namesrv.address, store)
    async with connected(broker.address, topic, group, "exchanged") as pops:
        await send(pops, *[b"%d" % n for n in range(8)])
        first = await popped_in_all(pops, 4, max_msg_nums=4, invisible_time=30_000)
        # These two are acknowledged after the checkpoint is on the disk, and before.
        assert (await pops.ack(first[0])).code == 0
        await asyncio.sleep(12.0)
        assert (await pops.ack(first[1])).code == 0
        # Acknowledged below, once the other broker has started.
        changed = await pops.change(first[2], 90_000)
        # Longer than a busy machine needs to start the other broker.
        second = await popped_in_all(pops, 2, max_msg_nums=2, invisible_time=600_000)
        await asyncio.sleep(6.0)  # offsets are on the disk
    if stop == "cleanly":
        assert await asyncio.to_thread(broker.process.terminate) in (0, 143)
    else:
        broker.process.kill()
    out = {message.body for message in second}

    broker = await asyncio.to_thread(start, after, tmp_path, own_namesrv.address, store)
    try:
        async with connected(broker.address, topic, group, "exchanged") as pops:
            # A handle of the broker before is good here.
            assert (await pops.ack(changed)).code == 0
            got: list[Popped] = []
            end = time.monotonic() + 60
            while time.monotonic() < end and not {b"3", b"6", b"7"} <= {m.body for m in got}:
                got += await pops.pop(poll_time=2_000)
            again = {message.body for message in got}
            # What was popped and not acknowledged, and what was never popped.
            assert {b"3", b"6", b"7"} <= again
            assert not again & {b"0", b"1", b"2"}
            if stop == "cleanly":
                assert len(got) == len(again)
                assert not again & out  # these are still invisible
            retried = {m.body for m in got if m.record.reconsume_times}
            assert b"3" in retried
    finally:
        broker.process.kill()
