"""What one message that wakes hundreds of long polls costs others: `python -m bench.wake_flood`.

A crowd of connections waits on all queues of a topic, each with one pull or with a parent of many
(Batch-Protocol). Messages to the first queue wake the whole crowd, which asks again at once. The
table shows how long the sender waits for its answers, and another client for the answers to its own
small requests. The crowd is a process of its own, so that it does not delay their clocks.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.frames.frame import FrameSplitter, encode_command
from pocketmq.remoting.headers import (
    BatchRequestHeader,
    GetMaxOffsetRequestHeader,
    PullMessageRequestHeader,
)
from tests.interop.harness import ours
from tests.interop.harness.official import PROJECT

from .long_polls import TOPIC, create_topic
from .processes import cpu_seconds
from .work_directory import work_directory

HOLD_MS = 30_000
SUSPEND_WITH_SUBSCRIPTION = 6
PROBE_SECONDS = 0.005  # between two requests of the other client
PLAIN, PARENTS, OMITTING = range(3)
TITLES = {PLAIN: "plain pulls", PARENTS: "parents", OMITTING: "parents, omitNotFound"}
HEADING = (
    "waiting", "send p50", "send worst", "other p50", "other p99", "other worst",
    "woken per message", "broker CPU per message",
)  # fmt: skip

_NEXT = re.compile(rb'"nextBeginOffset":"(\d+)"')


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.wake_flood", description=__doc__)
    parser.add_argument("--connections", type=int, default=200, help="that wait (200)")
    parser.add_argument("--children", type=int, default=50, help="polls of a parent (50)")
    parser.add_argument("--rate", type=float, default=2.0, help="messages per second (2)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (5)")
    parser.add_argument("--crowd", nargs=2, metavar=("ADDRESS", "MODE"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.crowd:
        address, mode = options.crowd
        asyncio.run(crowd(address, int(mode), options))
        return 0
    with ExitStack() as cleanup:
        directory = cleanup.enter_context(work_directory("pocketmq-bench-"))
        namesrv = ours.start_name_server(directory)
        cleanup.callback(namesrv.process.kill)
        settings = {"defaultTopicQueueNums": options.children}
        broker = ours.start_broker(directory, namesrv.address, name="flooded", settings=settings)
        cleanup.callback(broker.process.kill)
        asyncio.run(create_topic(namesrv.address, options.children))
        print(
            f"{options.connections} connections, {options.children} polls per parent, times in ms"
        )
        print(f"\n| {' | '.join(HEADING)} |")
        print(f"|{'---|' * len(HEADING)}", flush=True)
        for mode, title in TITLES.items():
            waiting = start_crowd(broker.address, mode, options)
            try:
                begin = cpu_seconds(broker.process.pid)
                sends, probes = asyncio.run(measure(namesrv.address, broker.address, options))
                used = cpu_seconds(broker.process.pid) - begin
                answers = int(waiting.communicate(timeout=30)[0])
            finally:
                waiting.kill()
                waiting.wait()
            figures = (
                quantile(sends, 0.5), max(sends), quantile(probes, 0.5), quantile(probes, 0.99),
                max(probes), answers / len(sends), used / len(sends) * 1000,
            )  # fmt: skip
            print(f"| {title} | {' | '.join(f'{figure:.1f}' for figure in figures)} |", flush=True)
    return 0


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which this part of the values is."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


async def measure(
    namesrv: str, address: str, options: argparse.Namespace
) -> tuple[list[float], list[float]]:
    """The answer times of the sends and of the other client, in ms."""
    sends: list[float] = []
    probes: list[float] = []
    other = await Connection.open(address)
    async with Producer("bench", namesrv=namesrv) as producer:
        queue = min(await producer.queues(TOPIC), key=lambda queue: queue.queue_id)

        async def probe() -> None:
            header = GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=1)
            while True:
                begin = time.perf_counter()
                await other.request(RequestCode.GET_MAX_OFFSET, header, timeout=30.0)
                probes.append((time.perf_counter() - begin) * 1000)
                await asyncio.sleep(PROBE_SECONDS)

        probing = asyncio.create_task(probe())
        until = time.perf_counter() + options.seconds
        while time.perf_counter() < until:
            begin = time.perf_counter()
            await producer.send(Message(TOPIC, b"news"), queue=queue)
            took = time.perf_counter() - begin
            sends.append(took * 1000)
            await asyncio.sleep(max(0.0, 1 / options.rate - took))
        probing.cancel()
        await asyncio.gather(probing, return_exceptions=True)
    await other.close()
    return sends, probes


# The crowd


def start_crowd(address: str, mode: int, options: argparse.Namespace) -> subprocess.Popen[str]:
    """Its process, once all of its polls wait. It ends with its input, and prints how many answers
    it got."""
    command = [
        sys.executable, "-m", "bench.wake_flood", "--crowd", address, str(mode),
        "--connections", str(options.connections), "--children", str(options.children),
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    if process.stdout.readline() != "waiting\n":
        raise RuntimeError("the crowd ended before it waited")
    return process


async def crowd(address: str, mode: int, options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    probe = await Connection.open(address)
    ends = []
    for queue_id in range(options.children):
        header = GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=queue_id)
        answer = await probe.request(RequestCode.GET_MAX_OFFSET, header)
        ends.append(int(answer.ext_fields["offset"]))
    for _ in range(options.connections):
        _, waiter = await loop.create_connection(lambda: Waiter(mode, ends), host, int(port))
        waiter.ask()
    expected = options.connections * (1 if mode == PLAIN else options.children)
    while True:
        info = await probe.request(RequestCode.GET_BROKER_RUNTIME_INFO, timeout=30.0)
        if b'"heldPullRequests":"%d"' % expected in bytes(info.body):
            break
        await asyncio.sleep(0.1)
    print("waiting", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(Waiter.answers, flush=True)


class Waiter(asyncio.Protocol):
    """One connection of the crowd: it waits, is woken, and asks again at once.

    Attributes:
        answers: that all of them got.
    """

    answers = 0

    def __init__(self, mode: int, ends: Sequence[int]) -> None:
        self._mode = mode
        self._splitter = FrameSplitter()
        self._offset = ends[0]
        # Only the first child changes.
        self._others = b"".join(
            poll(queue_id, end, queue_id) for queue_id, end in enumerate(ends) if queue_id
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            Waiter.answers += 1
            # Of the queues, only the first one moves.
            self._offset = max([self._offset, *map(int, _NEXT.findall(frame))])
            self.ask()

    def ask(self) -> None:
        """Wait for news."""
        first = poll(0, self._offset, 0)
        if self._mode == PLAIN:
            self._transport.write(first)
            return
        header = BatchRequestHeader(
            dispatch_code=int(RequestCode.PULL_MESSAGE),
            omit_not_found=self._mode == OMITTING or None,
        )
        code = int(RequestCode.COMMON_BATCH_REQUEST)
        self._transport.write(encode_command(code, 1, header=header, body=first + self._others))


def poll(queue_id: int, offset: int, opaque: int) -> bytes:
    """The frame of a long poll."""
    header = PullMessageRequestHeader(
        consumer_group="bench_flood",
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=SUSPEND_WITH_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=HOLD_MS,
        sub_version=0,
        subscription="*",
    )
    return encode_command(int(RequestCode.PULL_MESSAGE), opaque, header=header)


if __name__ == "__main__":
    sys.exit(main())
