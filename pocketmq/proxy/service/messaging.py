"""apache.rocketmq.v2.MessagingService with all its calls.

This is independent of the transport: a handler gets a `Call` and a typed request, and returns a
typed answer. Business errors are in the answer's status; calls themselves do not fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from pocketmq.auth.errors import AuthError
from pocketmq.kept_task import KeptTask
from pocketmq.limited_log import LimitedLog
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.port.broker_port import BrokerPort
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.rpc import (
    SMALL,
    Admit,
    Call,
    Duplex,
    Message,
    Method,
    ServerStream,
    Unary,
)
from pocketmq.proxy.service.access import Access
from pocketmq.proxy.service.bounded import FEW, Bounded
from pocketmq.proxy.service.checks import group_of
from pocketmq.proxy.service.clients import Clients
from pocketmq.proxy.service.consuming import Consuming
from pocketmq.proxy.service.metadata import Metadata
from pocketmq.proxy.service.offsets import Offsets
from pocketmq.proxy.service.producing import Producing
from pocketmq.proxy.service.renewal import INTERVAL
from pocketmq.proxy.service.routes import Routes
from pocketmq.proxy.service.status import ServiceError, ok, status_of
from pocketmq.proxy.service.telemetry import Telemetry, log
from pocketmq.proxy.service.turns import Turns
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.request import Request, Response

SERVICE: Final = "apache.rocketmq.v2.MessagingService"

#: Seconds between two checks for silent clients.
HOUSEKEEPING: Final = 10.0

#: The largest command of a client, in bytes: its stack traces are the largest.
MAX_COMMAND: Final = 4 << 20
#: The most fields of a command: settings name up to a thousand topics.
SETTINGS_FIELDS: Final = 10_000
#: Limits of bytes and fields for requests that may be larger than others.
LARGE: Final = {"AckMessage": (1 << 20, 10_000), "SendMessage": (0, 1 << 17)}

_CONSUMERS: Final = (
    pb.PUSH_CONSUMER,
    pb.SIMPLE_CONSUMER,
    pb.PULL_CONSUMER,
    pb.LITE_PUSH_CONSUMER,
    pb.LITE_SIMPLE_CONSUMER,
)

Q = TypeVar("Q")
A = TypeVar("A")


class Messaging:
    """The service on top of one port; created on its event loop. Large requests give way to
    `light`."""

    def __init__(
        self,
        config: ProxyConfig,
        port: BrokerPort,
        access: Access,
        light: LightClients | None = None,
    ) -> None:
        self._config = config
        self._access = access
        self._log = LimitedLog(log)
        self._kept: list[KeptTask] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._own = port.open("pocketmq-proxy", "PYTHON", ("127.0.0.1", 0), _nothing)
        metadata = Metadata(port, self._own)
        turns = Turns(light)
        telemetry = self._telemetry = Telemetry(config, metadata, access, turns)
        clients = self.clients = Clients(port, telemetry.asked)
        telemetry.clients = clients
        telemetry.spawn = self._spawn
        self.routes = Routes(config, clients, metadata, access, turns)
        self._producing = Producing(config, port, clients, metadata, access, turns)
        self._consuming = Consuming(config, clients, metadata, access, self._own, turns)
        self._offsets = Offsets(config, clients, access, turns)

    def methods(self) -> Mapping[bytes, Method]:
        """Return the table of methods for the transport."""
        producing, consuming, offsets = self._producing, self._consuming, self._offsets
        unary = self._unary
        named: dict[str, Method] = {
            "QueryRoute": unary("QueryRoute", self.routes.query_route),
            "Heartbeat": unary("Heartbeat", self._heartbeat),
            "SendMessage": unary("SendMessage", producing.send_message),
            "QueryAssignment": unary("QueryAssignment", self.routes.query_assignment),
            "ReceiveMessage": self._stream("ReceiveMessage", consuming.receive_message),
            "AckMessage": unary("AckMessage", consuming.ack_message),
            "ForwardMessageToDeadLetterQueue": unary(
                "ForwardMessageToDeadLetterQueue", consuming.forward_to_dead_letters
            ),
            "PullMessage": self._stream("PullMessage", offsets.pull_message),
            "UpdateOffset": unary("UpdateOffset", offsets.update_offset),
            "GetOffset": unary("GetOffset", offsets.get_offset),
            "QueryOffset": unary("QueryOffset", offsets.query_offset),
            "EndTransaction": unary("EndTransaction", producing.end_transaction),
            "Telemetry": Duplex(
                Bounded(pb.TelemetryCommand, SETTINGS_FIELDS),
                self._telemetry.open,
                MAX_COMMAND,
                self._admit(pb.TelemetryCommand),
            ),
            "NotifyClientTermination": unary("NotifyClientTermination", self._terminated),
            "ChangeInvisibleDuration": unary(
                "ChangeInvisibleDuration", consuming.change_invisible_duration
            ),
            "RecallMessage": unary("RecallMessage", producing.recall_message),
        }
        return {f"/{SERVICE}/{name}".encode(): method for name, method in named.items()}

    def start(self) -> None:
        """Start renewing handles and removing silent clients."""
        renew = partial(self._every, INTERVAL, self._consuming.renewal.round)
        expire = partial(self._every, HOUSEKEEPING, self._expire)
        self._kept = [
            KeptTask(renew, "renewal of handles"),
            KeptTask(expire, "removal of silent clients"),
        ]

    async def stop(self) -> None:
        """Make the renewed messages visible, and remove all clients."""
        for kept in self._kept:
            kept.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await self._consuming.stop()
        self.clients.close()
        self._own.close()

    # --- calls ------------------------------------------------------------------------------------

    def _unary(self, name: str, handler: Callable[[Call, Q], Awaitable[A]]) -> Unary:
        """Return the method of a name, with errors in the status of its answer."""
        response = getattr(pb, f"{name}Response")

        async def answered(call: Call, request: Q) -> A:
            try:
                return await handler(call, request)
            except (ServiceError, RemotingError) as error:
                return response(status=status_of(error))  # type: ignore[no-any-return]
            except Exception as error:
                self._log.exception(
                    "call %s of %s failed",
                    call.method,
                    call.peer[0],
                    cause=("failed", call.method, type(error)),
                )
                return response(status=status_of(error))  # type: ignore[no-any-return]

        size, fields = LARGE.get(name, (SMALL, FEW))
        if name == "SendMessage":
            size = self._config.grpc_max_inbound_message_size
        request = Bounded(getattr(pb, f"{name}Request"), fields)
        return Unary(request, answered, limit=size, admit=self._admit(response))  # type: ignore[arg-type]

    def _stream(
        self, name: str, handler: Callable[[Call, Q], Awaitable[Sequence[A]]]
    ) -> ServerStream:
        request = Bounded(getattr(pb, f"{name}Request"))
        return ServerStream(request, handler, admit=self._admit(getattr(pb, f"{name}Response")))  # type: ignore[arg-type]

    def _admit(self, response: Callable[..., Message]) -> Admit | None:
        """Return a check that refuses unsigned calls before their request is read."""
        access = self._access
        if not access.enabled:
            return None

        def admit(call: Call) -> Sequence[Message]:
            try:
                access.anyone(call)
            except AuthError as error:
                return (response(status=status_of(error)),)
            return ()

        return admit

    async def _heartbeat(self, call: Call, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        """Keep a client registered."""
        self._access.anyone(call)
        client = self.clients.known(call)
        if client is None or client.settings is None:
            raise ServiceError(
                pb.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client"
            )
        kind = request.client_type or client.settings.client_type
        if kind in _CONSUMERS:
            self._access.consume(call, group_of(request.group))
        elif kind != pb.PRODUCER:
            raise ServiceError(
                pb.UNRECOGNIZED_CLIENT_TYPE, f"client type {kind} is none that is known"
            )
        await client.link.register(client.registration())
        return pb.HeartbeatResponse(status=ok())

    async def _terminated(
        self, call: Call, request: pb.NotifyClientTerminationRequest
    ) -> pb.NotifyClientTerminationResponse:
        """Remove a client that stops."""
        if request.HasField("group") and request.group.name:
            self._access.consume(call, group_of(request.group))
        else:
            self._access.anyone(call)
        client = self.clients.known(call)
        if client is not None:
            self.clients.forget(client)
        return pb.NotifyClientTerminationResponse(status=ok())

    # --- in the background ------------------------------------------------------------------------

    async def _expire(self) -> None:
        self.clients.expire()

    async def _every(self, seconds: float, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await job()
            except Exception:
                self._log.exception("housekeeping of the proxy failed")

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("work of the proxy failed: %r", error, cause=str(type(error)))


async def _nothing(request: Request[Any]) -> Response | None:
    return None
