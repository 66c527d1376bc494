"""Authentication and authorization of calls: the users and access lists of the broker."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pocketmq.auth.guard import Guard, SignedCaller
from pocketmq.auth.policies import Acl, Action, Decision, Entry, Resource
from pocketmq.auth.users import User
from pocketmq.client.admin.admin import Admin
from pocketmq.client.credentials import Credentials
from pocketmq.cluster_proxy import ClusterProxy
from pocketmq.embedded import EmbeddedServer
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.service.access import Access
from tests.proxy.conftest import grpc_port
from tests.proxy.grpc_client import GrpcClient, TelemetryCall, message

DATE = "20261125T070000Z"

PROPERTIES = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"}),
}


def signed(name: str, password: str, *, upper: bool = False) -> dict[str, str]:
    signature = hmac.new(password.encode(), DATE.encode(), "sha1").hexdigest()
    return {
        "x-mq-date-time": DATE,
        "authorization": f"MQv2-HMAC-SHA1 Credential={name}/region/service, "
        f"SignedHeaders=x-mq-date-time, Signature={signature.upper() if upper else signature}",
    }


async def prepare(server: EmbeddedServer) -> None:
    """Create topics, and alice, who may publish to Normal."""
    credentials = Credentials("root", "root-secret")
    async with Admin(namesrv=server.namesrv, credentials=credentials) as admin:
        for topic in ("Normal", "Other"):
            await admin.create_topic(topic, queues=1)
    auth = server.broker.auth
    assert auth is not None
    auth.tables.put_user(User("alice", "alice-secret"))
    let_publish(server, "alice", "Normal")


def let_publish(server: EmbeddedServer, name: str, *topics: str) -> None:
    """Let a user publish to these topics, and do nothing else."""
    auth = server.broker.auth
    assert auth is not None
    entries = tuple(
        Entry(Resource.parse(f"Topic:{topic}"), frozenset({Action.PUB}), Decision.ALLOW)
        for topic in topics
    )
    auth.tables.put_acl(name, Acl(custom=entries))


async def status_of_send(client: GrpcClient, topic: str = "Normal") -> tuple[int, str]:
    request = pb.SendMessageRequest(messages=[message(topic)])
    answer = await client.call("SendMessage", request)
    return answer.status.code, answer.status.message


async def test_calls_need_the_signature_and_the_right_of_a_user() -> None:
    async with EmbeddedServer(grpc_port=0, properties=PROPERTIES) as server:
        await prepare(server)
        port = grpc_port(server)

        async def attempt(topic: str = "Normal", **metadata: str) -> tuple[int, str]:
            client = GrpcClient(port, client_id=repr(metadata), metadata=metadata)
            async with client:
                return await status_of_send(client, topic)

        assert await attempt(**signed("alice", "alice-secret")) == (pb.OK, "OK")
        assert await attempt(**signed("alice", "alice-secret", upper=True)) == (pb.OK, "OK")
        assert await attempt("Other", **signed("root", "root-secret")) == (pb.OK, "OK")
        refused = {
            "nobody": await attempt(),
            "unknown": await attempt(**signed("bob", "x")),
            "wrong": await attempt(**signed("alice", "x")),
            "topic": await attempt("Other", **signed("alice", "alice-secret")),
        }
        assert {code for code, _ in refused.values()} == {pb.UNAUTHORIZED}
        assert {name: text for name, (_, text) in refused.items()} == {
            "nobody": "username cannot be null.",
            "unknown": "User:bob is not found.",
            "wrong": "check signature failed.",
            "topic": "User:alice has no permission to access Topic:Other from 127.0.0.1, "
            "no matched policies.",
        }


async def test_white_lists_name_calls_beside_codes() -> None:
    lists = {
        "authenticationWhitelist": "10, apache.rocketmq.v2.QueryRouteRequest",
        "authorizationWhitelist": "apache.rocketmq.v2.QueryRouteRequest,"
        "apache.rocketmq.v2.SendMessageRequest",
    }
    async with EmbeddedServer(grpc_port=0, properties=PROPERTIES | lists) as server:
        await prepare(server)
        port = grpc_port(server)
        async with GrpcClient(port, client_id="c") as client:
            request = pb.QueryRouteRequest(topic=pb.Resource(name="Normal"))
            assert (await client.call("QueryRoute", request)).status.code == pb.OK
            # The other list spares it the grant, not the signature.
            code, text = await status_of_send(client)
            assert (code, text) == (pb.UNAUTHORIZED, "username cannot be null.")
        metadata = signed("alice", "alice-secret")
        async with GrpcClient(port, client_id="c", metadata=metadata) as client:
            assert await status_of_send(client, "Other") == (pb.OK, "OK")


async def test_the_right_to_messages_that_a_client_has_is_the_present_one() -> None:
    async with EmbeddedServer(grpc_port=0, properties=PROPERTIES) as server:
        await prepare(server)
        assert server.broker.auth is not None
        tables = server.broker.auth.tables
        access = Access(tables, authorize=True)
        alice = SignedCaller(tables.find("alice"), "127.0.0.1", Guard(tables))
        assert not access.may_receive(alice, "g", "Normal")
        entries = tuple(
            Entry(Resource.parse(name), frozenset({Action.SUB}), Decision.ALLOW)
            for name in ("Group:g", "Topic:Normal")
        )
        tables.put_acl("alice", Acl(custom=entries))
        assert access.may_receive(alice, "g", "Normal")
        assert not access.may_receive(alice, "g", "Other")
        listed = frozenset({"apache.rocketmq.v2.ReceiveMessageRequest"})
        spared = Access(tables, authorize=True, unchecked=listed)
        assert spared.may_receive(alice, "g", "Other")
    assert Access().may_receive(None, "g", "Normal")


async def test_every_call_is_checked() -> None:
    async with EmbeddedServer(grpc_port=0, properties=PROPERTIES) as server:
        await prepare(server)
        async with GrpcClient(grpc_port(server), client_id="c") as client:
            codes = {}
            for name, request in every_request().items():
                call = client.call(name, request)
                if name in ("ReceiveMessage", "PullMessage"):
                    answers = [answer async for answer in call]
                    codes[name] = answers[0].status.code
                else:
                    codes[name] = (await call).status.code
            stream = TelemetryCall(client)
            settings = pb.Settings()
            settings.publishing.topics.add(name="Normal")
            await stream.send(pb.TelemetryCommand(settings=settings))
            refused = await stream.next()
            assert not refused.HasField("settings")
            codes["Telemetry"] = refused.status.code
        assert set(codes.values()) == {pb.UNAUTHORIZED}, codes


async def test_a_call_without_a_signature_is_refused_before_its_request_is_read() -> None:
    """Also one that is no request, or far too large, and a whole stream of them."""
    async with EmbeddedServer(grpc_port=0, properties=PROPERTIES) as server:
        await prepare(server)
        port = grpc_port(server)
        metadata = signed("alice", "wrong")
        async with GrpcClient(port, client_id="c", metadata=metadata) as client:
            for data in (b"", b"no protobuf", b"\x1a\0" * (8 << 20)):
                answer = await client.call("AckMessage", Raw(data))
                assert answer.status.code == pb.UNAUTHORIZED
                received = [answer async for answer in client.call("ReceiveMessage", Raw(data))]
                assert [answer.status.code for answer in received] == [pb.UNAUTHORIZED]
            stream = TelemetryCall(client)
            await stream.send(pb.TelemetryCommand())
            assert (await stream.next()).status.code == pb.UNAUTHORIZED
            stream.cancel()
        metadata = signed("alice", "alice-secret")
        async with GrpcClient(port, client_id="c", metadata=metadata) as client:
            assert await status_of_send(client) == (pb.OK, "OK")


class Raw:
    """A request of these bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def SerializeToString(self) -> bytes:
        return self.data


def every_request() -> dict[str, object]:
    topic = pb.Resource(name="Normal")
    group = pb.Resource(name="readers")
    queue = pb.MessageQueue(topic=topic, id=0)
    queue.broker.name = "broker-a"
    return {
        "QueryRoute": pb.QueryRouteRequest(topic=topic),
        "Heartbeat": pb.HeartbeatRequest(client_type=pb.PRODUCER),
        "SendMessage": pb.SendMessageRequest(messages=[message()]),
        "QueryAssignment": pb.QueryAssignmentRequest(topic=topic, group=group),
        "ReceiveMessage": pb.ReceiveMessageRequest(group=group, message_queue=queue),
        "AckMessage": pb.AckMessageRequest(group=group, topic=topic),
        "ForwardMessageToDeadLetterQueue": pb.ForwardMessageToDeadLetterQueueRequest(
            group=group, topic=topic
        ),
        "PullMessage": pb.PullMessageRequest(group=group, message_queue=queue),
        "UpdateOffset": pb.UpdateOffsetRequest(group=group, message_queue=queue),
        "GetOffset": pb.GetOffsetRequest(group=group, message_queue=queue),
        "QueryOffset": pb.QueryOffsetRequest(message_queue=queue),
        "EndTransaction": pb.EndTransactionRequest(topic=topic),
        "NotifyClientTermination": pb.NotifyClientTerminationRequest(group=group),
        "ChangeInvisibleDuration": pb.ChangeInvisibleDurationRequest(group=group, topic=topic),
        "RecallMessage": pb.RecallMessageRequest(topic=topic),
    }


@asynccontextmanager
async def cluster_proxy(server: EmbeddedServer) -> AsyncIterator[ClusterProxy]:
    inner = json.dumps({"accessKey": "root", "secretKey": "root-secret"})
    config = ProxyConfig(
        grpc_server_port=0,
        namesrv_addr=server.namesrv,
        authentication_enabled=True,
        authorization_enabled=True,
        inner_client_authentication_credentials=inner,
    )
    async with ClusterProxy(config, users_interval=0.01) as proxy:
        yield proxy


async def attempt(proxy: ClusterProxy, topic: str = "Normal", **metadata: str) -> int:
    """Send as whoever `metadata` says; return the status."""
    client = GrpcClient(proxy.grpc_port, client_id=repr(metadata), metadata=metadata)
    async with client:
        return (await status_of_send(client, topic))[0]


async def test_a_cluster_proxy_has_the_users_of_the_brokers() -> None:
    async with EmbeddedServer(properties=PROPERTIES) as server:
        await prepare(server)
        async with cluster_proxy(server) as proxy:
            alice = signed("alice", "alice-secret")
            assert await attempt(proxy, **alice) == pb.OK
            assert await attempt(proxy, "Other", **signed("root", "root-secret")) == pb.OK
            assert await attempt(proxy, "Other", **alice) == pb.UNAUTHORIZED
            assert await attempt(proxy, **signed("alice", "x")) == pb.UNAUTHORIZED
            assert await attempt(proxy, **signed("bob", "x")) == pb.UNAUTHORIZED
            assert await attempt(proxy) == pb.UNAUTHORIZED


async def test_a_cluster_proxy_hears_of_changed_users_and_access_lists() -> None:
    async with EmbeddedServer(properties=PROPERTIES) as server:
        await prepare(server)
        auth = server.broker.auth
        assert auth is not None
        async with cluster_proxy(server) as proxy:

            async def until(status: int, topic: str, **metadata: str) -> None:
                while await attempt(proxy, topic, **metadata) != status:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

            alice, bob = signed("alice", "alice-secret"), signed("bob", "bob-secret")
            await until(pb.OK, "Normal", **alice)
            let_publish(server, "alice", "Other")
            await until(pb.UNAUTHORIZED, "Normal", **alice)
            await until(pb.OK, "Other", **alice)
            auth.tables.put_user(User("bob", "bob-secret"))
            let_publish(server, "bob", "Normal")
            await until(pb.OK, "Normal", **bob)
            auth.tables.delete_user("alice")
            await until(pb.UNAUTHORIZED, "Other", **alice)
