"""What a proxy keeps of floods of gRPC clients: see test_resident_memory.py.

Those on a small machine are small, too; the others show the limits of a large one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import pytest
from grpc import aio

from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.transport.http2 import PREFACE
from tests.proxy.grpc_client import SERVICE, GrpcClient
from tests.proxy.raw_frames import Kind, frame
from tests.proxy.test_server import Raw
from tests.security.resident import ADDRESSES, MB, Open, Serve, needs_proc, send

pytestmark = needs_proc

#: A process with limits as on a machine with half a gigabyte: a quarter of it for all gRPC clients.
SMALL = "tests.security.small_machine"
#: All the octets that a stream or a connection can be allowed to send.
WHOLE_WINDOW = (1 << 31) - 1
LARGE = 4_000_000


async def open_grpc(port: int, address: str, window: int | None = None) -> Raw:
    """A connection; `window`: octets of each answer that the client takes at first."""
    streams = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    raw = Raw(*streams)
    settings = b"" if window is None else b"\0\4" + window.to_bytes(4, "big")
    raw.writer.write(PREFACE + frame(Kind.SETTINGS, 0, 0, settings))
    return raw


async def through(raw: Raw, number: int) -> bool:
    """Whether the server has read all that was written, rather than closed the connection."""
    raw.writer.write(frame(Kind.PING, 0, 0, b"%08d" % number))
    try:
        await raw.until(b"%08d" % number)
    except (AssertionError, ConnectionError):
        return False
    return True


def pull(raw: Raw, stream_id: int) -> None:
    """Ask for the first message of a queue."""
    request = pb.PullMessageRequest(batch_size=1)
    request.group.name = "G"
    request.message_queue.topic.name = "T"
    request.message_queue.broker.name = "broker-a"
    request.filter_expression.expression = "*"
    body = request.SerializeToString()
    raw.call(stream_id, f"{SERVICE}PullMessage".encode(), metadata={b"x-mq-client-id": b"c"})
    raw.data(stream_id, b"\0" + len(body).to_bytes(4, "big") + body, ended=True)


async def flood(port: int, addresses: Sequence[str], connections: int) -> int:
    """Have each connection ask for 56 MB of answers and take none; return how many are closed."""
    crowd, closed = [], 0
    try:
        for number in range(connections):
            raw = await open_grpc(port, addresses[number % len(addresses)], window=0)
            crowd.append(raw)
            for n in range(14):
                pull(raw, 1 + 2 * n)
                if not await through(raw, n):
                    closed += 1
                    break
    finally:
        for raw in crowd:
            raw.writer.transport.abort()
    return closed


async def test_answers_that_one_connection_does_not_take(serve: Serve, open_peer: Open) -> None:
    server = serve(grpc=True)
    await (await open_peer(server.broker)).flood([send(0, "T", bytes(LARGE))], 1)
    raw = await open_grpc(server.grpc, ADDRESSES[0], window=0)
    for n in range(80):
        pull(raw, 1 + 2 * n)
    with contextlib.suppress(ConnectionError):
        await raw.until_closed()
    # 320 MB; it may have 64 MiB, and the answers of one turn while they are made.
    assert server.peak < 220 * MB


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "addresses", "connections", "most"),
    [
        # All may have 128 MiB, an address 96.
        (SMALL, 3, 12, 200 * MB),
        # An address may have 384 MiB.
        ("pocketmq", 1, 12, 480 * MB),
        # All may have 512 MiB.
        ("pocketmq", 3, 16, 680 * MB),
    ],
    ids=["small machine", "one address", "all"],
)
async def test_answers_that_many_connections_do_not_take(
    serve: Serve, open_peer: Open, module: str, addresses: int, connections: int, most: int
) -> None:
    server = serve(module=module, grpc=True)
    await (await open_peer(server.broker)).flood([send(0, "T", bytes(LARGE))], 1)
    await flood(server.grpc, ADDRESSES[:addresses], connections)
    assert server.peak < most


async def test_answers_of_which_the_last_byte_is_not_taken(serve: Serve, open_peer: Open) -> None:
    server = serve(grpc=True)
    await (await open_peer(server.broker)).flood([send(0, "T", bytes(LARGE))], 1)
    raw = await open_grpc(server.grpc, ADDRESSES[0], window=0)
    raw.writer.write(frame(Kind.WINDOW_UPDATE, 0, 0, (WHOLE_WINDOW - 65_535).to_bytes(4, "big")))
    for n in range(15):
        # There is an offset after the message, too.
        raw.writer.write(frame(Kind.PING, 0, 0, b"%08d" % n))
        pull(raw, 1 + 2 * n)
        raw.writer.write(frame(Kind.WINDOW_UPDATE, 0, 1 + 2 * n, LARGE.to_bytes(4, "big")))
        async with asyncio.timeout(60):
            await raw.reader.readexactly(LARGE)
    # 60 MB were answered, and less than a megabyte is left.
    assert server.growth < 45 * MB
    raw.writer.transport.abort()


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "connections", "most"),
    [(SMALL, 40, 220 * MB), ("pocketmq", 60, 680 * MB)],
    ids=["small machine", "large machine"],
)
async def test_requests_that_a_proxy_holds(
    serve: Serve, module: str, connections: int, most: int
) -> None:
    server = serve(module=module, grpc=True)
    crowd, refused = [], 0
    try:
        for number in range(connections):
            raw = await open_grpc(server.grpc, ADDRESSES[number % 3])
            crowd.append(raw)
            open_ = True
            # Calls of 4 MB without the last byte. HTTP/2 lets a connection have so many bytes open.
            for stream_id in range(1, 9, 2):
                raw.call(stream_id, b"/apache.rocketmq.v2.MessagingService/SendMessage")
                raw.data(stream_id, b"\0" + (4 * MB).to_bytes(4, "big"))
                for at in range(256):
                    raw.data(stream_id, bytes(16_000))
                    if at % 3 == 2 and not (open_ := await through(raw, at)):
                        break
                if not open_:
                    refused += 1
                    break
        # 16 MB each were sent; the requests that are held may have 128 MiB, or 512.
        assert server.peak < most
    finally:
        for raw in crowd:
            raw.writer.transport.abort()


@pytest.mark.long
async def test_settings_of_a_proxy_s_clients(serve: Serve) -> None:
    server = serve(grpc=True)
    kept = 0
    async with contextlib.AsyncExitStack() as stack:
        for number in range(500):
            client = GrpcClient(server.grpc, client_id=f"c{number}")
            await stack.enter_async_context(client)
            settings = pb.Settings(client_type=pb.PRODUCER)
            for topic in range(900):
                settings.publishing.topics.add(name=f"{number}-{topic}".ljust(120, "x"))
            with contextlib.suppress(StopAsyncIteration, aio.AioRpcError):
                await client.telemetry(settings)
                kept += 1
        assert kept < 450
        # 32 MB for one address, and the clients' connections.
        assert server.growth < 150 * MB


@pytest.mark.long
async def test_clients_of_a_proxy(serve: Serve) -> None:
    server = serve(grpc=True)
    codes: dict[int, int] = {}
    async with GrpcClient(server.grpc) as client:
        request = pb.QueryRouteRequest()
        request.topic.name = "T"
        for number in range(0, 21_000, 50):
            answers = await asyncio.gather(
                *(
                    client.call("QueryRoute", request, timeout=60, x_mq_client_id=f"{number + n}")
                    for n in range(50)
                )
            )
            for answer in answers:
                codes[answer.status.code] = codes.get(answer.status.code, 0) + 1
    assert server.growth < 100 * MB
