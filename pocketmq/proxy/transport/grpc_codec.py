"""gRPC over HTTP/2: headers, framing and end of calls. No I/O.

Reference: the gRPC protocol description, "PROTOCOL-HTTP2".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from pocketmq.proxy.rpc import GrpcError, GrpcStatus
from pocketmq.proxy.transport.http2 import Headers

CONTENT_TYPE: Final = b"application/grpc"

RESPONSE_HEADERS: Final = (
    (b":status", b"200"),
    (b"content-type", CONTENT_TYPE),
    (b"grpc-accept-encoding", b"identity"),
)
"""The beginning of every answer."""

OK_TRAILERS: Final = ((b"grpc-status", b"0"),)


def error_trailers(error: GrpcError) -> Headers:
    """Return the header fields that end a call with an error."""
    text = quote(error.text[:1024], safe=" !#$&'()*+,-./:;<=>?@[]^_`{|}~").encode()
    return (b"grpc-status", b"%d" % error.status), (b"grpc-message", text)


def http_error(status: int) -> Headers:
    """Return the header fields that refuse a request that is not gRPC, with 405 or 415."""
    return ((b":status", b"%d" % status),)


_UNITS: Final = {
    ord("H"): 3600.0,
    ord("M"): 60.0,
    ord("S"): 1.0,
    ord("m"): 1e-3,
    ord("u"): 1e-6,
    ord("n"): 1e-9,
}


def timeout_of(text: bytes) -> float:
    """Return the seconds of a grpc-timeout; infinite for an invalid one."""
    if not text or not text[:-1].isdigit() or len(text) > 9:
        return math.inf
    unit = _UNITS.get(text[-1])
    return math.inf if unit is None else int(text[:-1]) * unit


class RequestHeaders:
    """The header fields of one call.

    Attributes:
        path: `/package.Service/Method`.
        timeout: seconds that the client waits; infinite without a deadline.
        authority: the address by which the client knows this server.
        metadata: every other field by its name in lower case; the last one of each name.
    """

    __slots__ = ("authority", "content_type", "encoding", "metadata", "method", "path", "timeout")

    def __init__(self, headers: Headers) -> None:
        fields = dict(headers)
        self.path = fields.pop(b":path", b"")
        self.method = fields.pop(b":method", b"")
        self.authority = fields.pop(b":authority", b"")
        self.content_type = fields.pop(b"content-type", b"")
        self.encoding = fields.pop(b"grpc-encoding", b"identity")
        self.timeout = timeout_of(fields.pop(b"grpc-timeout", b""))
        self.metadata = fields


class MessageReader:
    """Assembles the messages of one call from pieces of data; none is longer than `limit`."""

    __slots__ = ("_begun", "_limit", "_need")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun = bytearray()
        self._need = 5

    @property
    def size(self) -> int:
        """Bytes of the incomplete message."""
        return len(self._begun)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add a piece; yield the complete messages. Raises GrpcError."""
        if self._begun:
            self._begun += data  # one buffer, because many small pieces would take far more memory
            if len(self._begun) < self._need:
                return
            data = bytes(self._begun)
            self._begun = bytearray()
        at = 0
        while len(data) - at >= 5:
            length = int.from_bytes(data[at + 1 : at + 5], "big")
            if data[at]:
                raise GrpcError(
                    GrpcStatus.UNIMPLEMENTED, "messages are not compressed here: use identity"
                )
            if length > self._limit:
                raise GrpcError(
                    GrpcStatus.RESOURCE_EXHAUSTED,
                    f"a message of {length} bytes; the limit is {self._limit}",
                )
            end = at + 5 + length
            if len(data) < end:
                self._need = end - at
                self._begun += data[at:]
                return
            yield data[at + 5 : end]
            at = end
        self._need = 5
        self._begun += data[at:]


def message_frame(message: bytes) -> bytes:
    """Return a message with its length prefix."""
    return b"\0" + len(message).to_bytes(4, "big") + message
