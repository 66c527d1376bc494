"""A gRPC client on the simulated network: the calls that official clients make, by h2."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import suppress
from hashlib import sha1
from typing import Any, Final, Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError

from pocketmq import Message, SendResult
from pocketmq.client.credentials import Credentials
from pocketmq.client.send_result import SendStatus
from pocketmq.message.message import MessageQueue
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError

from .cluster import BROKER_NAME, GRPC_PORT, Cluster

SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
PREFIX: Final = 5
"""Bytes before a message: whether it is compressed, and its size."""
CONNECT: Final = 2.0
OK: Final = "0"
DATE: Final = "20240101T000000Z"
"""What is signed: its age does not matter."""
UNKNOWN_QUEUE: Final = -1
"""A send is answered with the offset, but not with the queue."""
STATUSES: Final = {
    pb.OK: SendStatus.SEND_OK,
    pb.MASTER_PERSISTENCE_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    pb.SLAVE_PERSISTENCE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    pb.HA_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
"""Of messages that are stored."""


class CallFailed(Exception):
    """The call ended without an answer: its connection is gone, its time is over, or the server
    ended it with another status than OK."""


class SendFailed(RemotingError):
    """A message was not acknowledged."""


class Call:
    """One stream. Messages of the answer come by `async for`."""

    def __init__(self, connection: Connection, stream: int, kind: Any) -> None:
        self._connection = connection
        self._stream = stream
        self._kind = kind
        self._received = bytearray()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._ended = False
        self.status = ""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        """Raises CallFailed."""
        answer = await self._answers.get()
        if isinstance(answer, CallFailed):
            raise answer
        if answer is None:
            raise StopAsyncIteration
        return answer

    async def send(self, message: Any) -> None:
        """Send one more message. Raises CallFailed."""
        await self._connection.send(self._stream, framed(message), end=False)

    def take(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= PREFIX:
            end = PREFIX + int.from_bytes(self._received[1:PREFIX], "big")
            if len(self._received) < end:
                return
            self._answers.put_nowait(self._kind.FromString(bytes(self._received[PREFIX:end])))
            del self._received[:end]

    def end(self, failed: str = "") -> None:
        if self._ended:
            return
        self._ended = True
        if not failed and self.status != OK:
            failed = f"status {self.status or 'unknown'}"
        self._answers.put_nowait(CallFailed(failed) if failed else None)


class Connection(asyncio.Protocol):
    """One connection to one address."""

    def __init__(self, metadata: list[tuple[str, str]]) -> None:
        self._metadata = metadata
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._calls: dict[int, Call] = {}
        self._transport: Any = None
        self._room = asyncio.Event()
        self.lost = False

    @classmethod
    async def open(cls, address: str, metadata: list[tuple[str, str]]) -> Self:
        """Raises CallFailed."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT):
                _, connection = await loop.create_connection(lambda: cls(metadata), host, int(port))
        except OSError as error:  # a TimeoutError is one too
            raise CallFailed(f"no connection to {address}: {error!r}") from error
        return connection

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._h2.initiate_connection()
        self._write()

    def data_received(self, data: bytes) -> None:
        try:
            events = self._h2.receive_data(data)
        except ProtocolError as error:
            self._transport.abort()
            self.connection_lost(error)
            return
        for event in events:
            self._handle(event)
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._room.set()
        for call in self._calls.values():
            call.end(f"the connection is lost: {exc!r}")
        self._calls.clear()

    def _handle(self, event: Event) -> None:
        match event:
            case DataReceived():
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if (call := self._calls.get(event.stream_id)) is not None:
                    call.take(event.data)
            case ResponseReceived() | TrailersReceived():
                if (call := self._calls.get(event.stream_id)) is not None:
                    fields: Any = dict(event.headers or ())
                    call.status = fields.get("grpc-status", call.status)
            case StreamEnded():
                if (call := self._calls.pop(event.stream_id, None)) is not None:
                    call.end()
            case StreamReset():
                if (call := self._calls.pop(event.stream_id, None)) is not None:
                    call.end(f"the stream was reset: {event.error_code}")
            case WindowUpdated():
                self._room.set()
            case ConnectionTerminated():
                # What is under way is answered still; new calls need another connection.
                self.lost = True

    def _write(self) -> None:
        if data := self._h2.data_to_send():
            self._transport.write(data)

    # Calls

    async def call(self, name: str, request: Any, kind: Any, *, end: bool = True) -> Call:
        """Begin a call. Raises CallFailed."""
        if self.lost:
            raise CallFailed("the connection is lost")
        stream = self._h2.get_next_available_stream_id()
        call = self._calls[stream] = Call(self, stream, kind)
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", SERVICE + name),
            (":authority", "broker"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *self._metadata,
        ]
        self._h2.send_headers(stream, headers)
        await self.send(stream, framed(request), end=end)
        return call

    async def send(self, stream: int, data: bytes, *, end: bool) -> None:
        """Send data of a stream as its window allows. Raises CallFailed."""
        while data:
            if self.lost and stream not in self._calls:
                raise CallFailed("the connection is lost")
            size = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
            if size <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            part, data = data[:size], data[size:]
            try:
                self._h2.send_data(stream, part, end_stream=end and not data)
            except ProtocolError as error:
                raise CallFailed(f"the stream has ended: {error}") from error
            self._write()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class GrpcClient:
    """A client, with a connection to each address that it has used, and a Telemetry stream on each,
    by which the server knows its settings."""

    def __init__(
        self,
        client_id: str,
        settings: pb.Settings,
        timeout: float,
        credentials: Credentials | None,
    ) -> None:
        self._settings = settings
        self._timeout = timeout
        self._metadata = [
            ("x-mq-client-id", client_id),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5.1.2"),
        ]
        if credentials is not None:
            signature = hmac.new(credentials.secret_key.encode(), DATE.encode(), sha1).hexdigest()
            self._metadata += [
                ("x-mq-date-time", DATE),
                (
                    "authorization",
                    f"MQv2-HMAC-SHA1 Credential={credentials.access_key}, "
                    f"SignedHeaders=x-mq-date-time, Signature={signature}",
                ),
            ]
        self._connections: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for address in list(self._connections):
            notice = pb.NotifyClientTerminationRequest()
            if self._settings.HasField("subscription"):
                notice.group.CopyFrom(self._settings.subscription.group)
            with suppress(CallFailed):
                async for _ in self.receive(address, "NotifyClientTermination", notice):
                    pass
        for connection in self._connections.values():
            connection.close()

    async def _connection(self, address: str) -> Connection:
        """The connection to an address; calls that need a new one wait for the same."""
        known = self._connections.get(address)
        if known is not None and not known.lost:
            return known
        opening = self._opening.get(address)
        if opening is None:
            opening = self._opening[address] = asyncio.ensure_future(self._open(address))
            opening.add_done_callback(lambda _: self._opening.pop(address))
        return await asyncio.shield(opening)

    async def _open(self, address: str) -> Connection:
        connection = await Connection.open(address, self._metadata)
        command = pb.TelemetryCommand(settings=self._settings)
        try:
            async with asyncio.timeout(self._timeout):
                stream = await connection.call("Telemetry", command, pb.TelemetryCommand, end=False)
                await anext(stream)  # the server's settings
        except (TimeoutError, StopAsyncIteration) as error:
            connection.close()
            raise CallFailed("the server did not answer with its settings") from error
        self._connections[address] = connection
        return connection

    async def receive(
        self, address: str, name: str, request: Any, *, longer: float = 0.0
    ) -> AsyncIterator[Any]:
        """The answers to a request, which may take `longer` by that many seconds than another
        one. Raises CallFailed."""
        connection = await self._connection(address)
        try:
            async with asyncio.timeout(self._timeout + longer):
                kind = getattr(pb, f"{name}Response")
                async for answer in await connection.call(name, request, kind):
                    yield answer
        except TimeoutError:
            # As official clients do: what does not answer may be half-open.
            connection.lost = True
            connection.close()
            raise CallFailed(f"{name} took too long") from None


def framed(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return bytes(1) + len(data).to_bytes(4, "big") + data


class GrpcUser:
    """A client of a cluster: asks one broker's proxy for as long as that answers, then the next
    one's."""

    def __init__(
        self, cluster: Cluster, client_id: str, settings: pb.Settings, timeout: float
    ) -> None:
        self._addresses = [cluster.address(name, GRPC_PORT) for name in cluster.plan.brokers]
        self._client = GrpcClient(client_id, settings, timeout, cluster.credentials)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.__aexit__(*error)

    async def ask(self, name: str, request: Any, *, longer: float = 0.0) -> list[Any]:
        """All answers to a request. Raises CallFailed; the next call goes to another broker."""
        try:
            address = self._addresses[0]
            answers = self._client.receive(address, name, request, longer=longer)
            return [answer async for answer in answers]
        except CallFailed:
            self.turn()
            raise

    def turn(self) -> None:
        """Go on to the next broker."""
        self._addresses.append(self._addresses.pop(0))


class GrpcProducer:
    """Sends single messages, as `Producer` does."""

    def __init__(self, cluster: Cluster, client_id: str, topic: str, retries: int, timeout: float):
        settings = pb.Settings(client_type=pb.PRODUCER)
        settings.publishing.topics.add(name=topic)
        self._user = GrpcUser(cluster, client_id, settings, timeout)
        self._attempts = 1 + retries

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._user.__aexit__(*error)

    async def send(self, message: Message, *, key: str | None = None) -> SendResult:
        """Raises SendFailed."""
        made = pb.Message(body=message.body, user_properties=message.properties)
        made.topic.name = message.topic
        system = made.system_properties
        (system.message_id,) = message.keys
        system.keys.extend(message.keys)
        system.message_type = pb.NORMAL
        request = pb.SendMessageRequest(messages=[made])
        for left in reversed(range(self._attempts)):
            try:
                (answer,) = await self._user.ask("SendMessage", request)
            except CallFailed as error:
                if not left:
                    raise SendFailed(ResponseCode.SYSTEM_ERROR, str(error)) from None
                continue
            (entry,) = answer.entries or (answer,)
            status = STATUSES.get(entry.status.code)
            if status is not None:
                queue = MessageQueue(message.topic, BROKER_NAME, UNKNOWN_QUEUE)
                return SendResult(status, entry.message_id, "", queue, entry.offset)
            self._user.turn()
            if not left:
                text = f"{entry.status.code} {entry.status.message}"
                raise SendFailed(ResponseCode.SYSTEM_ERROR, text)
        raise AssertionError("unreachable")


class GrpcConsumer:
    """Receives messages and acknowledges them, as a simple consumer."""

    def __init__(self, cluster: Cluster, client_id: str, topic: str, group: str, timeout: float):
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        settings.subscription.group.name = group
        settings.subscription.subscriptions.add().topic.name = topic
        self._user = GrpcUser(cluster, client_id, settings, timeout)
        self._topic, self._group = topic, group

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._user.__aexit__(*error)

    async def receive(self, invisible: int, wait: int) -> list[pb.Message]:
        """Messages that are invisible for so many seconds; wait for them for so many. Raises
        CallFailed."""
        request = pb.ReceiveMessageRequest(batch_size=8)
        request.group.name = self._group
        request.message_queue.topic.name = self._topic
        request.message_queue.id = -1
        request.message_queue.broker.name = BROKER_NAME
        request.filter_expression.type = pb.TAG
        request.filter_expression.expression = "*"
        request.invisible_duration.seconds = invisible
        request.long_polling_timeout.seconds = wait
        found = []
        for answer in await self._user.ask("ReceiveMessage", request, longer=wait):
            match answer.WhichOneof("content"):
                case "message":
                    found.append(answer.message)
                case "status" if answer.status.code not in (pb.OK, pb.MESSAGE_NOT_FOUND):
                    self._user.turn()
                    raise CallFailed(f"{answer.status.code} {answer.status.message}")
        return found

    async def acknowledge(self, message: pb.Message) -> bool:
        """Whether the broker has noted it. Raises CallFailed."""
        request = pb.AckMessageRequest()
        request.group.name = self._group
        request.topic.name = self._topic
        system = message.system_properties
        request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        (answer,) = await self._user.ask("AckMessage", request)
        return bool(answer.status.code == pb.OK)
