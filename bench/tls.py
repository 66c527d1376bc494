"""What TLS costs the broker: `python -m bench.tls`.

One client does the same on a plain and on an encrypted connection to the same broker, in turn. The
table shows the broker's CPU time, which other work on the machine disturbs less than rates, and the
ratio of the two. The client's own side of TLS is not in it, except in the time of one send.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from pocketmq.client.admin.admin import Admin
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import split_address
from pocketmq.remoting.frames.frame import encode_command
from pocketmq.remoting.headers import PullMessageRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from tests.interop.harness import ours
from tests.interop.harness.official import Server

from .work_directory import work_directory

TOPIC = "bench_tls"
BODY = b"x" * 1024
ROUNDS = 9
TOGETHER = 64
SENDS = 1_600
PULLS = 60
UNKNOWN = 9_999
HANDSHAKES = 100


def main() -> int:
    argparse.ArgumentParser(prog="python -m bench.tls", description=__doc__).parse_args()
    if shutil.which("openssl") is None:
        print("bench.tls needs the program openssl", file=sys.stderr)
        return 1
    with ExitStack() as cleanup:
        directory = cleanup.enter_context(work_directory("pocketmq-bench-"))
        namesrv = ours.start_name_server(directory)
        cleanup.callback(namesrv.process.kill)
        settings = certificate(directory, "rsa:2048")
        broker = ours.start_broker(directory, namesrv.address, name="tls", settings=settings)
        cleanup.callback(broker.process.kill)
        asyncio.run(create_topic(namesrv.address))
        measure(broker)
    return 0


def certificate(directory: Path, key: str) -> dict[str, object]:
    """Make a certificate, and return the settings of a broker that has it."""
    chain, own = directory / "chain.pem", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", key, "-nodes", "-days", "2", "-keyout", own, "-out",
         chain, "-subj", "/CN=127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return {"tls.server.certPath": chain, "tls.server.keyPath": own}


async def create_topic(namesrv: str) -> None:
    async with Admin(namesrv=namesrv) as admin:
        await admin.create_topic(TOPIC, queues=1)


def measure(broker: Server) -> None:
    plain, encrypted = connect(broker.address, None), connect(broker.address, context())
    print("| CPU time in µs of a | plain | TLS | TLS / plain |\n|---|---|---|---|")
    works: tuple[tuple[str, Callable[[socket.socket], None], int], ...] = (
        ("send of 1 KiB, one at a time", one_by_one, SENDS),
        ("send of 1 KiB, 64 at a time", together, SENDS),
        ("answer with 256 KiB", pulls, PULLS),
    )
    for name, work, count in works:
        pairs = [
            tuple(cpu(broker, partial(work, each)) / count * 1e6 for each in (plain, encrypted))
            for _ in range(ROUNDS)
        ]
        show(name, *map(median, zip(*pairs, strict=True)))
    times = [(latency(plain), latency(encrypted)) for _ in range(ROUNDS)]
    name = "send of 1 KiB, one at a time: until its answer"
    show(name, *map(median, zip(*times, strict=True)))
    for name, again in (("handshake", False), ("resumed handshake", True)):
        used = median(
            cpu(broker, partial(handshakes, broker.address, again)) / HANDSHAKES * 1e6
            for _ in range(3)
        )
        print(f"| {name} (RSA, 2048 bits) | – | {used:,.0f} | – |", flush=True)


def show(name: str, plain: float, encrypted: float) -> None:
    print(f"| {name} | {plain:,.1f} | {encrypted:,.1f} | {encrypted / plain:.2f} |", flush=True)


def cpu(broker: Server, work: Callable[[], None]) -> float:
    """Seconds of CPU time that the broker's threads use while `work` runs."""
    tasks = Path(f"/proc/{broker.process.pid}/task")

    def used() -> int:
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())

    before = used()
    work()
    return (used() - before) / 1e9


def context() -> ssl.SSLContext:
    made = ssl.create_default_context()
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def connect(address: str, tls: ssl.SSLContext | None) -> socket.socket:
    connection = socket.create_connection(split_address(address))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tls.wrap_socket(connection) if tls else connection


def handshakes(address: str, resumed: bool) -> None:
    tls = context()
    session = None
    for _ in range(HANDSHAKES):
        plain = socket.create_connection(split_address(address))
        with plain, tls.wrap_socket(plain, session=session) as connection:
            if resumed and session is None:
                connection.sendall(encode_command(UNKNOWN, 1))
                read_answers(connection, 1)  # a ticket comes with it
                session = connection.session


def one_by_one(connection: socket.socket) -> None:
    request = send_request()
    for _ in range(SENDS):
        connection.sendall(request)
        read_answers(connection, 1)


def latency(connection: socket.socket) -> float:
    begin = time.perf_counter()
    one_by_one(connection)
    return (time.perf_counter() - begin) / SENDS * 1e6


def together(connection: socket.socket) -> None:
    requests = send_request() * TOGETHER
    for _ in range(SENDS // TOGETHER):
        connection.sendall(requests)
        read_answers(connection, TOGETHER)


def pulls(connection: socket.socket) -> None:
    header = PullMessageRequestHeader(
        consumer_group="bench", topic=TOPIC, queue_id=0, queue_offset=0, max_msg_nums=256,
        sys_flag=4, commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0,
        large_transfer=True,
    )  # fmt: skip
    request = encode_command(RequestCode.PULL_MESSAGE, 1, header=header)
    for _ in range(PULLS):
        connection.sendall(request)
        read_answers(connection, 1)


def read_answers(connection: socket.socket, count: int) -> None:
    data = bytearray()
    while count:
        more = connection.recv(1 << 20)
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
        while count and len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4])):
            del data[:end]
            count -= 1


def send_request() -> bytes:
    header = SendMessageRequestHeaderV2(
        producer_group="bench", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=4,
        queue_id=0, sys_flag=0, born_timestamp=int(time.time() * 1000), flag=0,
    )  # fmt: skip
    return encode_command(RequestCode.SEND_MESSAGE_V2, 1, header=header, body=BODY)


if __name__ == "__main__":
    sys.exit(main())
