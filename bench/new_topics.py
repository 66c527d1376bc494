"""What a client that makes new names costs another one: `python -m bench.new_topics`.

One client makes new topics (by sends that create them) or new consumer groups (by pulls), so many
at a time, and waits for the answers. Beside it, another client sends one message at a time to a
topic of its own. The table shows how long that one waits for its answers, in all and in the last
quarter of the time, when the tables are at their largest. The first client is a process of its own,
and each line has a broker of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from pocketmq.client.admin.admin import Admin
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.connection import split_address
from tests.interop.harness import ours
from tests.interop.harness.official import PROJECT

from .flood import TOPIC, good_client, pull_request, read_answer, send_request
from .wake_flood import quantile
from .work_directory import work_directory

#: Queue files of the usual size would take 6 MB of disk for each topic.
SETTINGS = {
    "mappedFileSizeConsumeQueue": 20_000,
    "maxAutoCreatedGroups": 1_000_000,
    "maxAutoCreatedTopics": 1_000_000,
}
MADE = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND)
HEADING = ("new", "at a time", "made", "per second", "p50", "p99", "worst", "p50 late", "p99 late")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.new_topics", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement (20)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--at-once", nargs="+", type=int, default=[1, 32], help="names (1 and 32)")
    parser.add_argument("--make", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.make:
        address, kind, at_once = options.make
        make(address, KINDS[kind], int(at_once))
        return 0
    with ExitStack() as cleanup:
        directory = cleanup.enter_context(work_directory("pocketmq-bench-"))
        namesrv = ours.start_name_server(directory)
        cleanup.callback(namesrv.process.kill)
        print(f"a message at a time beside new names, times in ms\n\n| {' | '.join(HEADING)} |")
        print(f"|{'---|' * len(HEADING)}")
        for kind in options.kinds:
            for at_once in options.at_once:
                made, waits = measure(directory, namesrv.address, kind, at_once, options.seconds)
                show(kind, at_once, made, waits)
    return 0


class Made(NamedTuple):
    """How many names one client made, and in how many seconds."""

    names: int
    refused: int
    seconds: float


def measure(
    directory: Path, namesrv: str, kind: str, at_once: int, seconds: float
) -> tuple[Made, list[float]]:
    name = f"{kind.replace(' ', '-')}-{at_once}"
    broker = ours.start_broker(directory, namesrv, name=name, settings=SETTINGS)
    try:
        asyncio.run(create_topic(namesrv))
        maker = subprocess.Popen(
            [sys.executable, "-m", "bench.new_topics",
             "--make", broker.address, kind, str(at_once)],
            cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            waits = good_client(broker.address, seconds)
            made = Made(*json.loads(maker.communicate(timeout=60)[0]))
        finally:
            maker.kill()
            maker.wait()
    finally:
        broker.process.kill()
    return made, waits


async def create_topic(namesrv: str) -> None:
    async with Admin(namesrv=namesrv) as admin:
        await admin.create_topic(TOPIC, queues=4)


def show(kind: str, at_once: int, made: Made, waits: list[float]) -> None:
    late = waits_of_last_quarter(waits)
    figures = [quantile(waits, 0.5), quantile(waits, 0.99), max(waits)]
    figures += [quantile(late, 0.5), quantile(late, 0.99)]
    names = f"{made.names:,}" + (f" ({made.refused:,} refused)" if made.refused else "")
    rate = f"{made.names / made.seconds:,.0f}"
    print(
        f"| {kind} | {at_once} | {names} | {rate} | "
        f"{' | '.join(f'{each:.2f}' for each in figures)} |",
        flush=True,
    )


def waits_of_last_quarter(waits: list[float]) -> list[float]:
    """Those of the last quarter of the time; one follows the other."""
    rest = sum(waits) / 4
    late: list[float] = []
    for wait in reversed(waits):
        late.append(wait)
        rest -= wait
        if rest <= 0:
            break
    return late


# The maker of names


def make(address: str, request: Callable[[str], bytes], at_once: int) -> None:
    """Make names until the input ends; print how many, how many were refused, and the seconds."""
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    names = refused = 0
    began = time.perf_counter()
    with socket.create_connection(split_address(address)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not ended.is_set():
            numbers = range(names + refused, names + refused + at_once)
            connection.sendall(b"".join(request(f"bench_new_{number}") for number in numbers))
            for _ in numbers:
                if read_answer(connection) in MADE:
                    names += 1
                else:
                    refused += 1
    print(json.dumps([names, refused, time.perf_counter() - began]))


KINDS = {
    "topics": send_request,
    "groups": lambda group: pull_request(TOPIC, group),
}

if __name__ == "__main__":
    sys.exit(main())
