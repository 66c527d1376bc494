"""Classic replication between brokers of both makes: the copy is equal, byte by byte."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq import Message, Producer, TransactionProducer, TransactionState
from pocketmq.remoting.codes import ResponseCode
from tests.interop.harness import ours, wire
from tests.interop.harness.ha_proxy import HaProxy
from tests.interop.harness.official import JavaPeer, Server
from tests.interop.harness.process import killed_at_the_end
from tests.interop.harness.reading import bodies_in, read_queue
from tests.interop.harness.replicas import (
    MIB,
    Group,
    assert_equal_files,
    commit_log,
    has_bytes,
    log_end,
    wait_connected,
    wait_copied,
)
from tests.interop.harness.sending import commit, send, send_half
from tests.interop.replica_kills.kills import Acknowledged, Kills, LogFiles

PAIRS = [
    # Each end of ours has the same with an official one.
    pytest.param("ours-ours", marks=pytest.mark.long),
    "ours-official",
    "official-ours",
    pytest.param("official-official", marks=pytest.mark.long),  # to compare with
]
HALF = 100_000  # bytes of a record of twice that size


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with killed_at_the_end():
        yield Group(tmp_path, ours.start_name_server(tmp_path))


def needs_java(pair: str, request: pytest.FixtureRequest) -> tuple[str, str]:
    if "official" in pair:
        request.getfixturevalue("jars")
    master, slave = pair.split("-")
    return master, slave


async def traffic(namesrv: Server, count: int = 60, size: int = 10_000) -> None:
    """Singles, batches, delays and transactions, over more than one file of the log."""
    async with Producer("replicas", namesrv=namesrv.address, compression=None) as producer:
        for number in range(count):
            await producer.send(Message("Singles", b"s" * size, tags=f"tag{number % 3}"))
        await producer.send_batch(
            [Message("Batches", b"b" * 100, keys=[f"k{n}"]) for n in range(50)]
        )
        for level in (1, 3):
            await producer.send(Message("Delayed", b"d", delay_level=level))
    async with TransactionProducer(
        "replicas-tx", namesrv=namesrv.address, check=lambda message: TransactionState.COMMIT
    ) as producer:
        async with producer.transaction(Message("Transactions", b"yes")) as transaction:
            transaction.commit()
        async with producer.transaction(Message("Transactions", b"no")) as transaction:
            transaction.rollback()


async def send_large(namesrv: Server) -> None:
    async with Producer("large", namesrv=namesrv.address, compression=None) as producer:
        await producer.send(Message("Large", b"L" * 2 * HALF))


@pytest.mark.parametrize("pair", PAIRS)
def test_the_copy_is_equal(pair: str, group: Group, request: pytest.FixtureRequest) -> None:
    """A slave that starts empty, one that is killed in the middle of a record and is away for a
    while, one that stops, and one that comes when the master has several files."""
    master, slave = needs_java(pair, request)
    group.start(master, 0)
    proxy = HaProxy(group.ha_address())
    # The name server tells the slave the proxy's address in place of the master's.
    told = {group.ha_address().encode(): proxy.address.encode()}
    group.start(slave, 1, namesrvAddr=HaProxy(group.namesrv.address, told).address)
    wait_connected(group)
    asyncio.run(traffic(group.namesrv))
    assert_equal_files(group)
    end = log_end(group.slave)
    proxy.let_pass(HALF)
    asyncio.run(send_large(group.namesrv))
    wire.until(lambda: has_bytes(group.slave, end), "a part of a record is there")
    group.slave.process.kill()
    proxy.cut()
    asyncio.run(traffic(group.namesrv))
    group.restart(1)
    wait_connected(group)
    asyncio.run(traffic(group.namesrv))
    assert_equal_files(group)
    if slave == "official" and not request.config.getoption("--long"):
        return  # an official slave takes half a minute each time
    # Kept by both over a stop.
    end = log_end(group.master)
    group.stop_all()
    group.restart(0)
    group.restart(1)
    wait_connected(group)
    assert wait_copied(group) >= end
    assert_equal_files(group)
    # Another slave that starts empty gets the newest file only.
    newest = log_end(group.master) // MIB * MIB
    assert newest > 0
    group.start(slave, 2)
    wait_connected(group, 2)
    asyncio.run(send_large(group.namesrv))
    assert_equal_files(group, 2)
    assert min(commit_log(group.members[2], log_end(group.master))) >= newest


@pytest.mark.parametrize("pair", PAIRS)
def test_a_send_is_answered_when_the_slave_has_it(
    pair: str, group: Group, request: pytest.FixtureRequest
) -> None:
    """And readable there soon after; without the slave each one is stored, but not confirmed.

    After the reference's HATest. A master of ours takes the slave because its address is listed,
    for which the slave needs no setting.
    """
    master, slave = needs_java(pair, request)
    listed: dict[str, Any] = {}
    if master == "ours":
        listed["haAllowedAddresses"] = "10.0.0.0/8;127.0.0.1"
    group.start(
        master, 0, brokerRole="SYNC_MASTER", inSyncReplicas=2, slaveTimeout=3000,
        haSendHeartbeatInterval=500, **listed,
    )  # fmt: skip
    assert send(group.master.address, "Semi", b"0").code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    group.start(slave, 1)
    wait_connected(group)
    for number in range(1, 11):
        body = b"%d" % number
        answer = send(group.master.address, "Semi", body)
        assert answer.code == 0, answer.remark
        place = int(answer.ext_fields["msgId"][-16:], 16)
        assert not LogFiles(group.slave).missing(Acknowledged(place, 0, number, body))
    if slave == "ours" or request.config.getoption("--long"):
        wire.until(
            lambda: bodies_in(group.slave.address, "Semi") == [b"%d" % n for n in range(11)],
            "all are readable on the slave",
            5 if slave == "ours" else 75,  # an official one fetches the topic after a minute
            0.1,
        )
    group.slave.process.kill()
    for _ in range(2):
        answer = send(group.master.address, "Semi", b"alone")
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT, answer.remark
    assert bodies_in(group.master.address, "Semi")[11:] == [b"alone"] * 2


@pytest.mark.long  # with our own slaves, CI runs the same
@pytest.mark.parametrize("auto", [False, True])
def test_sends_without_enough_official_slaves(auto: bool, group: Group, jars: Path) -> None:
    """enableSlaveActingMaster and enableAutoInSyncReplicas of our master: too few copies refuse a
    send before it is stored, or are enough (SendMultipleReplicasIT)."""
    group.start(
        "ours", 0, brokerRole="SYNC_MASTER", inSyncReplicas=2, enableSlaveActingMaster=True,
        enableAutoInSyncReplicas=auto,
    )  # fmt: skip
    group.start("official", 1)
    wait_connected(group)
    wire.until(lambda: not send(group.master.address, "Few", b"0").code, "the slave is in sync")
    group.slave.process.kill()
    wait_connected(group, 0)
    wanted = (0, None) if auto else (1, "in-sync replicas not enough")
    wire.until(
        lambda: send(group.master.address, "Few", b"1")[:2] == wanted, f"the answer is {wanted}"
    )
    group.restart(1)
    wait_connected(group)
    wire.until(lambda: not send(group.master.address, "Few", b"2").code, "the slave is back")
    assert_equal_files(group)


@pytest.mark.parametrize(
    "pair", ["ours-ours", pytest.param("official-ours", marks=pytest.mark.long)]
)
def test_the_java_client_reads_from_our_slave_while_the_master_is_away(
    pair: str, group: Group, java: JavaPeer
) -> None:
    """After the reference's PushMultipleReplicasIT; it follows the master when that is back."""
    master, slave = pair.split("-")
    client = {"namesrv": group.namesrv.address, "group": "Away", "topic": "Pushed"}
    group.start(master, 0)
    wire.until(lambda: not send(group.master.address, "Pushed", b"0").code, "a send is taken")
    group.start(slave, 1)
    wait_connected(group)
    for number in range(1, 10):
        assert send(group.master.address, "Pushed", b"%d" % number).code == 0
    wait_copied(group)
    wire.until(
        lambda: len(bodies_in(group.slave.address, "Pushed")) == 10, "the slave knows the topic"
    )
    group.master.process.kill()
    wire.until(
        lambda: "group" not in wire.registered_brokers(group.namesrv.address),
        "the name server knows that the master is away",
    )
    java("push-start", **client, expression="*", queues=1)
    try:
        read = java("push-collect", group="Away", count=10, timeoutMillis=30_000)
        assert {message["body"] for message in read} == {str(number) for number in range(10)}
        assert len(read) == 10
        group.restart(0)
        wire.until(
            lambda: not send(group.master.address, "Pushed", b"back").code, "a send is taken"
        )
        [last] = java("push-collect", group="Away", count=1, timeoutMillis=60_000)
        assert last["body"] == "back"
    finally:
        java("push-stop", group="Away")


@pytest.mark.long
def test_a_single_store_becomes_a_pair_and_moves_to_official_brokers_and_back(
    group: Group, jars: Path, tmp_path: Path
) -> None:
    """With messages that wait for their time, and a transaction that ends on the last broker."""
    first, second = tmp_path / "first", tmp_path / "second"
    settings: dict[str, object] = {"transactionTimeOut": 3_600_000}
    sync = settings | {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}
    single = group.start("ours", 0, store=first, **settings)
    asyncio.run(traffic(group.namesrv))
    assert send(single.address, "Whole", b"plain").code == 0
    half = send_half(single.address, "Whole", b"half")
    assert half.code == 0
    for level in ("0", "6", "18"):  # at once, after 2 min and after 2 h
        assert send(single.address, "Late", level.encode(), DELAY=level).code == 0
    before = len(places_in(single, "Singles"))
    assert single.process.terminate() == 0
    # The slave gets the history as a copy of the stopped store.
    shutil.copytree(first, second, ignore=shutil.ignore_patterns("lock"))
    group.start("ours", 0, store=first, **sync)
    group.start("official", 1, store=second, **settings)
    wait_connected(group)
    asyncio.run(traffic(group.namesrv))
    wait_delivered(group.master, 2)
    assert_equal_files(group)
    assert min(commit_log(group.slave, log_end(group.master))) == 0
    group.stop_all()
    # The official broker leads, and ours copies it.
    group.start("official", 0, store=second, **sync)
    group.start("ours", 1, store=first, **settings)
    wait_connected(group)
    asyncio.run(traffic(group.namesrv))
    wait_delivered(group.master, 3)
    assert_equal_files(group)
    group.stop_all()
    last = group.start("ours", 0, store=first, **settings)
    asyncio.run(traffic(group.namesrv))
    assert len(places_in(last, "Singles")) == 4 * before
    assert bodies_in(last.address, "Whole") == [b"plain"]
    assert commit(last.address, half).code == 0
    wire.until(
        lambda: bodies_in(last.address, "Whole") == [b"plain", b"half"], "the commit is seen"
    )
    wire.until(lambda: set(bodies_in(last.address, "Late")) == {b"0", b"6"}, "it is delivered", 150)


def wait_delivered(server: Server, rounds: int) -> None:
    """Until the master has delivered what `traffic` delays: it stores nothing by itself then, so
    that its slave does not lack anything when it is stopped."""
    wire.until(lambda: len(places_in(server, "Delayed")) >= 2 * rounds, "all is delivered", 60, 0.5)


def places_in(server: Server, topic: str) -> list[tuple[int, int]]:
    """Queue and offset of each message that is read from a topic; none is missing in between."""
    return [
        (queue_id, record.queue_offset)
        for queue_id in range(4)
        for record in read_queue(server.address, topic, queue_id)
    ]


def test_an_acknowledged_message_is_on_the_slave_whoever_is_killed(group: Group) -> None:
    """A sample; `python -m tests.interop.replica_kills` does more rounds, and other pairs."""
    kills = Kills(group, "ours", "ours", seed=3)
    for _ in range(2):
        kills.round(1.5)
    kills.check_all()
    assert kills.faults == []
    assert kills.acknowledged
