"""What metrics cost the broker: `python -m bench.metrics`.

Two brokers, one with metrics (scraped every 15 s) and one without, get the same sends in turn.
Then a broker with 1,000 topics and 100 groups in each, all of them behind, is scraped while a
client sends: the table shows what the scrape takes, and how long the client waits with and without
it.
CPU time is the broker's own, which other work on the machine disturbs less than rates.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from pocketmq.client.admin.admin import Admin
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import encode_command
from pocketmq.remoting.headers import (
    Header,
    PullMessageRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from tests.interop.harness import ours
from tests.interop.harness.official import Server
from tests.interop.harness.ports import free_port

from .tls import connect, cpu, read_answers
from .work_directory import work_directory

TOPIC = "bench_metrics"
ROUNDS = 21
SENDS = 2_000
TOGETHER = 64
BODY = b"x" * 1024
TOPICS = 1_000
GROUPS = 100
SCRAPES = 5
SCRAPE_SECONDS = 15.0
PROBES = 2_000


def main() -> int:
    argparse.ArgumentParser(prog="python -m bench.metrics", description=__doc__).parse_args()
    with ExitStack() as cleanup:
        directory = cleanup.enter_context(work_directory("pocketmq-bench-"))
        ports = {name: free_port() for name in ("on", "large")}
        brokers, namesrv = start_brokers(directory, _settings(ports["on"]), cleanup)
        with scraped(ports["on"]):
            compare(brokers, "metrics")
        for broker in brokers.values():
            broker.process.kill()
        large = ours.start_broker(
            directory, namesrv.address, name="large", settings=_settings(ports["large"])
        )
        cleanup.callback(large.process.kill)
        measure_scrapes(large, ports["large"])
    return 0


def start_brokers(
    directory: Path, settings: Mapping[str, object], cleanup: ExitStack
) -> tuple[dict[str, Server], Server]:
    """Start a broker with settings ("on"), one without ("off"), and their name server, with the
    topic of the sends."""
    namesrv = ours.start_name_server(directory)
    cleanup.callback(namesrv.process.kill)
    brokers = {}
    for name, own in (("off", {}), ("on", settings)):
        brokers[name] = ours.start_broker(directory, namesrv.address, name=name, settings=own)
        cleanup.callback(brokers[name].process.kill)
    asyncio.run(create_topic(namesrv.address))
    return brokers, namesrv


def _settings(port: int) -> dict[str, object]:
    return {
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": port,
    }


async def create_topic(namesrv: str) -> None:
    async with Admin(namesrv=namesrv) as admin:
        await admin.create_topic(TOPIC, queues=1)


@contextmanager
def scraped(port: int) -> Iterator[None]:
    """Scrape a broker as often as Prometheus does."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.wait(SCRAPE_SECONDS):
            scrape(port)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def scrape(port: int) -> int:
    """Bytes of one scrape, as Prometheus asks for it."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Accept-Encoding": "gzip"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return sum(iter(lambda: len(answer.read(1 << 20)), 0))


def compare(brokers: dict[str, Server], what: str, properties: str = "") -> None:
    """Print what sends with `properties` cost the brokers "off" and "on", in turn."""
    connections = {name: connect(broker.address, None) for name, broker in brokers.items()}
    print(f"| a send | {what} off | on | rate on / off |\n|---|---|---|---|")
    request = send_request(TOPIC, properties)
    for label, sends in (("alone", 1), (f"{TOGETHER} in a read", TOGETHER)):
        used: dict[str, list[float]] = {name: [] for name in brokers}
        took: dict[str, list[float]] = {name: [] for name in brokers}
        for number in range(ROUNDS + 1):
            # Each goes first every other time.
            for name in sorted(brokers, reverse=bool(number % 2)):
                begin = time.perf_counter()
                seconds = cpu(brokers[name], partial(send, connections[name], request, sends))
                if number:  # the first round warms up
                    took[name].append(time.perf_counter() - begin)
                    used[name].append(seconds)
        for figure, times in (("time", took), ("broker's CPU time", used)):
            off, on = (median(times[name]) / SENDS * 1e6 for name in ("off", "on"))
            ratio = median(a / b for a, b in zip(times["off"], times["on"], strict=True))
            print(f"| {label}, {figure} | {off:,.1f} µs | {on:,.1f} µs | {ratio:.3f} |", flush=True)


def measure_scrapes(broker: Server, port: int) -> None:
    connection = connect(broker.address, None)
    fill(connection)
    quiet = latencies(connection)
    sizes: list[int] = []
    took: list[float] = []
    busy: list[float] = []
    used: list[float] = []
    for _ in range(SCRAPES):
        begin = time.perf_counter()
        used.append(cpu(broker, lambda: sizes.append(scrape(port))))
        took.append(time.perf_counter() - begin)
    for _ in range(2):
        thread = threading.Thread(target=scrape, args=(port,))
        thread.start()
        while thread.is_alive():
            busy += latencies(connection, 50)
        thread.join()
    print(f"\n| {TOPICS:,} topics with {GROUPS} groups each | |\n|---|---|")
    print(f"| a scrape | {median(took):.1f} s, {median(used):.1f} s of CPU time |")
    print(f"| its size, compressed | {median(sizes) / 1e6:.1f} MB |")
    for name, values in (("without", quiet), ("during", busy)):
        values.sort()
        shares = [values[int(len(values) * share)] * 1e3 for share in (0.5, 0.99)]
        print(
            f"| a send {name} a scrape | median {shares[0]:.2f} ms, 99 % {shares[1]:.2f} ms, "
            f"longest {values[-1] * 1e3:.1f} ms |",
            flush=True,
        )


def fill(connection: socket.socket) -> None:
    """A message in each topic, which each group has pulled and not committed."""
    for number in range(TOPICS):
        exchange(connection, [send_request(f"T{number}")])
        commits = []
        for group in range(GROUPS):
            commit = UpdateConsumerOffsetRequestHeader(
                consumer_group=f"G{group}", topic=f"T{number}", queue_id=0, commit_offset=0
            )
            commits.append(_frame(RequestCode.UPDATE_CONSUMER_OFFSET, commit))
            pull = PullMessageRequestHeader(
                consumer_group=f"G{group}", topic=f"T{number}", queue_id=0, queue_offset=0,
                max_msg_nums=1, sys_flag=4, commit_offset=0, suspend_timeout_millis=0,
                sub_version=0, subscription="*",
            )  # fmt: skip
            commits.append(_frame(RequestCode.PULL_MESSAGE, pull))
        exchange(connection, commits)


def latencies(connection: socket.socket, count: int = PROBES) -> list[float]:
    """Seconds of so many sends, one after the other."""
    request = send_request("T0")
    found = []
    for _ in range(count):
        begin = time.perf_counter()
        exchange(connection, [request])
        found.append(time.perf_counter() - begin)
        time.sleep(0.0005)
    return found


def send(connection: socket.socket, request: bytes, together: int) -> None:
    """Send `SENDS` messages, so many at a time."""
    for _ in range(SENDS // together):
        exchange(connection, [request] * together)


def exchange(connection: socket.socket, requests: list[bytes]) -> None:
    connection.sendall(b"".join(requests))
    read_answers(connection, len(requests))


def send_request(topic: str, properties: str = "") -> bytes:
    header = SendMessageRequestHeaderV2(
        producer_group="bench", topic=topic, default_topic="TBW102", default_topic_queue_nums=4,
        queue_id=0, sys_flag=0, born_timestamp=int(time.time() * 1000), flag=0,
        properties=properties,
    )  # fmt: skip
    return _frame(RequestCode.SEND_MESSAGE_V2, header, BODY)


def _frame(code: RequestCode, header: Header, body: bytes = b"") -> bytes:
    return encode_command(code, 1, header=header, body=body)


if __name__ == "__main__":
    sys.exit(main())
