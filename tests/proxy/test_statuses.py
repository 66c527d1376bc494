"""Every status of the specification: which test provokes it, or why no call is answered with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import Any, cast

from pocketmq.client.admin.admin import Admin
from pocketmq.client.instance import ClientInstance
from pocketmq.client.selector.pipeline import QueueSelector
from pocketmq.embedded import EmbeddedServer
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.port.broker_port import Answer, BrokerPort, Link
from pocketmq.proxy.port.remote import RemotePort
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.server import Proxy
from pocketmq.proxy.transport.http2 import PREFACE
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingTimeout
from tests.proxy.conftest import create_topics, grpc_port
from tests.proxy.grpc_client import SERVICE, GrpcClient, message
from tests.proxy.raw_frames import Kind, frame, frames_in, literal
from tests.proxy.test_consuming import receive
from tests.proxy.test_producing import in_seconds

#: Statuses that no call is answered with, here or by 5.3.3, and why.
NEVER = {
    "CODE_UNSPECIFIED": "it means none",
    "ILLEGAL_LITE_TOPIC": "lite topics are not served: gRPC UNIMPLEMENTED",
    "LITE_TOPIC_QUOTA_EXCEEDED": "the same",
    "LITE_SUBSCRIPTION_QUOTA_EXCEEDED": "the same",
    "INVALID_CLIENT_PROPERTIES": "client properties are not looked at",
    "PAYMENT_REQUIRED": "of a paid service",
    "NOT_FOUND": "there is a more exact one for each thing that can be missing",
    "REQUEST_TIMEOUT": "gRPC itself ends calls whose deadline is over",
    "PAYLOAD_TOO_LARGE": "gRPC itself refuses large requests: RESOURCE_EXHAUSTED",
    "PRECONDITION_FAILED": "kept for later by the protocol",
    "REQUEST_HEADER_FIELDS_TOO_LARGE": "HTTP/2 ends such connections: ENHANCE_YOUR_CALM",
    "INTERNAL_ERROR": "the class of those that follow it",
    "UNSUPPORTED": "the class of those that follow it",
    "VERSION_UNSUPPORTED": "every version is served",
    "VERIFY_FIFO_MESSAGE_UNSUPPORTED": "of clients, to the proxy",
}


def test_each_status_is_provoked_or_never_answered() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    service = Path(__file__).parents[2] / "pocketmq" / "proxy" / "service"
    answered = "".join(path.read_text() for path in service.glob("*.py"))
    names = set(pb.Code.keys())
    provoked = {name for name in names if f"pb.{name}" in tests}
    assert provoked | NEVER.keys() >= names, names - provoked - NEVER.keys()
    assert not provoked & NEVER.keys()
    # The proxy reads these, but writes them nowhere.
    read = {"CODE_UNSPECIFIED", "INTERNAL_ERROR"}
    assert not {name for name in NEVER.keys() - read if f"pb.{name}" in answered}


async def test_a_route_for_no_address(server: EmbeddedServer) -> None:
    """No library leaves out :authority."""
    request = pb.QueryRouteRequest()
    request.topic.name = "Normal"
    data = request.SerializeToString()
    block = b"\x83\x86" + literal(b":path", (SERVICE + "QueryRoute").encode())
    block += literal(b"content-type", b"application/grpc") + literal(b"x-mq-client-id", b"c")
    reader, writer = await asyncio.open_connection("127.0.0.1", grpc_port(server))
    writer.write(
        PREFACE
        + frame(Kind.SETTINGS, 0, 0)
        + frame(Kind.HEADERS, 4, 1, block)
        + frame(Kind.DATA, 1, 1, b"\0" + len(data).to_bytes(4, "big") + data)
    )
    got = b""
    async with asyncio.timeout(60):
        while not (answers := [body for kind, _, body in frames_in(got) if kind == Kind.DATA]):
            got += await reader.read(65_536)
    writer.close()
    answer = pb.QueryRouteResponse.FromString(answers[0][5:])
    assert answer.status.code == pb.ILLEGAL_ACCESS_POINT


def queue(number: int = 0) -> pb.MessageQueue:
    made = pb.MessageQueue(id=number)
    made.topic.name = "Normal"
    made.broker.name = "broker-a"
    return made


async def unknown_group(client: GrpcClient) -> int:
    await client.as_consumer("nobody", "Normal")
    return (await client.receive(receive(group="nobody")))[0]


async def too_many_waiting(client: GrpcClient) -> int:
    await client.as_consumer("readers", "Normal")
    both = [asyncio.ensure_future(client.receive(receive())) for _ in range(2)]
    (first,), (other,) = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    other.cancel()
    return first.result()[0]


async def recall_that_is_switched_off(client: GrpcClient) -> int:
    sent = message("Delay", message_type=pb.DELAY, delivery_timestamp=in_seconds(60))
    entry = (await client.call("SendMessage", pb.SendMessageRequest(messages=[sent]))).entries[0]
    request = pb.RecallMessageRequest(recall_handle=entry.recall_handle)
    request.topic.name = "Delay"
    return int((await client.call("RecallMessage", request)).status.code)


async def send_to_what_cannot_be_written(client: GrpcClient) -> int:
    request = pb.SendMessageRequest(messages=[message("ReadOnly")])
    return int((await client.call("SendMessage", request)).status.code)


async def receive_from_what_cannot_be_read(client: GrpcClient) -> int:
    await client.as_consumer("readers", "WriteOnly")
    return (await client.receive(receive("WriteOnly")))[0]


async def negative_offset(client: GrpcClient) -> int:
    request = pb.UpdateOffsetRequest(message_queue=queue(), offset=-1)
    request.group.name = "readers"
    return int((await client.call("UpdateOffset", request)).status.code)


async def acknowledgement_of_nothing(client: GrpcClient) -> int:
    request = pb.AckMessageRequest()
    request.group.name, request.topic.name = "readers", "Normal"
    return int((await client.call("AckMessage", request)).status.code)


BY_BROKER: dict[Callable[[GrpcClient], Awaitable[int]], int] = {
    unknown_group: pb.CONSUMER_GROUP_NOT_FOUND,
    too_many_waiting: pb.TOO_MANY_REQUESTS,
    recall_that_is_switched_off: pb.FORBIDDEN,
    send_to_what_cannot_be_written: pb.FORBIDDEN,
    receive_from_what_cannot_be_read: pb.FORBIDDEN,
    negative_offset: pb.ILLEGAL_OFFSET,
    acknowledgement_of_nothing: pb.BAD_REQUEST,
}


async def test_what_a_broker_refuses() -> None:
    properties = {"autoCreateSubscriptionGroup": "false", "maxPopPollingSize": "1"}
    async with EmbeddedServer(grpc_port=0, properties=properties) as server:
        await create_topics(server.namesrv)
        async with Admin(namesrv=server.namesrv) as admin:
            await admin.create_topic("ReadOnly", queues=1, perm=4)
            await admin.create_topic("WriteOnly", queues=1, perm=2)
            await admin.create_group("readers")
        answered = {}
        for provoke in BY_BROKER:
            async with GrpcClient(grpc_port(server), client_id=provoke.__name__) as client:
                answered[provoke] = await provoke(client)
    assert answered == BY_BROKER


class Scripted:
    """A broker port whose brokers answer some requests with a code that the test chose."""

    def __init__(self, port: BrokerPort) -> None:
        self._port = port
        self.code: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def open(self, *arguments: Any) -> Link:
        return cast(Link, ScriptedLink(self, self._port.open(*arguments)))


SCRIPTED = {
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.POP_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
}


class ScriptedLink:
    """A link of it."""

    def __init__(self, port: Scripted, link: Link) -> None:
        self._port = port
        self._link = link

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def request(self, broker: str, code: int, *rest: Any, **more: Any) -> asyncio.Future[Answer]:
        if self._port.code is None or code not in SCRIPTED:
            return self._link.request(broker, code, *rest, **more)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self._port.code < 0:
            answer.set_exception(RemotingTimeout("no answer"))
        else:
            fields = {"msgId": "id", "queueId": "0", "queueOffset": "0"}
            answer.set_result(Answer(self._port.code, "as the test says", fields))
        return answer


#: Answers of brokers to sends, and what the client hears; -1 stands for no answer.
OF_SENDS = {
    -1: pb.PROXY_TIMEOUT,
    ResponseCode.SYSTEM_ERROR: pb.INTERNAL_SERVER_ERROR,
    ResponseCode.SYSTEM_BUSY: pb.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: pb.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: pb.NOT_IMPLEMENTED,
    ResponseCode.FLUSH_DISK_TIMEOUT: pb.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: pb.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: pb.HA_NOT_AVAILABLE,
    ResponseCode.MESSAGE_ILLEGAL: pb.MESSAGE_CORRUPTED,
    ResponseCode.NO_PERMISSION: pb.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: pb.TOPIC_NOT_FOUND,
}

OF_POPS = {
    -1: pb.PROXY_TIMEOUT,
    ResponseCode.SYSTEM_ERROR: pb.INTERNAL_SERVER_ERROR,
    ResponseCode.POLLING_FULL: pb.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_TIMEOUT: pb.MESSAGE_NOT_FOUND,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: pb.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: pb.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: pb.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.INVALID_PARAMETER: pb.BAD_REQUEST,
    ResponseCode.NO_PERMISSION: pb.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: pb.TOPIC_NOT_FOUND,
}


async def test_what_brokers_of_a_cluster_answer() -> None:
    sends, pops = {}, {}
    async with EmbeddedServer() as server:
        await create_topics(server.namesrv)
        instance = ClientInstance(server.namesrv, owner="proxy")
        port = RemotePort(instance, QueueSelector(monotonic))
        await port.start()
        scripted = Scripted(port)
        proxy = Proxy(ProxyConfig(grpc_server_port=0), cast(BrokerPort, scripted))
        await proxy.start()
        try:
            async with GrpcClient(proxy.port) as client:
                await client.as_consumer("readers", "Normal")
                for scripted.code in OF_SENDS:
                    request = pb.SendMessageRequest(messages=[message()])
                    answer = await client.call("SendMessage", request)
                    sends[scripted.code] = answer.status.code
                for scripted.code in OF_POPS:
                    pops[scripted.code] = (await client.receive(receive()))[0]
                scripted.code = ResponseCode.QUERY_NOT_FOUND
                asked = pb.GetOffsetRequest(message_queue=queue())
                asked.group.name = "readers"
                answer = await client.call("GetOffset", asked)
                assert answer.status.code == pb.OFFSET_NOT_FOUND
        finally:
            await proxy.stop()
            await port.stop()
    assert sends == OF_SENDS
    assert pops == OF_POPS
