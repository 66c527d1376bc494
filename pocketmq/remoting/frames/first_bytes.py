"""Recognises connections whose first bytes are not a remoting frame.

Every remoting frame starts with its length, and a length within the limit of 16 MiB starts with a
zero byte. So the first byte alone tells nearly every stray client from a real one: HTTP
and gRPC start with a letter, TLS with 0x16, the PROXY protocol with `P` or a carriage return.
Without this, such a client's first letters are read as a frame of 1.3 GB and the operator sees
"Adjusted frame length exceeds 16777216: 1347569956", which is the text "PRI " of HTTP/2.

This module knows signatures and texts, and uses no sockets.
"""

from __future__ import annotations

import enum


class FirstBytes(enum.Enum):
    """The protocol that a connection began with."""

    REMOTING = "remoting"
    UNDECIDED = "undecided"
    HTTP = "HTTP"
    GRPC = "gRPC (HTTP/2)"
    TLS = "TLS"
    PROXY_PROTOCOL = "the PROXY protocol"


_SIGNATURES: tuple[tuple[bytes, FirstBytes], ...] = (
    (b"PRI * HTTP/2", FirstBytes.GRPC),
    (b"PROXY ", FirstBytes.PROXY_PROTOCOL),
    (b"\r\n\r\n\x00\r\nQUIT\n", FirstBytes.PROXY_PROTOCOL),
    (b"\x16\x03", FirstBytes.TLS),
    *(
        (method + b" ", FirstBytes.HTTP)
        for method in (
            b"GET",
            b"POST",
            b"HEAD",
            b"PUT",
            b"DELETE",
            b"OPTIONS",
            b"PATCH",
            b"CONNECT",
            b"TRACE",
        )
    ),
)

_ADVICE = {
    FirstBytes.HTTP: (
        "HTTP belongs to the dashboard (port 8082 by default) or the metrics exporter "
        "(port 5557 by default)"
    ),
    FirstBytes.GRPC: "RocketMQ 5 gRPC clients belong to a proxy's gRPC port (8081 by default)",
    FirstBytes.TLS: (
        "it serves no TLS; set tls.server.certPath and tls.server.keyPath here, or switch TLS off "
        "in the client (tls.enable=false)"
    ),
    FirstBytes.PROXY_PROTOCOL: (
        "let the load balancer pass plain TCP to this port (no send-proxy option)"
    ),
}

PROTOCOL_VERSION_ALERT = b"\x15\x03\x03\x00\x02\x02\x46"
"""The TLS alert (RFC 5246, 7.2; fatal) with which a server tells a client that only one of them
uses TLS. Without it the client sees a closed connection, and retries."""

HANDSHAKE_FAILURE_ALERT = b"\x15\x03\x03\x00\x02\x02\x28"
"""The same, fatal as well, for a client whose handshake is refused."""


def is_tls_alert(data: bytes) -> bool:
    """Whether the first bytes from a server are a TLS alert. No frame begins like that."""
    return data.startswith(b"\x15\x03")


def recognise(data: bytes) -> FirstBytes:
    """Recognise the protocol that `data`, all bytes received so far, begins.

    `UNDECIDED` while a signature could still follow. `REMOTING` is everything else: whether it
    is a good frame is for the frame splitter to say.
    """
    if not data:
        return FirstBytes.UNDECIDED
    if data[0] == 0:
        return FirstBytes.REMOTING
    undecided = False
    for signature, kind in _SIGNATURES:
        if data.startswith(signature):
            return kind
        undecided = undecided or signature.startswith(data)
    return FirstBytes.UNDECIDED if undecided else FirstBytes.REMOTING


def explain(kind: FirstBytes, port: int, server: str) -> str:
    """Return the log line: the client's protocol, the port's protocol, and the right port."""
    return (
        f"looks like {kind.value}, but port {port} is the remoting port of the {server}: "
        f"{_ADVICE[kind]}"
    )
