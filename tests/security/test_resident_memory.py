"""What a server process keeps for clients that send as much as they can of one thing: by its
resident memory, since a limit in entries says little about bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import encode_command
from tests.cli.running import Running
from tests.security.resident import (
    MB,
    SERVE,
    WIDE,
    Open,
    Server,
    heartbeat,
    needs_proc,
    registration,
)

pytestmark = needs_proc


@pytest.fixture
def server() -> Iterator[Server]:
    with Running(*SERVE, "--no-grpc", "--no-dashboard") as running:
        yield Server(running)


def languages(number: int) -> bytes:
    return heartbeat(number, [f"G{number}"], language="x" * 200_000)


def expression_types(number: int) -> bytes:
    return heartbeat(number, [f"G{number}"], expressionType="x" * 400_000)


@pytest.mark.parametrize("shape", [languages, expression_types])
async def test_what_a_heartbeat_says_is_bounded(
    server: Server, open_peer: Open, shape: Callable[[int], bytes]
) -> None:
    peer = await open_peer(server.broker)
    await peer.flood(map(shape, range(1_000)), 1_000)
    # 200 to 400 MB were sent; the subscriptions of all groups may have 64.
    assert server.growth < 90 * MB


async def test_locks_are_bounded(server: Server, open_peer: Open) -> None:
    def locks(number: int) -> bytes:
        queues = [
            {"brokerName": "b", "queueId": 0, "topic": f"{number}-{n}".ljust(900, WIDE)}
            for n in range(60)
        ]
        fields = {"clientId": "c", "consumerGroup": "G", "mqSet": queues}
        body = json.dumps(fields, ensure_ascii=False).encode()
        return encode_command(RequestCode.LOCK_BATCH_MQ, number, body=body)

    peer = await open_peer(server.broker)
    assert await peer.flood(map(locks, range(250)), 250) == {0: 250}
    # Names of 54 MB.
    assert server.growth < 20 * MB


async def test_queries_that_wait_keep_no_bodies(server: Server, open_peer: Open) -> None:
    fields = {"topic": "T", "key": "k", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": "9"}

    def query(number: int) -> bytes:
        return encode_command(RequestCode.QUERY_MESSAGE, number, ext_fields=fields, body=bytes(MB))

    peers = [await open_peer(server.broker) for _ in range(8)]
    await asyncio.gather(*(peer.flood(map(query, range(100)), 100) for peer in peers))
    assert server.peak < 200 * MB


def addresses(number: int) -> bytes:
    return registration(number, {}, haServerAddr="h" * 200_000)


def zones(number: int) -> bytes:
    return registration(number, {}, __ZONE_NAME="z" * 200_000)


@pytest.mark.parametrize("shape", [addresses, zones])
async def test_what_a_broker_says_of_itself_is_bounded(
    server: Server, open_peer: Open, shape: Callable[[int], bytes]
) -> None:
    peer = await open_peer(server.namesrv)
    assert await peer.flood(map(shape, range(300)), 300) == {1: 300}
    assert server.growth < 20 * MB
