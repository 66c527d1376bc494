"""The gRPC proxy against the official one in local mode, in turn: `python -m bench.proxy`.

Load is the official client for Go, over plaintext: single messages of 1 KiB by one sender, and by
many. The official proxy's machine is warmed first. The table also has the memory of a server that
has started and does nothing, and the time from its start to the first call that is answered OK.
Both start on a store that they have stopped before; the official name server runs already, while
that of `pocketmq serve` starts with it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import grpc

from pocketmq.client.admin.admin import Admin
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.remoting.errors import RemotingError
from tests.interop.harness import official, proxy
from tests.interop.harness.ports import free_port
from tests.interop.harness.process import Process

from .bytecode import compile_package
from .processes import resident_megabytes
from .work_directory import work_directory

TOPIC = "normal"  # of the scenario `load`
MANY = 32
METADATA = (("x-mq-client-id", "bench"), ("x-mq-language", "PYTHON"))


class Contender:
    """One proxy with its broker; `start` returns the process, and the gRPC port."""

    def __init__(
        self, name: str, namesrv: Callable[[], str], start: Callable[[], tuple[Process, int]]
    ) -> None:
        self.name = name
        self._namesrv = namesrv
        self._start = start
        self.process: Process
        self.port = 0
        self.first = 0.0
        self.idle = 0.0
        self.loads: dict[int, list[dict[str, float]]] = {1: [], MANY: []}

    def measure_start(self) -> None:
        """Start it for the topic's sake; then again, and time that."""
        self.process, self.port = self._start()
        asyncio.run(self._create_topic())
        self._wait()
        self.process.terminate()
        began = time.perf_counter()
        self.process, self.port = self._start()
        self._wait()
        self.first = time.perf_counter() - began
        time.sleep(3)
        self.idle = resident_megabytes(self.process.pid)

    def _wait(self) -> None:
        """Return when the route of the topic is answered."""
        request = pb.QueryRouteRequest()
        request.topic.name = TOPIC
        request.endpoints.scheme = pb.IPv4
        request.endpoints.addresses.add(host="127.0.0.1", port=self.port)
        while True:
            with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
                call = channel.unary_unary(
                    "/apache.rocketmq.v2.MessagingService/QueryRoute",
                    request_serializer=pb.QueryRouteRequest.SerializeToString,
                    response_deserializer=pb.QueryRouteResponse.FromString,
                )
                try:
                    answer = call(request, timeout=2, metadata=METADATA)
                except grpc.RpcError:
                    answer = None
            if answer is not None and answer.status.code == pb.OK:
                return
            time.sleep(0.02)

    async def _create_topic(self) -> None:
        while True:
            try:
                async with Admin(namesrv=self._namesrv()) as admin:
                    attributes = {"message.type": "NORMAL"}
                    await admin.create_topic(TOPIC, queues=8, attributes=attributes)
                return
            except RemotingError:
                await asyncio.sleep(0.5)

    def load(self, senders: int, seconds: float, *, note: bool = True) -> None:
        command = [str(proxy.go_program()), f"127.0.0.1:{self.port}", "false"]
        command += ["", "load", str(senders), str(seconds)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        if note:
            self.loads[senders].append(json.loads(done.stdout.splitlines()[-1]))

    def middle(self, senders: int, key: str) -> float:
        return median(load[key] for load in self.loads[senders])


def ours(directory: Path) -> Contender:
    grpc, namesrv, broker = free_port(), free_port(), free_port()

    def start() -> tuple[Process, int]:
        command: list[str | Path] = [
            sys.executable, "-m", "pocketmq", "serve", "--store", directory / "ours",
            "--grpc-port", str(grpc), "--namesrv-port", str(namesrv), "--listen-port", str(broker),
        ]  # fmt: skip
        return Process("pocketmq serve", command, log=directory / "ours.log"), grpc

    return Contender("pocketmq", lambda: f"127.0.0.1:{namesrv}", start)


def officials(directory: Path) -> Contender:
    server = official.start_name_server(directory)

    def start() -> tuple[Process, int]:
        started = proxy.start_local_proxy(directory, server.address, flags=proxy.MEMORY, wait=False)
        return started.process, int(started.broker_name)

    return Contender("official", lambda: server.address, start)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.proxy", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each load (default 3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load (default 5)")
    options = parser.parse_args()
    try:
        proxy.go_program()
        proxy.proxy_jars()
    except official.Unavailable as error:
        print(f"bench.proxy: {error}", file=sys.stderr)
        return 1
    compile_package()
    with work_directory("pocketmq-bench-") as directory:
        contenders = [officials(directory), ours(directory)]
        for each in contenders:
            each.measure_start()
        for each in contenders:
            each.load(MANY, 2 * options.seconds, note=False)
        for _ in range(options.rounds):
            for senders in (1, MANY):
                for each in contenders:
                    each.load(senders, options.seconds)
        show(*contenders)
    return 0


def show(theirs: Contender, own: Contender) -> None:
    rows: list[tuple[str, float, float]] = []
    for senders in (1, MANY):
        for key, what in (("rate", "messages/s"), ("p50", "p50, µs"), ("p99", "p99, µs")):
            rows.append(
                (
                    f"{senders} senders: {what}",
                    theirs.middle(senders, key),
                    own.middle(senders, key),
                )
            )
    rows.append(("idle, MB resident", theirs.idle, own.idle))
    rows.append(("start to the first answer, s", theirs.first, own.first))
    print("| | official | pocketmq | pocketmq / official |\n|---|---|---|---|")
    for what, a, b in rows:
        print(f"| {what} | {a:.4g} | {b:.4g} | {b / a:.2f} |")


if __name__ == "__main__":
    sys.exit(main())
