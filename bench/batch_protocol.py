"""The Batch-Protocol against the same requests by themselves: `python -m bench.batch_protocol`.

Sends and offset commits come from the load generator, pipelined and one request at a time, with
ASYNC_FLUSH and SYNC_FLUSH; long polls from our own consumers. Every comparison is made in turn
(A B A B) and the middle of the rounds is shown; ratios count, the figures drift with the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.interop.harness import ours
from tests.interop.harness.official import Server, Unavailable

from .clean_slate import clean_slate
from .contenders import SEGMENT
from .generator import LoadGenerator
from .long_polls import Waiting, create_topic, wait
from .processes import cpu_seconds
from .work_directory import work_directory

CHILDREN = (0, 1, 5, 20, 100, 1000)  # 0: single requests
IN_FLIGHT = 64  # requests without an answer on each of four connections, parents or single ones
MOST_CHILDREN = 320  # in flight on each, but at least one parent; more add latency, not messages
WARM_UP = 0.1  # of the messages, sent before anything counts
TOPIC = "bench_batch"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.batch_protocol", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the message counts (1)")
    parser.add_argument("--queues", type=int, default=256, help="queues of the long polls (256)")
    parser.add_argument("--consumers", type=int, default=20, help="consumers of those (20)")
    parser.add_argument("--suspend", type=float, default=15.0, help="seconds of a long poll (15)")
    parser.add_argument("--no-sends", action="store_true", help="only the long polls")
    parser.add_argument("--no-polls", action="store_true", help="only sends and commits")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    with ExitStack() as cleanup:
        directory = cleanup.enter_context(work_directory("pocketmq-bench-"))
        namesrv = ours.start_name_server(directory)
        cleanup.callback(namesrv.process.kill)
        if not options.no_sends:
            try:
                generator = LoadGenerator.build(directory)
            except Unavailable as missing:
                print(f"no sends and commits: {missing}")
            else:
                measure_requests(directory, namesrv, generator, options)
        if not options.no_polls:
            broker = start_broker(directory, namesrv, "polled", "ASYNC_FLUSH")
            cleanup.callback(broker.process.kill)
            measure_polls(namesrv, broker, options)
    return 0


def start_broker(directory: Path, namesrv: Server, name: str, flush: str) -> Server:
    settings = {
        "mappedFileSizeCommitLog": SEGMENT,
        "flushDiskType": flush,
        "defaultTopicQueueNums": 1024,
    }
    return ours.start_broker(directory, namesrv.address, name=name, settings=settings)


# Sends and commits


def measure_requests(
    directory: Path, namesrv: Server, generator: LoadGenerator, options: argparse.Namespace
) -> None:
    loads = (
        ("sends, pipelined", "ASYNC_FLUSH", "send", IN_FLIGHT, 200_000),
        ("sends, one request at a time", "ASYNC_FLUSH", "send", 1, 20_000),
        ("sends, SYNC_FLUSH, pipelined", "SYNC_FLUSH", "send", IN_FLIGHT, 60_000),
        ("sends, SYNC_FLUSH, one request at a time", "SYNC_FLUSH", "send", 1, 4_000),
        ("offset commits, pipelined", "ASYNC_FLUSH", "commit", IN_FLIGHT, 200_000),
        ("offset commits, one request at a time", "ASYNC_FLUSH", "commit", 1, 20_000),
    )
    for number, (title, flush, operation, depth, count) in enumerate(loads):
        # A store of its own for each: what one has left would be recovered and indexed meanwhile.
        broker = start_broker(directory, namesrv, f"load-{number}", flush)
        try:
            rows, failed = compare(
                generator, broker, operation, depth, int(count * options.scale), options, directory
            )
        finally:
            broker.process.kill()
            shutil.rmtree(directory / f"broker-load-{number}")
        show(
            title,
            ("children", "messages/s", "requests/s", "broker CPU µs/message", "ratio"),
            rows,
        )
        if failed:
            print(f"\n{failed} messages or commits failed")


def compare(
    generator: LoadGenerator,
    broker: Server,
    operation: str,
    depth: int,
    count: int,
    options: argparse.Namespace,
    directory: Path,
) -> tuple[list[tuple[str, ...]], int]:
    """One row for each number of children, and how many messages failed in all.

    The ratio is that of messages/s to single requests. The broker's CPU time is without that of
    the process that builds its message index.
    """
    figures: dict[int, list[tuple[float, float]]] = {children: [] for children in CHILDREN}
    failed = 0
    for children in CHILDREN:
        run(generator, broker, operation, depth, children, int(count * WARM_UP))
    for _ in range(options.rounds):
        for children in CHILDREN:
            clean_slate(options.scale, directory)
            begin = cpu_seconds(broker.process.pid)
            line = run(generator, broker, operation, depth, children, count)
            used = cpu_seconds(broker.process.pid) - begin
            figures[children].append((line["per_second"], used / line["messages"] * 1e6))
            failed += line["failed"]
    single = middle(rate for rate, _ in figures[0])
    rows: list[tuple[str, ...]] = []
    for children in CHILDREN:
        rate = middle(rate for rate, _ in figures[children])
        cpu = middle(cpu for _, cpu in figures[children])
        rows.append(
            (
                str(children) if children else "single",
                f"{rate:,.0f}",
                f"{rate / max(children, 1):,.0f}",
                f"{cpu:.1f}",
                f"{rate / single:.2f}",
            )
        )
    return rows, failed


def run(
    generator: LoadGenerator,
    broker: Server,
    operation: str,
    depth: int,
    children: int,
    count: int,
) -> dict[str, Any]:
    """One run of about `count` messages; at least one request on each connection."""
    connections = 4 if depth > 1 else 1
    in_flight = max(1, min(depth, MOST_CHILDREN // max(children, 1)))
    # One at a time, many children are done sooner.
    messages = count if depth > 1 else count * min(max(children, 1), 20)
    messages = max(messages, connections * max(children, 1))
    return generator.run(
        broker.address, TOPIC, "nest", "-op", operation, "-children", str(children),
        "-conns", str(connections), "-inflight", str(in_flight), "-n", str(messages),
    )  # fmt: skip


def middle(values: Iterable[float]) -> float:
    """The middle value, the lower one of an even count."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


# Long polls


def measure_polls(namesrv: Server, broker: Server, options: argparse.Namespace) -> None:
    asyncio.run(create_topic(namesrv.address, options.queues))
    for consumers, rate in (
        (1, 0.0),
        (1, 20.0),
        (options.consumers, 0.0),
        (options.consumers, 2.0),
    ):
        found: dict[bool, list[Waiting]] = {False: [], True: []}
        for _ in range(options.rounds):
            for shared in (False, True):
                found[shared].append(
                    asyncio.run(
                        wait(
                            namesrv.address,
                            broker.process.pid,
                            consumers=consumers,
                            shared=shared,
                            seconds=4 * options.suspend,
                            suspend=options.suspend,
                            rate=rate,
                        )
                    )
                )
        show(
            f"{consumers} consumers of {options.queues} queues, {rate:g} messages/s in all",
            ("long polls", "broker CPU %", "requests/s", "p50 µs", "p99 µs"),
            [
                poll_row(name, found[shared])
                for name, shared in (("single", False), ("parents", True))
            ],
        )
        if missing := sum(waiting.missing for rounds in found.values() for waiting in rounds):
            print(f"\n{missing} messages did not arrive")


def poll_row(name: str, rounds: list[Waiting]) -> tuple[str, ...]:
    cpu = middle(waiting.cpu for waiting in rounds)
    requests = middle(waiting.requests for waiting in rounds)
    if not all(waiting.latencies for waiting in rounds):
        return name, f"{cpu:.2f}", f"{requests:.1f}", "–", "–"
    p50 = middle(waiting.p50 for waiting in rounds)
    p99 = middle(waiting.quantile(0.99) for waiting in rounds)
    return name, f"{cpu:.2f}", f"{requests:.1f}", f"{p50:.0f}", f"{p99:.0f}"


def show(title: str, heading: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """A markdown table."""
    print(f"\n{title}\n")
    print(f"| {' | '.join(heading)} |")
    print(f"|{'---|' * len(heading)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
