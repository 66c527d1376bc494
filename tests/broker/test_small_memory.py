"""Servers in a control group of 256 MiB: what they may use follows its limit, and they stay alive.

The group is made within the one of this process, with the old interface (version 1) or the unified
one, where this process may.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from pocketmq.message.record import iter_records
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.headers import PullMessageRequestHeader
from tests.broker.conftest import COMMIT, SUBSCRIPTION, SUSPEND, Client
from tests.interop.harness.official import PROJECT
from tests.interop.harness.ports import free_port
from tests.interop.harness.process import Process

LIMIT: Final = 256 << 20
TRAFFIC: Final = 1 << 30
BODY: Final = 64 << 10
CONNECTIONS: Final = 1_000
SENDERS: Final = 50
QUEUES: Final = 4
PATIENCE: Final = 250.0
_POCKETMQ: Final = (sys.executable, "-m", "pocketmq")


class MemoryGroup:
    """A control group with a limit, within that of this process."""

    def __init__(self) -> None:
        """Raises OSError where this process may make none."""
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        paths = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
        old = next((path for names, path in paths.items() if "memory" in names.split(",")), None)
        mount = Path("/sys/fs/cgroup/memory" if old is not None else "/sys/fs/cgroup")
        within = mount / (paths.get("", "/") if old is None else old).strip("/")
        self._events = "memory.events" if old is None else "memory.oom_control"
        self._directory = within / f"pocketmq-{os.getpid()}"
        self._directory.mkdir()
        try:
            limit = "memory.max" if old is None else "memory.limit_in_bytes"
            (self._directory / limit).write_text(str(LIMIT))
        except OSError:
            self.remove()
            raise

    def command(self, *argv: str | Path) -> list[str]:
        """A command whose process is in the group from its start."""
        enter = f'echo $$ > "{self._directory}/cgroup.procs"; exec "$@"'
        return ["sh", "-c", enter, "sh", *map(str, argv)]

    @property
    def killed(self) -> int:
        """How many processes the kernel has killed for their memory."""
        events = (self._directory / self._events).read_text().split()
        return int(events[events.index("oom_kill") + 1])

    def remove(self) -> None:
        self._directory.rmdir()


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    try:
        group = MemoryGroup()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    yield group
    group.remove()


def test_bounds_follow_the_limit_of_the_group(group: MemoryGroup) -> None:
    program = (
        "from pocketmq.remoting.frames.frame_memory import FrameMemory;"
        "from pocketmq.remoting.machine_memory import at_most, memory;"
        "print(memory(), at_most(1 << 60), FrameMemory().limit)"
    )
    done = subprocess.run(
        group.command(sys.executable, "-c", program),
        capture_output=True, text=True, check=True, cwd=PROJECT,
    )  # fmt: skip
    assert done.stdout.split() == [str(LIMIT), str(LIMIT // 4), str(LIMIT // 4)]


def command_of(server: str, store: Path, port: int, metrics_port: int) -> list[str]:
    settings = {
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": metrics_port,
        "mappedFileSizeCommitLog": 64 << 20,
        "storePathRootDir": store,
    }
    if server == "serve":
        ports = ["--namesrv-port", "0", "--listen-port", str(port), "--grpc-port", "0"]
    else:
        ports, settings["listenPort"] = [], port
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return [*_POCKETMQ, server, *ports, *given]


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("server", ["serve", "broker"])
async def test_it_survives_traffic(group: MemoryGroup, tmp_path: Path, server: str) -> None:
    store, port, metrics_port = tmp_path / "store", free_port(), free_port()
    command = group.command(*command_of(server, store, port, metrics_port))
    process = Process(server, command, log=tmp_path / "output.log", cwd=PROJECT)
    try:
        process.wait_for("listening", 120)
        async with connected(f"127.0.0.1:{port}") as clients:
            for topic in ("busy", "quiet"):
                await clients[0].send(topic, b"first", queue_id=QUEUES - 1)
            held = [
                asyncio.create_task(pull(client.connection, "quiet", 0, 0))
                for client in clients[SENDERS + QUEUES :]
            ]
            looks = asyncio.create_task(look_on(group, tmp_path, metrics_port))
            async with asyncio.TaskGroup() as work:
                for number, client in enumerate(clients[:SENDERS]):
                    work.create_task(send(client, number))
                for queue_id, client in enumerate(clients[SENDERS : SENDERS + QUEUES]):
                    work.create_task(read(client.connection, queue_id))
            looks.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looks
            assert process.running, process.tail()
            assert not any(pull.done() and pull.exception() for pull in held)
            for pulling in held:
                pulling.cancel()
        assert group.killed == 0
        assert process.terminate() == 0, process.tail()
    finally:
        process.kill()


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[list[Client]]:
    clients = [Client() for _ in range(CONNECTIONS)]
    for client in clients:
        await client.open(address)
    yield clients
    for client in clients:
        await client.close()


async def send(client: Client, number: int) -> None:
    for _ in range(TRAFFIC // BODY // SENDERS):
        answer = await client.send(
            "busy", os.urandom(BODY), queue_id=number % QUEUES, born_timestamp=0
        )
        assert answer.code == 0, answer.remark


async def read(connection: Connection, queue_id: int) -> None:
    """Read a queue until everything that is sent to it has come."""
    senders = len(range(queue_id, SENDERS, QUEUES))
    expected = senders * (TRAFFIC // BODY // SENDERS) + (queue_id == QUEUES - 1)
    offset = 0
    while offset < expected:
        offset += await pull(connection, "busy", queue_id, offset)


async def pull(connection: Connection, topic: str, queue_id: int, offset: int) -> int:
    """How many messages there were, as soon as there are some, or after a while."""
    header = PullMessageRequestHeader(
        consumer_group="G",
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=SUSPEND | SUBSCRIPTION | COMMIT,
        commit_offset=offset,
        suspend_timeout_millis=20_000,
        sub_version=0,
        subscription="*",
    )
    answer = await connection.request(RequestCode.PULL_MESSAGE, header, timeout=PATIENCE)
    return sum(1 for _ in iter_records(answer.body)) if answer.code == 0 else 0


async def look_on(group: MemoryGroup, directory: Path, metrics_port: int) -> None:
    """Archive the store, in the same group, and scrape the metrics, again and again."""
    url = f"http://127.0.0.1:{metrics_port}/metrics"
    while True:
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read())
        assert b"rocketmq_" in page
        archive = f"file://{directory}/archive"
        sync = group.command(*_POCKETMQ, "sync", directory / "store", archive, "--all")
        process = await asyncio.create_subprocess_exec(
            *sync, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, output
