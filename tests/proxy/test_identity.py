"""A name that a client claims gives no right: clients are of the user who signs their calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pocketmq.auth.policies import Acl, Action, Decision, Entry, Resource
from pocketmq.auth.store import AuthTables
from pocketmq.auth.users import User
from pocketmq.client.instance import ClientInstance
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.receipt_handle import ReceiptHandle
from pocketmq.message.retry_topic import TopicKind
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.port.broker_port import Registration
from pocketmq.proxy.port.remote import MAX_GROUPS_OF_USER, RemotePort
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.rpc import Call, Duplex, GrpcError, ServerStream, Unary
from pocketmq.proxy.server import Proxy
from pocketmq.proxy.service.access import Access
from pocketmq.proxy.service.clients import Clients
from pocketmq.proxy.service.message_codec import now_ms
from pocketmq.proxy.service.messaging import SERVICE, Messaging
from pocketmq.proxy.service.status import ServiceError
from pocketmq.remoting.serving.request import Caller, Request, Response
from tests.proxy.conftest import create_topics, grpc_port
from tests.proxy.grpc_client import GrpcClient, message
from tests.proxy.test_access import PROPERTIES, every_request, signed

TRANSACTIONS = {"transactionTimeOut": "200", "transactionCheckInterval": "200"}
NAMES = ("alice", "bob", "eve")


class Users:
    """The users of a proxy, and what each may do."""

    def __init__(self, tables: AuthTables) -> None:
        self.tables = tables
        for name in NAMES:
            tables.put_user(User(name, f"{name}-secret"))

    def grant(self, name: str, *resources: str) -> None:
        entries = (
            Entry(Resource.parse(r), frozenset({Action.PUB, Action.SUB}), Decision.ALLOW)
            for r in resources
        )
        self.tables.put_acl(name, Acl(custom=tuple(entries)))


def client_of(port: int, name: str, client_id: str) -> GrpcClient:
    return GrpcClient(port, client_id=client_id, metadata=signed(name, f"{name}-secret"))


@contextlib.asynccontextmanager
async def local() -> AsyncIterator[tuple[int, Users]]:
    async with EmbeddedServer(grpc_port=0, properties=PROPERTIES | TRANSACTIONS) as server:
        assert server.broker.auth is not None
        for topic, kind in (("Normal", "NORMAL"), ("Transaction", "TRANSACTION")):
            server.broker.tables.topics.create_if_absent(topic, 1)
            server.broker.tables.topics.table[topic].attributes["message.type"] = kind
        yield grpc_port(server), Users(server.broker.auth.tables)


@contextlib.asynccontextmanager
async def cluster() -> AsyncIterator[tuple[int, Users]]:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(EmbeddedServer(properties=TRANSACTIONS))
        await create_topics(server.namesrv)
        port = RemotePort(ClientInstance(server.namesrv, owner="proxy"))
        await port.start()
        stack.push_async_callback(port.stop)
        tables = AuthTables(Path())
        access = Access(tables, authorize=True)
        proxy = Proxy(ProxyConfig(grpc_server_port=0), port, access=access)
        await stack.enter_async_context(proxy)
        yield proxy.port, Users(tables)


OpenProxy = Callable[[], contextlib.AbstractAsyncContextManager[tuple[int, Users]]]
PROXIES = pytest.mark.parametrize("proxy", [local, cluster])


@PROXIES
async def test_a_transaction_is_recovered_by_who_may_publish(proxy: OpenProxy) -> None:
    async with proxy() as (port, users):
        for name in ("alice", "bob"):
            users.grant(name, "Topic:Transaction")
        async with client_of(port, "alice", "a") as alice, client_of(port, "bob", "b") as bob:
            asked = await alice.as_producer("Transaction")
            stream = await bob.as_producer("Transaction")
            users.grant("bob")
            halves = [
                message("Transaction", b"secret", message_type=pb.TRANSACTION) for _ in range(4)
            ]
            answer = await alice.call("SendMessage", pb.SendMessageRequest(messages=halves[:1]))
            assert answer.status.code == pb.OK
            for half in halves[1:]:
                await alice.call("SendMessage", pb.SendMessageRequest(messages=[half]))
            for _ in halves:
                command = await asked.next(30)
                assert command.recover_orphaned_transaction_command.message.body == b"secret"
            # What comes next on the other stream is the answer to its settings.
            await stream.send(pb.TelemetryCommand(settings=stream.settings.settings))
            assert (await stream.next()).WhichOneof("command") is None


@PROXIES
async def test_a_client_is_terminated_by_its_own_user_only(proxy: OpenProxy) -> None:
    async with proxy() as (port, users):
        users.grant("alice", "Topic:Normal")
        heartbeat = pb.HeartbeatRequest(client_type=pb.PRODUCER)
        goodbye = pb.NotifyClientTerminationRequest()
        async with client_of(port, "alice", "a") as alice, client_of(port, "eve", "a") as eve:
            await alice.as_producer("Normal")
            for name, request in (
                ("NotifyClientTermination", goodbye),
                ("Heartbeat", heartbeat),
            ):
                status = (await eve.call(name, request)).status
                assert status.code == pb.UNAUTHORIZED
                assert status.message == "the client id a belongs to another user"
            assert (await alice.call("Heartbeat", heartbeat)).status.code == pb.OK
            assert (await alice.call("NotifyClientTermination", goodbye)).status.code == pb.OK
            code = (await alice.call("Heartbeat", heartbeat)).status.code
            assert code == pb.UNRECOGNIZED_CLIENT_TYPE
            users.grant("eve", "Topic:Normal")
            assert (await eve.as_producer("Normal")).settings.HasField("settings")


@PROXIES
async def test_settings_for_the_client_of_another_user_are_refused(proxy: OpenProxy) -> None:
    async with proxy() as (port, users):
        users.grant("alice", "Topic:Normal")
        users.grant("eve", "Topic:Normal")
        async with client_of(port, "alice", "a") as alice, client_of(port, "eve", "a") as eve:
            await alice.as_producer("Normal")
            refused = (await eve.as_producer("Normal")).settings
            assert not refused.HasField("settings")
            assert refused.status.code == pb.UNAUTHORIZED


@PROXIES
async def test_a_transaction_of_another_topic_cannot_be_ended(proxy: OpenProxy) -> None:
    """Even if the topic that one may publish to is named as the producer group of the other."""
    async with proxy() as (port, users):
        users.grant("alice", "Topic:Transaction")
        users.grant("eve", "Topic:Normal")
        async with client_of(port, "alice", "a") as alice, client_of(port, "eve", "e") as eve:
            half = message("Transaction", b"secret", message_type=pb.TRANSACTION)
            answer = await alice.call("SendMessage", pb.SendMessageRequest(messages=[half]))
            end = pb.EndTransactionRequest(
                transaction_id=answer.entries[0].transaction_id,
                message_id=answer.entries[0].message_id,
                resolution=pb.COMMIT,
            )
            end.topic.name = "Normal"
            refused = await eve.call("EndTransaction", end)
            assert refused.status.code == pb.INVALID_TRANSACTION_ID
            end.topic.name = "Transaction"
            assert (await alice.call("EndTransaction", end)).status.code == pb.OK


@PROXIES
async def test_a_handle_that_was_made_up_brings_nothing_of_another_topic(proxy: OpenProxy) -> None:
    """What a handle names comes back as a retry of the group that says that it popped it."""
    async with proxy() as (port, users):
        users.grant("alice", "Topic:Normal")
        users.grant("eve", "Group:eve*")
        async with client_of(port, "alice", "a") as alice, client_of(port, "eve", "e") as eve:
            sent = pb.SendMessageRequest(messages=[message("Normal", b"secret")])
            handle = ReceiptHandle(0, now_ms(), 60_000, 0, TopicKind.NORMAL, "broker-a", 0, 0)
            assert (await alice.call("SendMessage", sent)).status.code == pb.OK
            change = pb.ChangeInvisibleDurationRequest(receipt_handle=handle.encode())
            change.group.name, change.topic.name = "eve", "Normal"
            change.invisible_duration.SetInParent()
            answer = await eve.call("ChangeInvisibleDuration", change)
            assert answer.status.code == pb.UNAUTHORIZED


class NoPort:
    """No calls that are refused come to it."""

    local = False

    def open(self, client_id: str, *others: object) -> None:
        assert client_id == "pocketmq-proxy"


class Addressee:
    """A link that nothing is sent on."""

    caller = None

    def close(self) -> None:
        pass


class SilentPort(NoPort):
    """A port whose clients send nothing."""

    def open(self, client_id: str, *others: object) -> Addressee:  # type: ignore[override]
        return Addressee()


def call(client_id: str, host: str) -> Call:
    made = Call("QueryRoute", (host, 1), {b"x-mq-client-id": client_id.encode()})
    made.checked = True
    return made


async def test_the_clients_of_one_user_leave_room_for_others() -> None:
    clients = Clients(SilentPort(), None)  # type: ignore[arg-type]
    for n in range(20_000):
        clients.of(call(f"{n}", "192.0.2.1"))
    with pytest.raises(ServiceError, match=r"of them of 192\.0\.2\.1"):
        clients.of(call("one more", "192.0.2.1"))
    first = clients.of(call("0", "192.0.2.1"))
    clients.of(call("another", "192.0.2.2"))
    clients.forget(first)
    clients.of(call("one more", "192.0.2.1"))


async def test_the_settings_of_all_clients_have_a_limit() -> None:
    settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
    entry = settings.subscription.subscriptions.add()
    entry.expression.expression = "x" * (10 << 10)
    unread = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
    unread.user_agent.platform = "x" * (10 << 10)
    clients = Clients(SilentPort(), None, max_settings=64 << 10)  # type: ignore[arg-type]
    # An address may have half of it.
    known = [clients.of(call(f"{n}", "192.0.2.1")) for n in range(5)]
    for client in known[:3]:
        clients.keep_settings(client, settings)
        clients.keep_settings(client, settings)  # counts once
    with pytest.raises(ServiceError, match=r"of them of clients of 192\.0\.2\.1"):
        clients.keep_settings(known[3], settings)
    clients.keep_settings(known[4], unread)  # nobody reads it, so it is not kept
    clients.keep_settings(clients.of(call("5", "192.0.2.2")), settings)
    clients.forget(known[0])
    clients.keep_settings(known[3], settings)


class Sent:
    """What a stream sends to its client."""

    def __init__(self) -> None:
        self.commands: asyncio.Queue[pb.TelemetryCommand] = asyncio.Queue()

    def send(self, command: pb.TelemetryCommand) -> None:
        self.commands.put_nowait(command)

    def end(self, error: Exception | None = None) -> None:
        assert isinstance(error, GrpcError)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        signed("eve", "a guess"),
        signed("mallory", "x"),
        signed("eve", "eve-secret"),
        signed("bob", "bob-secret"),
    ],
    ids=["unsigned", "wrong password", "unknown", "no grants", "other grants"],
)
async def test_a_call_that_is_refused_leaves_no_client(metadata: dict[str, str]) -> None:
    users = Users(AuthTables(Path()))
    users.grant("bob", "Topic:Other", "Group:others")
    service = Messaging(ProxyConfig(), NoPort(), Access(users.tables, authorize=True))  # type: ignore[arg-type]
    headers = {key.encode(): value.encode() for key, value in metadata.items()}
    requests = every_request()
    refused = {}
    for path, method in service.methods().items():
        name = path.decode().removeprefix(f"/{SERVICE}/")
        for client_id in ("c", "d", ""):
            ids = {b"x-mq-client-id": client_id.encode()} if client_id else {}
            call = Call(name, ("127.0.0.1", 1), {**headers, **ids})
            if isinstance(method, Duplex):
                sent = Sent()
                with contextlib.suppress(GrpcError):  # without a client id
                    stream = method.open(call, sent)  # type: ignore[arg-type]
                    settings = pb.Settings()
                    settings.publishing.topics.add(name="Normal")
                    stream.received(pb.TelemetryCommand(settings=settings))
                    refused[name] = (await sent.commands.get()).status.code
                    stream.closed()
            else:
                assert isinstance(method, ServerStream | Unary)
                answer: Any = await method.handler(call, requests[name])
                if isinstance(method, ServerStream):
                    answer = answer[0]
                refused[name] = answer.status.code
            assert len(service.clients) == 0, name
    if metadata and refused["Heartbeat"] != pb.UNAUTHORIZED:
        # Nothing but a signature is needed to be told that one is unknown.
        assert refused.pop("Heartbeat") in (pb.UNRECOGNIZED_CLIENT_TYPE, pb.CLIENT_ID_REQUIRED)
    assert set(refused.values()) == {pb.UNAUTHORIZED}, refused


async def test_what_a_client_registered_unsigned_is_not_counted_for_its_address_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With Telemetry in the white list, a client has groups before it has a user."""
    many = Registration(producers=[f"P{number}" for number in range(MAX_GROUPS_OF_USER)])
    async with EmbeddedServer() as server:
        port = RemotePort(ClientInstance(server.namesrv, owner="proxy"))
        await port.start()
        try:
            first, second = (
                port.open(name, "JAVA", ("192.0.2.1", 1), unasked) for name in ("a", "b")
            )
            await first.register(many)
            first.caller = cast(Caller, SimpleNamespace(username="alice"))
            first.close()
            await second.register(Registration(producers=["Q"]))
        finally:
            await port.stop()
    assert "is not registered at brokers" not in caplog.text


async def unasked(request: Request[Any]) -> Response | None:
    raise NotImplementedError
