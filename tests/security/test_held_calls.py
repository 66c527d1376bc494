"""What the servers hold while its user is shut out: a receive, a POP, a Telemetry stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import pytest

from pocketmq import Credentials, Message, Producer
from pocketmq.auth.policies import Acl, Action, Decision, Entry, Resource
from pocketmq.auth.service import signer_of
from pocketmq.auth.store import AuthTables
from pocketmq.auth.users import User, UserStatus
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.record import iter_records
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.headers import (
    GetConsumerRunningInfoRequestHeader,
    PopMessageRequestHeader,
)
from tests.client.waiting import until
from tests.proxy.conftest import grpc_port
from tests.proxy.grpc_client import GrpcClient
from tests.proxy.test_access import signed
from tests.security.conftest import ADMIN, PROPERTIES

ALICE: Final = User("alice", "alice-password-1")
NAMES: Final = ("Topic:T", "Group:G", "Topic:%RETRY%G")
#: How long a receive is held, ms.
HELD_MS: Final = 20_000

HOWS = ["password", "disabled", "deleted", "grants"]


def tables(server: EmbeddedServer) -> AuthTables:
    assert server.broker.auth is not None
    return server.broker.auth.tables


def let_in(server: EmbeddedServer) -> None:
    entries = (
        Entry(Resource.parse(name), frozenset({Action.SUB}), Decision.ALLOW) for name in NAMES
    )
    tables(server).put_user(ALICE)
    tables(server).put_acl(ALICE.username, Acl(custom=tuple(entries)))


def shut_out(server: EmbeddedServer, how: str) -> None:
    match how:
        case "password":
            tables(server).put_user(User(ALICE.username, "another-password-1"))
        case "disabled":
            disabled = User(ALICE.username, ALICE.password, user_status=UserStatus.DISABLE)
            tables(server).put_user(disabled)
        case "deleted":
            tables(server).delete_user(ALICE.username)
        case "grants":
            tables(server).put_acl(ALICE.username, Acl())


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(properties=PROPERTIES, grpc_port=0) as server:
        server.broker.tables.topics.create_if_absent("T", 1)
        let_in(server)
        yield server


async def send(server: EmbeddedServer, body: bytes) -> None:
    credentials = Credentials(ADMIN.username, ADMIN.password)
    async with Producer("P", namesrv=server.namesrv, credentials=credentials) as producer:
        await producer.send(Message("T", body))


def receive_request() -> pb.ReceiveMessageRequest:
    request = pb.ReceiveMessageRequest(batch_size=16)
    request.group.name = "G"
    request.message_queue.topic.name = "T"
    request.filter_expression.expression = "*"
    request.invisible_duration.FromMilliseconds(30_000)
    request.long_polling_timeout.FromMilliseconds(HELD_MS)
    return request


def pop_request() -> PopMessageRequestHeader:
    return PopMessageRequestHeader(
        consumer_group="G", topic="T", queue_id=-1, max_msg_nums=16, invisible_time=30_000,
        poll_time=HELD_MS, born_time=0, init_mode=0, exp_type="TAG", exp="*",
    )  # fmt: skip


@contextlib.asynccontextmanager
async def alice(server: EmbeddedServer) -> AsyncIterator[GrpcClient]:
    metadata = signed(ALICE.username, ALICE.password)
    async with GrpcClient(grpc_port(server), client_id="alice", metadata=metadata) as client:
        yield client


async def until_held(server: EmbeddedServer) -> None:
    await until(lambda: len(server.broker.components.pops.polling) > 0, timeout=60)


@pytest.mark.parametrize("how", HOWS)
async def test_a_held_receive_is_answered_once_at_most(server: EmbeddedServer, how: str) -> None:
    async with alice(server) as client:
        stream = await client.as_consumer("G", "T")
        held = asyncio.ensure_future(client.receive(receive_request(), timeout=60))
        await until_held(server)
        shut_out(server, how)
        await send(server, b"held")
        _, messages = await held
        assert {each.body for each in messages} <= {b"held"}
        await send(server, b"late")
        assert await client.receive(receive_request(), timeout=60) == (pb.UNAUTHORIZED, [])
        let_in(server)
        code, messages = await client.receive(receive_request(), timeout=60)
        assert (code, messages[-1].body) == (pb.OK, b"late")
        stream.cancel()


@pytest.mark.parametrize("how", HOWS)
async def test_a_held_pop_is_answered_once_at_most(server: EmbeddedServer, how: str) -> None:
    connection = await Connection.open(server.broker.address, sign=signer_of(ALICE))
    held = asyncio.ensure_future(
        connection.request(RequestCode.POP_MESSAGE, pop_request(), timeout=60)
    )
    await until_held(server)
    shut_out(server, how)
    await send(server, b"held")
    answer = await held
    bodies = [bytes(each.body) for each in iter_records(answer.body)]
    assert set(bodies) <= {b"held"}
    await send(server, b"late")
    refused = await connection.request(RequestCode.POP_MESSAGE, pop_request(), timeout=60)
    assert refused.code == ResponseCode.NO_PERMISSION
    let_in(server)
    answer = await connection.request(RequestCode.POP_MESSAGE, pop_request(), timeout=60)
    assert [bytes(each.body) for each in iter_records(answer.body)][-1] == b"late"
    await connection.close()


@pytest.mark.parametrize("how", HOWS)
async def test_an_open_telemetry_stream_gets_nothing_more(server: EmbeddedServer, how: str) -> None:
    root = await Connection.open(server.broker.address, sign=signer_of(ADMIN))
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group="G", client_id="alice", jstack_enable=True
    )
    async with alice(server) as client:
        stream = await client.as_consumer("G", "T")
        shut_out(server, how)
        answer = await root.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert answer.code == ResponseCode.NO_PERMISSION
        # New settings are refused on the same stream, and nothing else was sent on it.
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        settings.subscription.group.name = "G"
        settings.subscription.subscriptions.add().topic.name = "T"
        await stream.send(pb.TelemetryCommand(settings=settings))
        refusal = await stream.next()
        assert refusal.status.code == pb.UNAUTHORIZED
        assert refusal.WhichOneof("command") is None
        let_in(server)
        await stream.send(pb.TelemetryCommand(settings=settings))
        assert (await stream.next()).WhichOneof("command") == "settings"
        asked = asyncio.ensure_future(root.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header))
        assert (await stream.next()).WhichOneof("command") == "print_thread_stack_trace_command"
        asked.cancel()
        stream.cancel()
    await root.close()
