"""Messages through restarts of broker and proxy: `python -m tests.proxy.restarts --messages 1000`.

`pocketmq serve` runs as a process on one store and one set of ports. It is killed and stopped in
turn, while producers send through the proxy and a consumer receives and acknowledges. A message
counts as sent when its answer was OK. Each of them must be received at least once. Prints how many
were sent, received, and received twice or more.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from pocketmq.client.admin.admin import Admin
from pocketmq.proxy.proto import service_pb2 as pb
from tests.cli.running import Running
from tests.interop.harness.ports import free_port
from tests.proxy.grpc_client import GrpcClient, message, until

TOPIC = "Restarted"
SENDERS = 4
LOST = (grpc.aio.AioRpcError, asyncio.TimeoutError)


class Restarts:
    """One run; `messages` are to be sent over `restarts` restarts."""

    def __init__(self, directory: Path, messages: int, restarts: int) -> None:
        self._directory = directory
        self._messages = messages
        self._restarts = restarts
        self._namesrv, self._broker, self.port = free_port(), free_port(), free_port()
        self.sent: set[str] = set()
        self.received: Counter[str] = Counter()
        self._numbers = itertools.count()

    def _serve(self) -> Running:
        ports = {
            "--namesrv-port": self._namesrv,
            "--listen-port": self._broker,
            "--grpc-port": self.port,
        }
        options = [str(word) for pair in ports.items() for word in pair]
        return Running("serve", "--store", self._directory, *options)

    async def run(self) -> None:
        """Send, restart, receive. Raises AssertionError if a message is lost."""
        server = self._serve()
        try:
            await asyncio.to_thread(server.wait_for, "listening on")
            async with Admin(namesrv=f"127.0.0.1:{self._namesrv}") as admin:
                await admin.create_topic(TOPIC, queues=4)
            async with self._working():
                for number in range(1, self._restarts + 1):
                    goal = self._messages * number // (self._restarts + 1)
                    await until(partial(self._sent_at_least, goal), 300)
                    how = signal.SIGKILL if number % 2 else signal.SIGTERM
                    await asyncio.to_thread(server.stop, how)
                    server = self._serve()
                    await asyncio.to_thread(server.wait_for, "listening on")
                await until(lambda: len(self.sent) >= self._messages, 300)
                await until(lambda: not self.sent - self.received.keys(), 300)
        finally:
            server.stop(signal.SIGKILL)
        assert not self.sent - self.received.keys()

    def _sent_at_least(self, count: int) -> bool:
        return len(self.sent) >= count

    @asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        work = [self._receive(), *(self._send() for _ in range(SENDERS))]
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

    async def _send(self) -> None:
        async with GrpcClient(self.port, client_id=f"sender-{next(self._numbers)}") as client:
            while len(self.sent) < self._messages:
                made = message(TOPIC)
                try:
                    request = pb.SendMessageRequest(messages=[made])
                    answer = await client.call("SendMessage", request, timeout=3)
                except LOST:
                    await asyncio.sleep(0.1)
                    continue
                if answer.status.code == pb.OK:
                    self.sent.add(made.system_properties.message_id)

    async def _receive(self) -> None:
        async with GrpcClient(self.port, client_id="receiver") as client:
            while True:
                try:
                    await client.as_consumer("readers", TOPIC)
                    while True:
                        await self._receive_some(client)
                except (*LOST, StopAsyncIteration):
                    await asyncio.sleep(0.1)

    async def _receive_some(self, client: GrpcClient) -> None:
        request = pb.ReceiveMessageRequest(batch_size=32)
        request.group.name = "readers"
        request.message_queue.topic.name = TOPIC
        request.filter_expression.expression = "*"
        request.invisible_duration.seconds = 10
        code, messages = await client.receive(request)
        if code == pb.UNRECOGNIZED_CLIENT_TYPE:
            raise StopAsyncIteration
        ack = pb.AckMessageRequest()
        ack.group.name = "readers"
        ack.topic.name = TOPIC
        for got in messages:
            system: Any = got.system_properties
            self.received[system.message_id] += 1
            ack.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        if messages:
            await client.call("AckMessage", ack)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proxy.restarts", description=__doc__)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--restarts", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pocketmq-restarts-") as directory:
        run = Restarts(Path(directory), options.messages, options.restarts)
        asyncio.run(run.run())
    twice = sum(count > 1 for count in run.received.values())
    print(f"sent {len(run.sent)}, received {len(run.received)}, twice or more {twice}, lost none")
    return 0


if __name__ == "__main__":
    sys.exit(main())
