"""What a client that sends requests without end costs another one: `python -m bench.flood`.

The flood writes requests of one kind as fast as the broker takes them, and reads the answers
without looking at them. Or it opens connections and closes them, with and without TLS handshakes;
or it keeps 1,000 connections open, and sends a byte of a frame on each of them in turn. Beside it,
another client sends one message at a time. The table shows how long that one waits for its answers:
alone before each kind, beside one and two such floods, and beside as many of another broker. These
take the processors away as well, but no turns of the client's own broker. Each flood is a process
of its own. With several rounds, all is measured in turn, and the least of each figure counts.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product

from pocketmq.client.admin.admin import Admin
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import split_address
from pocketmq.remoting.frames.frame import decode_command, encode_command
from pocketmq.remoting.headers import GetMaxOffsetRequestHeader, PullMessageRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from tests.interop.harness import ours
from tests.interop.harness.official import PROJECT

from .tls import certificate, context
from .wake_flood import quantile
from .work_directory import work_directory

TOPIC, FLOODED = "bench_good", "bench_flooded"
WRITE = 256 * 1024
UNKNOWN = 9_999
HALVES = 1_000
RESET = struct.pack("ii", 1, 0)
HEADING = ("flood", "connections", "broker", "its requests/s", "p50", "p99", "worst")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.flood", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (4)")
    parser.add_argument("--rounds", type=int, default=1, help="of all measurements (1)")
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS, *FLOODS], default=[*KINDS, *FLOODS])
    parser.add_argument("--flood", nargs=2, metavar=("ADDRESS", "KIND"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.flood:
        flood(*options.flood)
        return 0
    with ExitStack() as cleanup:
        directory = cleanup.enter_context(work_directory("pocketmq-bench-"))
        namesrv = ours.start_name_server(directory)
        cleanup.callback(namesrv.process.kill)
        settings = certificate(directory, "rsa:2048")
        addresses = {}
        for name in ("own", "another"):
            broker = ours.start_broker(directory, namesrv.address, name=name, settings=settings)
            cleanup.callback(broker.process.kill)
            addresses[name] = broker.address
        asyncio.run(create_topics(namesrv.address))
        print(f"a message at a time beside a flood, times in ms\n\n| {' | '.join(HEADING)} |")
        print(f"|{'---|' * len(HEADING)}")
        for kind in options.kinds:
            cases = [("none", 0, "own"), *product([kind], (1, 2), ("another", "own"))]
            found = [
                [
                    measured(addresses["own"], kind, count, addresses[broker], options)
                    for kind, count, broker in cases
                ]
                for _ in range(options.rounds)
            ]
            for case, figures in zip(cases, zip(*found, strict=True), strict=True):
                show(*case, [*map(min, zip(*figures, strict=True))])
    return 0


def measured(
    address: str, kind: str, count: int, flooded: str, options: argparse.Namespace
) -> tuple[float, ...]:
    """Measure the client of the broker at `address` while `count` floods run against another
    address. Return their rate, and how long the client waited: p50, p99 and worst, in ms."""
    floods = [start_flood(flooded, kind) for _ in range(count)]
    try:
        time.sleep(0.5 if count else 0)
        waits = good_client(address, options.seconds)
        rate = sum(float(each.communicate(timeout=30)[0]) for each in floods)
    finally:
        for each in floods:
            each.kill()
            each.wait()
    return rate, quantile(waits, 0.5), quantile(waits, 0.99), max(waits)


async def create_topics(namesrv: str) -> None:
    async with Admin(namesrv=namesrv) as admin:
        for topic in (TOPIC, FLOODED):
            await admin.create_topic(topic, queues=4)


def show(kind: str, count: int, broker: str, figures: Sequence[float]) -> None:
    rate, *waits = figures
    print(
        f"| {kind} | {count} | {broker} | {rate:,.0f} | "
        f"{' | '.join(f'{each:.2f}' for each in waits)} |",
        flush=True,
    )


def good_client(address: str, seconds: float) -> list[float]:
    """How long each of its sends waited, in ms."""
    request = send_request(TOPIC)
    waits: list[float] = []
    with socket.create_connection(split_address(address)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        until = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < until:
            connection.sendall(request)
            if code := read_answer(connection):
                raise RuntimeError(f"a send was answered with code {code}")
            waits.append((time.perf_counter() - begin) * 1000)
    return waits


def read_answer(connection: socket.socket) -> int:
    """Return the code of the next answer."""
    length = int.from_bytes(_exactly(connection, 4))
    return decode_command(_exactly(connection, length)).code


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return data


# The flood


def start_flood(address: str, kind: str) -> subprocess.Popen[str]:
    """Its process. It ends with its input, and prints how many requests it wrote per second."""
    return subprocess.Popen(
        [sys.executable, "-m", "bench.flood", "--flood", address, kind],
        cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def flood(address: str, kind: str) -> None:
    """Do the same thing again and again until the input ends."""
    again = FLOODS.get(kind)
    if again is None:
        flood_requests(address, KINDS[kind](FLOODED))
        return
    done = 0

    def repeat() -> None:
        nonlocal done
        for _ in again(address):
            done += 1

    begin = time.perf_counter()
    threading.Thread(target=repeat, daemon=True).start()
    sys.stdin.read()
    print(done / (time.perf_counter() - begin))


def connect_again(address: str) -> Iterator[None]:
    """Open a connection and reset it, which leaves no port in TIME_WAIT."""
    while True:
        with socket.create_connection(split_address(address)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.sendall(b"\0")
            yield


def shake_hands(address: str) -> Iterator[None]:
    """Begin with TLS: the server's share is the larger one."""
    tls = context()
    while True:
        connection = socket.create_connection(split_address(address))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        with tls.wrap_socket(connection):
            yield


def begin_frames(address: str) -> Iterator[None]:
    """Send frames of 16 MiB a byte at a time, on many connections."""
    connections = [socket.create_connection(split_address(address)) for _ in range(HALVES)]
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall((16_000_000).to_bytes(4))
    while True:
        for connection in connections:
            connection.sendall(b"x")
            yield


def flood_requests(address: str, request: bytes) -> None:
    """Write a request again and again until the input ends."""
    count = WRITE // len(request)
    block = request * count
    connection = socket.create_connection(split_address(address))
    written = 0

    def write() -> None:
        nonlocal written
        while True:
            connection.sendall(block)
            written += count

    def read() -> None:
        while connection.recv(WRITE):
            pass

    begin = time.perf_counter()
    for work in (write, read):
        threading.Thread(target=work, daemon=True).start()
    sys.stdin.read()
    print(written / (time.perf_counter() - begin))


def send_request(topic: str) -> bytes:
    """Return the frame of a send that creates the topic if it is new."""
    header = SendMessageRequestHeaderV2(
        producer_group="bench", topic=topic, default_topic="TBW102", default_topic_queue_nums=4,
        queue_id=0, sys_flag=0, born_timestamp=int(time.time() * 1000), flag=0,
    )  # fmt: skip
    return encode_command(RequestCode.SEND_MESSAGE_V2, 1, header=header, body=b"x" * 100)


def pull_request(topic: str, group: str = "bench") -> bytes:
    """Return the frame of a pull that is answered at once."""
    header = PullMessageRequestHeader(
        consumer_group=group, topic=topic, queue_id=3, queue_offset=0, max_msg_nums=32,
        sys_flag=4, commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0,
    )  # fmt: skip
    return encode_command(RequestCode.PULL_MESSAGE, 1, header=header)


def _max_offset(topic: str) -> bytes:
    header = GetMaxOffsetRequestHeader(topic=topic, queue_id=1)
    return encode_command(RequestCode.GET_MAX_OFFSET, 1, header=header)


KINDS = {
    "unknown codes": lambda _: encode_command(UNKNOWN, 1),
    "sends": send_request,
    "empty pulls": pull_request,
    "offset queries": _max_offset,
}
FLOODS: dict[str, Callable[[str], Iterator[None]]] = {
    "connections": connect_again,
    "TLS handshakes": shake_hands,
    "begun frames": begin_frames,
}

if __name__ == "__main__":
    sys.exit(main())
