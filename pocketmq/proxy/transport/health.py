"""grpc.health.v1.Health: whether the proxy is serving, for load balancers and orchestrators.

Its two messages are so small that they are encoded and decoded here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from pocketmq.proxy.rpc import Call, Duplex, GrpcError, GrpcStatus, Method, Outgoing, Unary

_SERVING: Final = 1


class HealthCheckRequest:
    """The name of a service; "" for the whole server."""

    def __init__(self, service: str) -> None:
        self.service = service

    @classmethod
    def FromString(cls, data: bytes) -> HealthCheckRequest:
        """Read field 1, a string shorter than 128 bytes. Raises ValueError."""
        if not data:
            return cls("")
        if len(data) < 2 or data[0] != 0x0A or data[1] != len(data) - 2:
            raise ValueError("not a HealthCheckRequest")
        return cls(data[2:].decode())


class HealthCheckResponse:
    """The status: SERVING."""

    def SerializeToString(self) -> bytes:
        """Return field 1, the status."""
        return b"\x08" + bytes((_SERVING,))


def health_methods(*services: str) -> Mapping[bytes, Method]:
    """Return the methods; they know the whole server, and these services."""

    def check_name(name: str) -> None:
        if name and name not in services:
            raise GrpcError(GrpcStatus.NOT_FOUND, f"service {name[:100]} is not known")

    def check(call: Call, request: HealthCheckRequest) -> asyncio.Future[HealthCheckResponse]:
        future: asyncio.Future[HealthCheckResponse] = asyncio.get_running_loop().create_future()
        try:
            check_name(request.service)
        except GrpcError as error:
            future.set_exception(error)
        else:
            future.set_result(HealthCheckResponse())
        return future

    class Watch:
        """Send SERVING once; the stream ends when the server stops."""

        def __init__(self, call: Call, outgoing: Outgoing) -> None:
            self._outgoing = outgoing

        def received(self, request: HealthCheckRequest) -> None:
            check_name(request.service)
            self._outgoing.send(HealthCheckResponse())

        def closed(self) -> None:
            pass

    return {
        b"/grpc.health.v1.Health/Check": Unary(HealthCheckRequest, check),
        b"/grpc.health.v1.Health/Watch": Duplex(HealthCheckRequest, Watch),
    }
