"""The smallest possible remoting caller, so that the harness does not lean on what it tests."""

from __future__ import annotations

import itertools
import json
import re
import socket
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

GET_ROUTEINFO_BY_TOPIC = 105
GET_BROKER_CLUSTER_INFO = 106
UPDATE_BROKER_CONFIG = 25

_opaque = itertools.count(1)


class Answer(NamedTuple):
    code: int
    remark: str | None
    ext_fields: dict[str, str]
    body: bytes


def call(
    address: str,
    code: int,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
    timeout: float = 10.0,
) -> Answer:
    """One request with a JSON header over a connection of its own; raises OSError."""
    header = json.dumps(
        {
            "code": code,
            "extFields": ext_fields or {},
            "flag": 0,
            "language": "JAVA",
            "opaque": next(_opaque),
            "version": 479,
        }
    ).encode()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout) as connection:
        head = struct.pack(">II", 4 + len(header) + len(body), len(header))
        connection.sendall(head + header + body)
        stream = connection.makefile("rb")
        length, header_length = struct.unpack(">II", _exactly(stream.read, 8))
        rest = _exactly(stream.read, length - 4)
    if header_length >> 24:
        raise AssertionError("a JSON request was answered with a binary header")
    answer = json.loads(rest[:header_length])
    return Answer(
        answer["code"], answer.get("remark"), answer.get("extFields") or {}, rest[header_length:]
    )


def _exactly(read: Callable[[int], bytes], size: int) -> bytes:
    data = read(size)
    if len(data) < size:
        raise ConnectionError("the connection closed in the middle of an answer")
    return data


def registered_brokers(namesrv: str) -> dict[str, str]:
    """Broker name to the address of its master, as the name server knows them."""
    # fastjson leaves integer keys bare: {0:"127.0.0.1:10911"}.
    text = re.sub(r"([{,])(\d+):", r'\1"\2":', call(namesrv, GET_BROKER_CLUSTER_INFO).body.decode())
    table = json.loads(text).get("brokerAddrTable") or {}
    return {
        name: broker["brokerAddrs"]["0"]
        for name, broker in table.items()
        if "0" in broker["brokerAddrs"]
    }


def until(
    condition: Callable[[], bool], what: str, timeout: float = 30.0, step: float = 0.05
) -> None:
    """Ask again and again until `condition` holds; a refused connection counts as no."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout} s")
        time.sleep(step)
