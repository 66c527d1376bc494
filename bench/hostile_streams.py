"""What hostile clients of the gRPC proxy cost the others: `python -m bench.hostile_streams`.

One client sends message after message, and its latencies are measured: alone and beside each kind
of hostile clients, in turn. Hostile clients are written with the library h2 and run in a process
of their own. The aim: the p99 of the others at most doubles. The last column is the server's use of
one core by the hostile clients alone; it says more than latencies when the machine is busy.

kinds:
  never read     calls whose answers, 2 MiB a connection, are never read from the socket
  half messages  calls that begin a message and do not end it
  idle streams   1,000 Telemetry streams that send their settings and then nothing
  huge metadata  calls with 15 KiB of metadata, again and again
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from statistics import median

from h2.connection import H2Connection
from h2.exceptions import ProtocolError

from pocketmq.client.admin.admin import Admin
from pocketmq.proxy.proto import service_pb2 as pb
from tests.interop.harness.ports import free_port
from tests.interop.harness.process import Process
from tests.proxy.grpc_client import SERVICE, GrpcClient, message

from .processes import cpu_seconds
from .work_directory import work_directory

TOPIC = "Normal"
CONNECTIONS = 20


class Hostile:
    """One connection; `client` begins the ids of its clients."""

    def __init__(
        self, client: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._client = client
        self._reader = reader
        self._writer = writer
        self._h2 = H2Connection()
        self._h2.initiate_connection()

    @classmethod
    async def open(cls, port: int, client: str) -> Hostile:
        """Connect."""
        hostile = cls(client, *await asyncio.open_connection("127.0.0.1", port))
        await hostile.flush()
        return hostile

    async def flush(self) -> None:
        self._writer.write(self._h2.data_to_send())
        await self._writer.drain()

    async def read(self) -> bool:
        """Take what the server says; False at its end."""
        data = await self._reader.read(65_536)
        if data:
            self._h2.receive_data(data)
            await self.flush()
        return bool(data)

    def stop_reading(self) -> None:
        """Leave all that comes in the socket; the windows of HTTP/2 stay wide open."""
        self._h2.increment_flow_control_window((1 << 31) - 1 - 65_535)
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def call(self, name: str, data: bytes, *, ended: bool, metadata: bytes = b"") -> None:
        stream = self._h2.get_next_available_stream_id()
        headers = [
            (b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"proxy"),
            (b":path", (SERVICE + name).encode()), (b"content-type", b"application/grpc"),
            (b"te", b"trailers"), (b"x-mq-client-id", f"{self._client}-{stream}".encode()),
        ]  # fmt: skip
        if metadata:
            headers.append((b"x-more", metadata))
        self._h2.send_headers(stream, headers)
        self._h2.send_data(stream, data, end_stream=ended)

    def close(self) -> None:
        self._writer.transport.abort()


def framed(request: object) -> bytes:
    data: bytes = request.SerializeToString()  # type: ignore[attr-defined]
    return b"\0" + len(data).to_bytes(4, "big") + data


def route_request() -> bytes:
    request = pb.QueryRouteRequest()
    request.topic.name = TOPIC
    return framed(request)


async def never_read(port: int, client: str) -> None:
    hostile = await Hostile.open(port, client)
    hostile.stop_reading()
    for _ in range(50):
        hostile.call("QueryRoute", route_request(), ended=True)
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(2):
            await hostile.flush()
    await asyncio.sleep(5)
    hostile.close()


async def half_messages(port: int, client: str) -> None:
    hostile = await Hostile.open(port, client)
    whole = framed(pb.SendMessageRequest(messages=[message(TOPIC, bytes(1024))]))
    for _ in range(50):
        hostile.call("SendMessage", whole[: len(whole) // 3], ended=False)
    await hostile.flush()
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(5):
            while await hostile.read():
                pass
    hostile.close()


async def idle_streams(port: int, client: str) -> None:
    hostile = await Hostile.open(port, client)
    command = pb.TelemetryCommand()
    command.settings.publishing.topics.add(name=TOPIC)
    for _ in range(1_000 // CONNECTIONS):
        hostile.call("Telemetry", framed(command), ended=False)
        await hostile.flush()
        await asyncio.sleep(0.01)
    while await hostile.read():
        pass


async def huge_metadata(port: int, client: str) -> None:
    hostile = await Hostile.open(port, client)
    hostile.call("QueryRoute", route_request(), ended=True, metadata=b"m" * 15_000)
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(1):
            await hostile.flush()
            while await hostile.read():
                pass
    hostile.close()


KINDS: dict[str, Callable[[int, str], Awaitable[None]]] = {
    "never read": never_read,
    "half messages": half_messages,
    "idle streams": idle_streams,
    "huge metadata": huge_metadata,
}


async def attack(kind: str, port: int) -> None:
    """Run connections of one kind without end; each begins again 0.1 s after it ended."""

    async def one(number: int) -> None:
        for turn in itertools.count():
            with contextlib.suppress(OSError, ProtocolError):
                await KINDS[kind](port, f"{kind}-{number}-{turn}")
            await asyncio.sleep(0.1)

    print("begun", flush=True)
    await asyncio.gather(*(one(number) for number in range(CONNECTIONS)))


async def latencies(port: int, seconds: float) -> list[float]:
    """Return the ms of each send of one client, one after another."""
    found = []
    async with GrpcClient(port, client_id="measured") as client:
        await client.as_producer(TOPIC)
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            answer = await client.call(
                "SendMessage", pb.SendMessageRequest(messages=[message(TOPIC, bytes(1024))])
            )
            assert answer.status.code == pb.OK, answer.status
            found.append((time.perf_counter() - began) * 1e3)
    return found


def p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100]


@contextlib.asynccontextmanager
async def under_attack(kind: str, port: int, log: Path) -> AsyncIterator[None]:
    command = [sys.executable, "-m", "bench.hostile_streams", "--attack", kind, "--port", str(port)]
    process = Process(kind, command, log=log)
    try:
        await asyncio.to_thread(process.wait_for, "begun", 30)
        await asyncio.sleep(5)  # all streams are open
        yield
        assert process.running, process.tail()
    finally:
        process.kill()


async def measure(directory: Path, rounds: int, seconds: float) -> None:
    port, namesrv, broker = free_port(), free_port(), free_port()
    command: list[str | Path] = [
        sys.executable, "-m", "pocketmq", "serve", "--store", directory / "store",
        "--grpc-port", str(port), "--namesrv-port", str(namesrv), "--listen-port", str(broker),
    ]  # fmt: skip
    server = Process("pocketmq serve", command, log=directory / "serve.log")
    try:
        server.wait_for("listening on", 60)
        async with Admin(namesrv=f"127.0.0.1:{namesrv}") as admin:
            await admin.create_topic(TOPIC, queues=4)
        await latencies(port, 2)
        print("| clients | p50 alone | p50 beside | p99 alone | p99 beside | p99 ratio | CPU |")
        print("|---|---|---|---|---|---|---|")
        for kind in KINDS:
            alone, beside, cpu = [], [], []
            for _ in range(rounds):
                alone.append(await latencies(port, seconds))
                async with under_attack(kind, port, directory / "attack.log"):
                    before = cpu_seconds(server.pid)
                    await asyncio.sleep(seconds)
                    cpu.append((cpu_seconds(server.pid) - before) / seconds)
                    beside.append(await latencies(port, seconds))
            quiet, loud = median(map(p99, alone)), median(map(p99, beside))
            middles = [f"{median(map(median, runs)):.2f} ms" for runs in (alone, beside)]
            print(
                f"| {kind} | {middles[0]} | {middles[1]} | {quiet:.2f} ms | {loud:.2f} ms "
                f"| {loud / quiet:.2f} | {median(cpu):.1%} |",
                flush=True,
            )
    finally:
        server.kill()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.hostile_streams",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each kind (default 3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--attack", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        asyncio.run(attack(options.attack, options.port))
        return 0
    with work_directory("pocketmq-hostile-") as directory:
        asyncio.run(measure(directory, options.rounds, options.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
