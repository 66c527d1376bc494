"""Classic replication between brokers of both makes: the copy is equal, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq import Message, Producer, TransactionProducer, TransactionState
from tests.interop.harness import ours, wire
from tests.interop.harness.ha_proxy import HaProxy
from tests.interop.harness.official import Server
from tests.interop.harness.process import killed_at_the_end
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
from tests.interop.replica_kills.kills import Kills

PAIRS = [
    "ours-ours",
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
    # Kept by both over a stop.
    end = log_end(group.master)
    group.stop_all()
    group.restart(0)
    group.restart(1)
    wait_connected(group)
    assert wait_copied(group) >= end
    assert_equal_files(group)
    if slave == "official" and not request.config.getoption("--long"):
        return  # an official slave takes half a minute
    # Another slave that starts empty gets the newest file only.
    newest = log_end(group.master) // MIB * MIB
    assert newest > 0
    group.start(slave, 2)
    wait_connected(group, 2)
    asyncio.run(send_large(group.namesrv))
    assert_equal_files(group, 2)
    assert min(commit_log(group.members[2], log_end(group.master))) >= newest


def test_an_acknowledged_message_is_on_the_slave_whoever_is_killed(group: Group) -> None:
    """A sample; `python -m tests.interop.replica_kills` does more rounds, and other pairs."""
    kills = Kills(group, "ours", "ours", seed=3)
    for _ in range(2):
        kills.round(1.5)
    kills.check_all()
    assert kills.faults == []
    assert kills.acknowledged
