"""A broker's process ends soon after SIGTERM whatever goes wrong, with all that it acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq import Message, Producer, PullConsumer
from pocketmq.broker.replication.frames import encode_report
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.frames.frame import encode_command
from pocketmq.remoting.headers import GetMaxOffsetRequestHeader, PopMessageRequestHeader
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.hanging import CODE, TOPIC
from tests.cli.running import TIMEOUT, Running
from tests.cli.test_stopping import SOON, held_pull
from tests.interop.harness.ports import free_port

TOPICS = "orders"


class Served:
    """A server that runs, and the bodies that it has acknowledged."""

    def __init__(self, process: Running, namesrv: str, port: int) -> None:
        self.process = process
        self.namesrv = namesrv
        self.port = port
        self.acknowledged: set[bytes] = set()

    async def send(self, count: int, size: int = 100) -> None:
        """Send messages; those that fail are not acknowledged."""
        async with Producer("shop", namesrv=self.namesrv, retries=0) as producer:
            bodies = [str(len(self.acknowledged) + n).zfill(size).encode() for n in range(count)]
            sends = [producer.send(Message(TOPICS, body)) for body in bodies]
            results = await asyncio.gather(*sends, return_exceptions=True)
        sent = zip(bodies, results, strict=True)
        self.acknowledged.update(body for body, each in sent if not isinstance(each, BaseException))

    async def stored(self, count: int) -> None:
        """Wait until the broker has so many messages, acknowledged or not."""
        connection = await Connection.open(f"127.0.0.1:{self.port}")
        async with asyncio.timeout(TIMEOUT):
            stored = 0
            while stored < count:
                headers = [GetMaxOffsetRequestHeader(topic=TOPICS, queue_id=n) for n in range(4)]
                answers = [
                    await connection.request(RequestCode.GET_MAX_OFFSET, header)
                    for header in headers
                ]
                stored = sum(int(answer.ext_fields["offset"]) for answer in answers)
        await connection.close()

    async def stop(self) -> int:
        """Send SIGTERM; return the exit code of the process, which must end soon."""
        began = time.monotonic()
        code = await asyncio.to_thread(self.process.stop)
        assert time.monotonic() - began < SOON, self.process.everything()
        return code


@contextlib.asynccontextmanager
async def serving(store: Path, *more: str, hanging: str = "") -> AsyncIterator[Served]:
    arguments = ["serve", "--listen-port", "0", "--namesrv-port", "0", "--store", str(store),
                 "--no-grpc", "--no-dashboard",
                 "--set", f"mappedFileSizeCommitLog={1 << 20}", *more]  # fmt: skip
    made = (
        Running(hanging, *arguments, module="tests.cli.hanging") if hanging else Running(*arguments)
    )
    with made as process:
        line = await asyncio.to_thread(
            process.wait_for, r"name server listening on ([\d.:]+), broker on [\d.]+:(\d+)"
        )
        yield Served(process, line[1], int(line[2]))


async def assert_kept(store: Path, acknowledged: set[bytes]) -> None:
    """Start a server on the store: it must have every message of these bodies."""
    assert acknowledged
    missing = set(acknowledged)
    async with serving(store) as served:
        consumer = PullConsumer("readers", namesrv=served.namesrv, start="begin")
        async with asyncio.timeout(TIMEOUT), consumer:
            await consumer.subscribe(TOPICS)
            while missing:
                missing -= {each.body for each in await consumer.poll()}


def connect(stack: contextlib.ExitStack, port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(TIMEOUT)
    made.connect(("127.0.0.1", port))
    return stack.enter_context(made)


@pytest.mark.parametrize("kind", ["request", "thread"])
async def test_a_request_that_hangs(tmp_path: Path, kind: str) -> None:
    with contextlib.ExitStack() as stack:
        async with serving(tmp_path, hanging=kind) as served:
            await served.send(100)
            connect(stack, served.port).sendall(encode_command(CODE, 1))
            await asyncio.to_thread(served.process.wait_for, "it hangs")
            assert await served.stop() == ExitCode.OK
            assert "so the process ends without it" in served.process.everything()
    await assert_kept(tmp_path, served.acknowledged)


async def test_a_write_of_a_table_that_hangs(tmp_path: Path) -> None:
    async with serving(tmp_path, hanging="table") as served:
        await served.send(100)
        async with Producer("shop", namesrv=served.namesrv) as producer:
            sending = asyncio.ensure_future(producer.send(Message(TOPIC, b"x")))
            await asyncio.to_thread(served.process.wait_for, "it hangs")
            assert await served.stop() == ExitCode.OK
            sending.cancel()
            await asyncio.wait([sending])
        assert "the stop goes on without it" in served.process.everything()
    await assert_kept(tmp_path, served.acknowledged)


async def test_a_full_disk(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    if not hasattr(resource, "prlimit"):
        pytest.skip("the limits of another process cannot be set here")
    async with serving(tmp_path) as served:
        await served.send(100)
        # From now on no file grows: not even one that has been there.
        pid = served.process.process.pid
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        await served.send(300, size=20_000)  # more than the files have room for
        assert len(served.acknowledged) < 400
        await served.stop()
    await assert_kept(tmp_path, served.acknowledged)


async def test_a_slave_that_does_not_read(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        port = free_port()  # with listenPort 0, the broker takes any
        settings = "--set", "brokerRole=SYNC_MASTER", "--set", f"haListenPort={port}"
        async with serving(tmp_path, *settings) as served:
            await served.send(64, size=100_000)
            slave = connect(stack, port)
            slave.sendall(encode_report(0))
            assert slave.recv(1)
            waiting = asyncio.ensure_future(served.send(8))
            await served.stored(64 + 8)
            assert await served.stop() == ExitCode.OK
            await waiting
    await assert_kept(tmp_path, served.acknowledged)


async def test_many_long_polls(tmp_path: Path) -> None:
    pop = PopMessageRequestHeader(
        consumer_group="poppers", topic=TOPICS, queue_id=-1, max_msg_nums=32,
        invisible_time=60_000, poll_time=60_000, init_mode=1,
    )  # fmt: skip
    polls = encode_command(RequestCode.PULL_MESSAGE, 1, header=held_pull())
    polls += encode_command(RequestCode.POP_MESSAGE, 2, header=pop)
    with contextlib.ExitStack() as stack:
        async with serving(tmp_path) as served:
            await served.send(100)
            for _ in range(100):
                connection = connect(stack, served.port)
                connection.sendall(polls + encode_command(RequestCode.GET_BROKER_CLUSTER_INFO, 3))
                assert connection.recv(1)
            assert await served.stop() == ExitCode.OK
    await assert_kept(tmp_path, served.acknowledged)
