"""A disk that fails is told without paths and names: whoever is refused may know neither."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest

from pocketmq.embedded import EmbeddedServer
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.service.status import status_of
from pocketmq.remoting.answers.batch import decode_answers
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.frames.frame import Command
from pocketmq.store.errors import DiskFull
from pocketmq.store.files import Files
from tests.broker.batch.batches import parent, pull, send
from tests.broker.conftest import Client, fill
from tests.proxy.grpc_client import GrpcClient, message
from tests.security.requests import ask

SECRET: Final = "SecretTopic"
OWN: Final = "T"

#: The calls that ask the operating system for something that can fail, and may name a file.
CALLS: Final = (
    "allocate", "append", "create", "fdatasync", "open", "open_again", "replace", "sync_directory",
    "write",
)  # fmt: skip


def path_of(where: Any) -> str:
    return os.readlink(f"/proc/self/fd/{where}") if isinstance(where, int) else str(where)


@contextlib.contextmanager
def failing(call: str, number: int) -> Iterator[list[str]]:
    """The call fails wherever it is made; the errors name the file. Gives the files."""
    found: list[str] = []

    def fail(files: Files, where: Any, *rest: Any, **more: Any) -> Any:
        path = path_of(where)
        found.append(path)
        if call in ("allocate", "create") and number == errno.ENOSPC:
            raise DiskFull(Path(path), 1, f"[Errno {number}] no space: '{path}'")
        raise OSError(number, os.strerror(number), path)

    with mock.patch.object(Files, call, fail):
        yield found


async def fill_topics(server: EmbeddedServer) -> None:
    client = Client()
    await client.open(server.broker.address)
    for topic in (SECRET, OWN):
        await fill(client, topic, "", "")
        await fill(client, topic, "", queue_id=1)
    await client.close()


def check(answer: Any, store: Path) -> None:
    remark = answer.remark or ""
    assert SECRET not in remark
    assert str(store.parent) not in remark


async def all_requests(server: EmbeddedServer, client: Client) -> list[Command]:
    """Everything that both servers serve, with topic T and group G."""
    answers = []
    for address, dispatcher in (
        (server.broker.address, server.broker.dispatcher),
        (server.namesrv, server.name_server.dispatcher),
    ):
        other = Client()
        await other.open(address)
        for code in sorted(dispatcher.codes):
            with contextlib.suppress(RemotingError):  # it waits
                answers.append(await ask(dispatcher, other.connection, code, timeout=1.0))
        await other.close()
    return answers


async def all_sends(client: Client) -> list[Command]:
    return await asyncio.gather(
        client.send(OWN),
        client.send(OWN, queue_id=3),
        client.send(OWN, b"delayed", properties={"DELAY": "18"}),
        client.send(OWN, b"timed", properties={"TIMER_DELAY_SEC": "60"}),
        client.send(OWN, b"half", properties={"TRAN_MSG": "true", "PGROUP": "PG"}, sys_flag=4),
        client.send("New", b"new"),
        client.pull(OWN, sys_flag=4),
        client.pull(OWN, queue_id=2, sys_flag=4),
    )


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", CALLS)
async def test_no_answer_names_what_belongs_to_others(
    tmp_path: Path, call: str, number: int
) -> None:
    store = tmp_path / "store"
    async with EmbeddedServer(grpc_port=0, store=store) as server:
        await fill_topics(server)
        await server.restart_broker()  # the files of queues are opened when they are used
        assert server.proxy is not None
        victim, client = Client(), Client()
        await victim.open(server.broker.address)
        await client.open(server.broker.address)
        with failing(call, number) as failed:
            for queue in range(4):
                await victim.send(SECRET, b"x" * 70_000, queue_id=queue)
            for answer in await all_sends(client):
                check(answer, store)
            for children in ([send(OWN), send(OWN, queue_id=1)], [pull(OWN), pull(OWN, 1)]):
                answer = await parent(client, children)
                check(answer, store)
                for child in decode_answers(answer.body).values():
                    check(child, store)
            async with GrpcClient(server.proxy.port) as grpc:
                sent = await grpc.call(
                    "SendMessage", pb.SendMessageRequest(messages=[message(OWN)])
                )
                assert SECRET not in str(sent)
                assert str(tmp_path) not in str(sent)
            for answer in await all_requests(server, client):
                check(answer, store)
        assert failed
        await victim.close()
        await client.close()


def test_a_status_has_the_kind_of_an_error_only() -> None:
    error = OSError(errno.EIO, "Input/output error", f"/store/consumequeue/{SECRET}/0")
    assert status_of(error) == pb.Status(
        code=pb.INTERNAL_SERVER_ERROR,
        message="OSError: Input/output error; the server's log has the details",
    )
    assert status_of(KeyError(SECRET)).message == "KeyError; the server's log has the details"
