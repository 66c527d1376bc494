"""Requests of official clients, broken at random: none of them harms the servers.

tests/data/frames has them as the Java client 5.3.3, mqadmin, the Go client 2.1.2 and our own broker
sent them, one of each request code: CLIENT-CODE.bin. Those of mqadmin are signed; they were written
by tests.interop.record_frames.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pocketmq.auth.service import signer_of
from pocketmq.auth.signature import CREDENTIALS
from pocketmq.embedded import EmbeddedServer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.frames.frame import decode_command
from tests.mutation import broken
from tests.remoting.peers import RawPeer, frame
from tests.security.conftest import ADMIN, PROPERTIES

FRAMES = sorted((Path(__file__).parents[1] / "data" / "frames").glob("*.bin"))
SIGNED = [path for path in FRAMES if path.name.startswith("mqadmin-")]
MUTATIONS = 20


def test_there_are_frames() -> None:
    assert len(FRAMES) > 30
    assert {int(path.stem.partition("-")[2]) for path in SIGNED} == set(range(3001, 3011))


def check_log(caplog: pytest.LogCaptureFixture, path: Path) -> None:
    unexpected = [r for r in caplog.records if r.exc_info and r.exc_info[0]]
    assert not unexpected, f"{path.name}: {unexpected[0].getMessage()} {caplog.text[-3000:]}"


@pytest.mark.parametrize(
    ("properties", "frames"),
    [pytest.param({}, FRAMES, id="open"), pytest.param(PROPERTIES, SIGNED, id="secured")],
)
async def test_broken_requests_harm_nobody(
    caplog: pytest.LogCaptureFixture, properties: Mapping[str, str], frames: Sequence[Path]
) -> None:
    caplog.set_level(logging.WARNING)
    async with EmbeddedServer(properties=properties) as server:
        ports = (server.broker.port, server.name_server.port)
        bystanders = [await RawPeer.open(port) for port in ports]
        for number, path in enumerate(frames):
            chance = random.Random(number)
            good = path.read_bytes()
            for port, bystander in zip(ports, bystanders, strict=True):
                peers = []
                for _ in range(MUTATIONS):
                    peer = await RawPeer.open(port)
                    peer.send(broken(good, chance))
                    peer.writer.write_eof()
                    peers.append(peer)
                for peer in peers:
                    async with asyncio.timeout(30):
                        await peer.read_to_end()
                    await peer.close()
                bystander.send(frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, number))
                assert (await bystander.read()).opaque == number
            check_log(caplog, path)
        for bystander in bystanders:
            await bystander.close()


async def test_a_super_user_sends_broken_bodies(caplog: pytest.LogCaptureFixture) -> None:
    """Signed after they were broken, so that what reads users and access lists gets them."""
    caplog.set_level(logging.WARNING)
    codes: set[int] = set()
    async with EmbeddedServer(properties=PROPERTIES) as server:
        ports = (server.broker.port, server.name_server.port)
        for port in ports:
            connection = await Connection.open(f"127.0.0.1:{port}", sign=signer_of(ADMIN))
            for number, path in enumerate(SIGNED):
                chance = random.Random(number)
                good = decode_command(path.read_bytes()[4:])
                fields = {k: v for k, v in good.ext_fields.items() if k not in CREDENTIALS}
                for _ in range(MUTATIONS):
                    name = chance.choice([*fields, ""])
                    body = bytes(good.body)
                    text = broken(fields.get(name, "").encode(), chance, framed=False)
                    given = {**fields, name: text.decode("latin-1")} if name else fields
                    body = broken(body, chance, framed=False) if body else b""
                    answer = await connection.request(good.code, None, body, ext_fields=given)
                    codes.add(answer.code)
                check_log(caplog, path)
            await connection.close()
            admin = await Connection.open(f"127.0.0.1:{port}", sign=signer_of(ADMIN))
            answer = await admin.request(RequestCode.AUTH_GET_USER, ext_fields={"username": "root"})
            assert b'"root"' in bytes(answer.body)
            await admin.close()
    assert len(codes) > 2, codes
