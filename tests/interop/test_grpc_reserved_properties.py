"""Every reserved property as a user property of a gRPC client: what the official proxy and its
broker make of it, and what ours do.

The names that proxies refuse are MessageConst.STRING_HASH_SET of the official release (see
SendMessageActivity.buildMessageProperty); other reserved names pass, and the broker treats them as
it does those of any client (`SET_BY`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from pocketmq.message import properties as names
from pocketmq.message.reserved import SET_BY, SetBy
from pocketmq.proxy.service.checks import REFUSED_USER_PROPERTIES
from pocketmq.remoting.codes import RequestCode
from tests.cli.running import Running

from .harness import official, proxy, wire
from .harness.official import Unavailable
from .test_reserved_properties import LAST, VALUES, Row, ask, read_all

TOPIC = "GrpcReserved"
#: Names that proxies before 5.4 let through.
LATER = frozenset(
    {names.ORIGIN_GROUP, names.PRIORITY, names.LITE_TOPIC} if official.VERSION < "5.4" else ()
)
FIRST = b"first"


class Place(NamedTuple):
    """A gRPC port, and the address of the broker behind it."""

    grpc_port: int
    broker: str


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("official")
    with ExitStack() as stack:
        try:
            server = official.start_name_server(directory)
            stack.callback(server.process.kill)
            started = proxy.start_local_proxy(directory, server.address)
            stack.callback(started.process.kill)
        except Unavailable as missing:
            pytest.skip(str(missing))
        yield Place(int(started.broker_name), started.address)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    arguments: list[str | Path] = ["serve", "--store", tmp_path_factory.mktemp("ours")]
    for option in ("--grpc-port", "--namesrv-port", "--listen-port"):
        arguments += [option, "0"]
    with Running(*arguments, "--no-dashboard") as running:
        found = running.wait_for(r"broker on (\S+), gRPC on port (\d+)")
        yield Place(int(found[2]), found[1])


async def codes(place: Place) -> dict[str, int]:
    """Send a message with each property; return the code of each answer."""
    from pocketmq.proxy.proto import service_pb2 as pb
    from tests.proxy.grpc_client import GrpcClient, message

    async with GrpcClient(place.grpc_port) as client:
        await client.as_producer(TOPIC)

        async def send(name: str) -> int:
            one = message(TOPIC, name.encode())
            one.user_properties[name] = VALUES.get(name, "1")
            answer = await client.call("SendMessage", pb.SendMessageRequest(messages=[one]))
            code: int = (answer.entries[0] if answer.entries else answer).status.code
            return code

        for _ in range(300):  # until the proxy knows the topic
            if await send("known") == pb.OK:
                break
            await asyncio.sleep(0.2)
        return {name: await send(name) for name in sorted(SET_BY)}


def rows(place: Place) -> dict[str, Row]:
    assert ask(place.broker, RequestCode.SEND_MESSAGE, TOPIC, FIRST, "") == 0
    answered = asyncio.run(codes(place))
    assert ask(place.broker, RequestCode.SEND_MESSAGE, TOPIC, LAST, "") == 0
    wire.until(partial(came, place, LAST), "the last one", 30)
    stored = {bytes(record.body).decode(): record for record in read_all(place.broker, TOPIC)}
    made = {}
    for name, code in answered.items():
        kept = dict(stored[name].properties) if name in stored else {}
        # Those that differ from message to message.
        for differs in (names.UNIQ_KEY, names.BORN_TIMESTAMP, names.BORN_HOST):
            if differs in kept:
                kept[differs] = "..."
        made[name] = Row(code, name in stored, kept)
    return made


def came(place: Place, body: bytes) -> bool:
    return any(bytes(record.body) == body for record in read_all(place.broker, TOPIC))


def test_reserved_properties_of_grpc_clients(theirs: Place, ours: Place) -> None:
    pytest.importorskip("grpc", reason="pip install grpcio")
    from pocketmq.proxy.proto import service_pb2 as pb

    official_rows, own_rows = rows(theirs), rows(ours)
    refused = pb.ILLEGAL_MESSAGE_PROPERTY_KEY
    assert {
        name for name, row in official_rows.items() if row.code == refused
    } == REFUSED_USER_PROPERTIES - LATER
    expected = {name: wanted(name, row) for name, row in official_rows.items() if name not in LATER}
    differences = {
        name: (row, own_rows[name]) for name, row in expected.items() if own_rows[name] != row
    }
    assert differences == {}


def wanted(name: str, theirs: Row) -> Row:
    """What ours is to make of a property: what the official servers do, but for the following."""
    from pocketmq.proxy.proto import service_pb2 as pb

    if SET_BY[name] is SetBy.INNER_BATCH:
        return Row(
            pb.MESSAGE_CORRUPTED, False, {}
        )  # refused with a reason, not as an internal error
    stored = dict(theirs.stored)
    # The official proxy sets them on every message; they tell nothing on one that is no half
    # message, and was not delivered before.
    for always in (names.PGROUP, names.RECONSUME_TIME):
        stored.pop(always, None)
    if name == names.INNER_BASE:
        stored.pop(name, None)  # of inner batches, which are not stored here
    return Row(theirs.code, theirs.readable, stored)
