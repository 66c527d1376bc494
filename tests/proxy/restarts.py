"""Messages through restarts of brokers and proxies: `python -m tests.proxy.restarts`.

The servers run as processes on one store and one set of ports. They are killed and stopped in turn,
while producers send through the proxy and a consumer receives and acknowledges. A message counts as
sent when the client was told so. Each of them must be received at least once. Prints how many were
sent, received, and received twice or more.

servers:
  serve     `pocketmq serve`: broker and proxy are one process
  ours      `pocketmq proxy` over our broker; the two restart by turns
  official  `pocketmq proxy` over an official broker, likewise
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import grpc

from pocketmq.client.admin.admin import Admin
from pocketmq.proxy.proto import service_pb2 as pb
from tests.cli.running import Running
from tests.interop.harness import official, ours, proxy
from tests.interop.harness.ports import OFFICIAL_BROKER_SPAN, free_block, free_port
from tests.proxy.grpc_client import GrpcClient, message, until

TOPIC = "steady"
SENDERS = 4
PAUSE = 0.02  # seconds between two messages of one sender: a consumer keeps up
LOST = (grpc.aio.AioRpcError, asyncio.TimeoutError)


class Servers(Protocol):
    """What restarts: `namesrv` and `port` (gRPC) stay the same."""

    namesrv: str
    port: int

    def start(self) -> None:
        """Start all, and wait until they listen."""

    def restart(self, number: int) -> None:
        """Stop a process, by SIGKILL or SIGTERM in turn, and start it again."""

    def kill(self) -> None:
        """End all."""


class Serve:
    """Broker and proxy in one process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._namesrv, self._broker, self.port = free_port(), free_port(), free_port()
        self.namesrv = f"127.0.0.1:{self._namesrv}"

    def start(self) -> None:
        ports = {
            "--namesrv-port": self._namesrv,
            "--listen-port": self._broker,
            "--grpc-port": self.port,
        }
        options = [str(word) for pair in ports.items() for word in pair]
        self._server = Running("serve", "--store", self._directory / "store", *options)
        self._server.wait_for("listening on")

    def restart(self, number: int) -> None:
        self._server.stop(signal.SIGKILL if number % 2 else signal.SIGTERM)
        self.start()

    def kill(self) -> None:
        self._server.stop(signal.SIGKILL)


class Cluster:
    """A name server, a broker, and a proxy; `start_broker` is that of a harness."""

    def __init__(self, directory: Path, start_broker: Callable[..., official.Server]) -> None:
        self._directory = directory
        self._start_broker = start_broker
        self._port = free_block(OFFICIAL_BROKER_SPAN)
        self._name_server = ours.start_name_server(directory)
        self.namesrv = self._name_server.address
        self.port = free_port()

    def start(self) -> None:
        self._begin_broker()
        self._begin_proxy()

    def _begin_broker(self) -> None:
        self._broker = self._start_broker(self._directory, self.namesrv, port=self._port)

    def _begin_proxy(self) -> None:
        self._proxy = Running("proxy", "-n", self.namesrv, "--grpc-port", str(self.port))
        self._proxy.wait_for("proxy listening")

    def restart(self, number: int) -> None:
        killed = (number - 1) % 4 < 2
        if number % 2:
            if killed:
                self._broker.process.kill()
            else:
                self._broker.process.terminate()
            self._begin_broker()
        else:
            self._proxy.stop(signal.SIGKILL if killed else signal.SIGTERM)
            self._begin_proxy()

    def kill(self) -> None:
        self._proxy.stop(signal.SIGKILL)
        self._broker.process.kill()
        self._name_server.process.kill()


SERVERS: dict[str, Callable[[Path], Servers]] = {
    "serve": Serve,
    "ours": partial(Cluster, start_broker=ours.start_broker),
    "official": partial(Cluster, start_broker=official.start_broker),
}


class Traffic:
    """What was sent, and received how often; filled while it is used as a context manager."""

    def __init__(self) -> None:
        self.sent: set[str] = set()
        self.received: Counter[str] = Counter()

    def working(self, directory: Path, port: int) -> AbstractAsyncContextManager[None]:
        """Send and receive until the end of the block."""
        raise NotImplementedError


class RawTraffic(Traffic):
    """Of a raw gRPC client, which has no attempts and no recovery of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()

    @asynccontextmanager
    async def working(self, directory: Path, port: int) -> AsyncIterator[None]:
        work = [self._receive(port), *(self._send(port) for _ in range(SENDERS))]
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, port: int) -> None:
        async with GrpcClient(port, client_id=f"sender-{next(self._numbers)}") as client:
            while True:
                made = message(TOPIC)
                try:
                    request = pb.SendMessageRequest(messages=[made])
                    answer = await client.call("SendMessage", request, timeout=3)
                except LOST:
                    await asyncio.sleep(0.1)
                    continue
                if answer.status.code == pb.OK:
                    self.sent.add(made.system_properties.message_id)
                await asyncio.sleep(PAUSE)

    async def _receive(self, port: int) -> None:
        async with GrpcClient(port, client_id="receiver") as client:
            while True:
                try:
                    await client.as_consumer("readers", TOPIC)
                    while True:
                        await self._receive_some(client)
                except LOST:
                    await asyncio.sleep(0.1)

    async def _receive_some(self, client: GrpcClient) -> None:
        request = pb.ReceiveMessageRequest(batch_size=32)
        request.group.name = "readers"
        request.message_queue.topic.name = TOPIC
        request.filter_expression.expression = "*"
        request.invisible_duration.seconds = 10
        _, messages = await client.receive(request)
        ack = pb.AckMessageRequest()
        ack.group.name = "readers"
        ack.topic.name = TOPIC
        for got in messages:
            system: Any = got.system_properties
            self.received[system.message_id] += 1
            ack.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        if messages:
            await client.call("AckMessage", ack)


class OfficialTraffic(Traffic):
    """Of an official client: its scenario `steady` says what it sends and gets."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._language = language

    @asynccontextmanager
    async def working(self, directory: Path, port: int) -> AsyncIterator[None]:
        process = proxy.scenario_process(self._language, directory, f"127.0.0.1:{port}", "", TOPIC)
        reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        reader.start()
        try:
            yield
            assert process.poll() is None, "the client ended"
        finally:
            process.kill()
            process.wait()
            reader.join()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                match line.split():
                    case [">", _, "sent", number]:
                        self.sent.add(number)
                    case [">", _, "got", number]:
                        self.received[number] += 1


class Restarts:
    """One run; `messages` are to be sent over `restarts` restarts."""

    def __init__(
        self,
        directory: Path,
        messages: int,
        restarts: int,
        *,
        servers: str = "serve",
        traffic: Traffic | None = None,
    ) -> None:
        self._directory = directory
        self._messages = messages
        self._restarts = restarts
        self._servers = SERVERS[servers](directory)
        self.traffic = traffic or RawTraffic()

    async def run(self) -> None:
        """Send, restart, receive. Raises AssertionError if a message is lost."""
        servers, traffic = self._servers, self.traffic
        await asyncio.to_thread(servers.start)
        try:
            async with Admin(namesrv=servers.namesrv) as admin:
                await admin.create_topic(TOPIC, queues=4)
            async with traffic.working(self._directory, servers.port):
                for number in range(1, self._restarts + 1):
                    goal = self._messages * number // (self._restarts + 1)
                    await until(partial(self._sent_at_least, goal), 300)
                    await asyncio.to_thread(servers.restart, number)
                await until(partial(self._sent_at_least, self._messages), 300)
                last = set(traffic.sent)
                await until(lambda: not last - traffic.received.keys(), 300)
        finally:
            await asyncio.to_thread(servers.kill)

    def _sent_at_least(self, count: int) -> bool:
        return len(self.traffic.sent) >= count


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proxy.restarts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--restarts", type=int, default=6)
    parser.add_argument("--servers", choices=SERVERS, default="serve")
    parser.add_argument("--client", choices=("raw", "java", "go", "python"), default="raw")
    options = parser.parse_args()
    traffic = RawTraffic() if options.client == "raw" else OfficialTraffic(options.client)
    with tempfile.TemporaryDirectory(prefix="pocketmq-restarts-") as directory:
        run = Restarts(
            Path(directory), options.messages, options.restarts,
            servers=options.servers, traffic=traffic,
        )  # fmt: skip
        asyncio.run(run.run())
    received = traffic.received
    twice = sum(count > 1 for count in received.values())
    sent = len(traffic.sent)
    print(f"sent {sent}, received {len(received)}, twice or more {twice}, lost none")
    return 0


if __name__ == "__main__":
    sys.exit(main())
