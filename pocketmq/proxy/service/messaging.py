"""apache.rocketmq.v2.MessagingService: all its calls, put together.

Nothing here knows how calls come and go: a handler gets a `Call` and a typed request, and returns a
typed answer. Business errors are in the answer's status; calls themselves do not fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from pocketmq.limited_log import LimitedLog
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.port.broker_port import BrokerPort
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.rpc import Call, Duplex, Method, ServerStream, Unary
from pocketmq.proxy.service.access import Access
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
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.request import Request, Response

SERVICE: Final = "apache.rocketmq.v2.MessagingService"

#: Seconds between two looks for clients that are silent.
HOUSEKEEPING: Final = 10.0

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
    """The service over one port; made on the event loop that it runs on."""

    def __init__(self, config: ProxyConfig, port: BrokerPort, access: Access) -> None:
        self._access = access
        self._log = LimitedLog(log)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._own = port.open("pocketmq-proxy", "PYTHON", ("127.0.0.1", 0), _nothing)
        metadata = Metadata(port, self._own)
        telemetry = self._telemetry = Telemetry(config, metadata, access)
        clients = self.clients = Clients(port, telemetry.asked)
        telemetry.clients = clients
        telemetry.spawn = self._spawn
        self.routes = Routes(config, clients, metadata, access)
        self._producing = Producing(config, port, clients, metadata, access)
        self._consuming = Consuming(config, clients, metadata, access, self._own)
        self._offsets = Offsets(clients, access)

    def methods(self) -> Mapping[bytes, Method]:
        """Return the table for the transport."""
        producing, consuming, offsets = self._producing, self._consuming, self._offsets
        unary = self._unary
        named: dict[str, Method] = {
            "QueryRoute": unary(
                pb.QueryRouteRequest, self.routes.query_route, pb.QueryRouteResponse
            ),
            "Heartbeat": unary(pb.HeartbeatRequest, self._heartbeat, pb.HeartbeatResponse),
            "SendMessage": unary(
                pb.SendMessageRequest, producing.send_message, pb.SendMessageResponse
            ),
            "QueryAssignment": unary(
                pb.QueryAssignmentRequest, self.routes.query_assignment, pb.QueryAssignmentResponse
            ),
            "ReceiveMessage": ServerStream(pb.ReceiveMessageRequest, consuming.receive_message),
            "AckMessage": unary(pb.AckMessageRequest, consuming.ack_message, pb.AckMessageResponse),
            "ForwardMessageToDeadLetterQueue": unary(
                pb.ForwardMessageToDeadLetterQueueRequest,
                consuming.forward_to_dead_letters,
                pb.ForwardMessageToDeadLetterQueueResponse,
            ),
            "PullMessage": ServerStream(pb.PullMessageRequest, offsets.pull_message),
            "UpdateOffset": unary(
                pb.UpdateOffsetRequest, offsets.update_offset, pb.UpdateOffsetResponse
            ),
            "GetOffset": unary(pb.GetOffsetRequest, offsets.get_offset, pb.GetOffsetResponse),
            "QueryOffset": unary(
                pb.QueryOffsetRequest, offsets.query_offset, pb.QueryOffsetResponse
            ),
            "EndTransaction": unary(
                pb.EndTransactionRequest, producing.end_transaction, pb.EndTransactionResponse
            ),
            "Telemetry": Duplex(pb.TelemetryCommand, self._telemetry.open),
            "NotifyClientTermination": unary(
                pb.NotifyClientTerminationRequest,
                self._terminated,
                pb.NotifyClientTerminationResponse,
            ),
            "ChangeInvisibleDuration": unary(
                pb.ChangeInvisibleDurationRequest,
                consuming.change_invisible_duration,
                pb.ChangeInvisibleDurationResponse,
            ),
            "RecallMessage": unary(
                pb.RecallMessageRequest, producing.recall_message, pb.RecallMessageResponse
            ),
        }
        return {f"/{SERVICE}/{name}".encode(): method for name, method in named.items()}

    def start(self) -> None:
        """Renew handles and forget silent clients from now on."""
        self._spawn(self._every(INTERVAL, self._consuming.renewal.round))
        self._spawn(self._every(HOUSEKEEPING, self._expire))

    async def stop(self) -> None:
        """Make messages visible that were renewed, and forget all clients."""
        for task in tuple(self._tasks):
            task.cancel()
        await self._consuming.stop()
        self.clients.close()
        self._own.close()

    # --- calls ------------------------------------------------------------------------------------

    def _unary(
        self,
        request: Any,
        handler: Callable[[Call, Q], Awaitable[A]],
        response: Callable[..., A],
    ) -> Unary:
        """Return the method whose errors are in the status of its answer."""

        async def answered(call: Call, request: Q) -> A:
            try:
                return await handler(call, request)
            except (ServiceError, RemotingError) as error:
                return response(status=status_of(error))
            except Exception as error:
                self._log.exception(
                    "call %s of %s failed",
                    call.method,
                    call.peer[0],
                    cause=("failed", call.method, type(error)),
                )
                return response(status=status_of(error))

        return Unary(request, answered)  # type: ignore[arg-type]

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
        """Forget a client that stops."""
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
