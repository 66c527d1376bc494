"""A raw gRPC client: sends what the test says, right or wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from time import monotonic
from typing import Any, Self

import grpc
from grpc import aio

from pocketmq.proxy.proto import service_pb2 as pb

SERVICE = "/apache.rocketmq.v2.MessagingService/"

STREAMS = {"ReceiveMessage", "PullMessage"}


class GrpcClient:
    """One client over one connection, plain or by `credentials`."""

    def __init__(
        self,
        port: int,
        *,
        client_id: str = "host@1@2@raw",
        credentials: grpc.ChannelCredentials | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        address = f"127.0.0.1:{port}"
        options = [("grpc.max_receive_message_length", -1)]
        self.channel = (
            aio.insecure_channel(address, options=options)
            if credentials is None
            else aio.secure_channel(address, credentials, options=options)
        )
        self.metadata = {
            "x-mq-client-id": client_id,
            "x-mq-language": "PYTHON",
            "x-mq-client-version": "5.1.2",
            **(metadata or {}),
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.channel.close()

    def call(
        self,
        name: str,
        request: Any,
        *,
        timeout: float = 10.0,
        response: Any = None,
        **metadata: str,
    ) -> Any:
        """Begin a call; `metadata` with `_` for `-`, and "" to leave one out."""
        given = self.metadata | {key.replace("_", "-"): value for key, value in metadata.items()}
        kind = response or getattr(pb, f"{name}Response")
        make: Any = self.channel.unary_stream if name in STREAMS else self.channel.unary_unary
        path = name if name.startswith("/") else SERVICE + name
        method: Any = make(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        sent = tuple((key, value) for key, value in given.items() if value)
        return method(request, timeout=timeout, metadata=sent)

    async def receive(self, request: Any, *, timeout: float = 10.0) -> tuple[int, list[Any]]:
        """Return the status of a receive, and its messages."""
        code, messages = 0, []
        async for answer in self.call("ReceiveMessage", request, timeout=timeout):
            kind = answer.WhichOneof("content")
            if kind == "status":
                code = answer.status.code
            elif kind == "message":
                messages.append(answer.message)
        return code, messages

    async def telemetry(self, settings: pb.Settings) -> TelemetryCall:
        """Open a Telemetry stream with these settings, and wait for the server's."""
        stream = TelemetryCall(self)
        await stream.send(pb.TelemetryCommand(settings=settings))
        stream.settings = await stream.next()
        return stream

    async def as_consumer(self, group: str, *topics: str) -> TelemetryCall:
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        settings.subscription.group.name = group
        for topic in topics:
            settings.subscription.subscriptions.add().topic.name = topic
        return await self.telemetry(settings)

    async def as_producer(self, *topics: str) -> TelemetryCall:
        settings = pb.Settings(client_type=pb.PRODUCER)
        settings.publishing.SetInParent()
        for topic in topics:
            settings.publishing.topics.add(name=topic)
        return await self.telemetry(settings)


class TelemetryCall:
    """A Telemetry stream."""

    settings: Any

    def __init__(self, client: GrpcClient) -> None:
        method: Any = client.channel.stream_stream(
            SERVICE + "Telemetry",
            request_serializer=pb.TelemetryCommand.SerializeToString,
            response_deserializer=pb.TelemetryCommand.FromString,
        )
        self._call = method(metadata=tuple(client.metadata.items()))
        self._answers: AsyncIterator[Any] = self._call.__aiter__()

    async def send(self, command: Any) -> None:
        await self._call.write(command)

    async def next(self, timeout: float = 10.0) -> Any:
        async with asyncio.timeout(timeout):
            return await self._answers.__anext__()

    async def status(self) -> grpc.StatusCode:
        code = await self._call.code()
        assert isinstance(code, grpc.StatusCode)
        return code

    def cancel(self) -> None:
        self._call.cancel()


def message(topic: str = "Normal", body: bytes = b"body", **system: Any) -> pb.Message:
    """Return a message with a fresh id."""
    made = pb.Message(body=body)
    made.topic.name = topic
    properties = {"message_id": _next_id(), "message_type": pb.NORMAL, **system}
    made.system_properties.CopyFrom(pb.SystemProperties(**properties))
    return made


_COUNT = iter(range(1 << 30))


def _next_id() -> str:
    return f"01AABBCCDDEEFF0000{0:08X}{next(_COUNT):08X}"


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait for what other processes do."""
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.05)
