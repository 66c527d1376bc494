"""Requests of official clients, broken at random: none of them harms the servers.

tests/data/frames has them as the Java client 5.3.3, mqadmin, the Go client 2.1.2 and our own broker
sent them, one of each request code: CLIENT-CODE.bin.
"""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path

import pytest

from pocketmq.embedded import EmbeddedServer
from pocketmq.remoting.codes import RequestCode
from tests.remoting.peers import RawPeer, frame

FRAMES = sorted((Path(__file__).parents[1] / "data" / "frames").glob("*.bin"))
MUTATIONS = 20
DIGITS = (b"-1", b"0", b"99999999999999999999", b"2147483648", b'""', b"null", b"[]", b"{}", b"1e9")


def broken(good: bytes, chance: random.Random) -> bytes:
    """Return the frame with one or a few faults; in most of them the length is right."""
    data = bytearray(good)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        at = chance.randrange(4, max(5, len(data)))
        match chance.randrange(5):
            case 0 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                del data[at : at + chance.randrange(1, 9)]
            case 2:
                data[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 3:
                numbers = [i for i in range(8, len(data)) if chr(data[i]).isdigit()]
                if numbers:
                    at = chance.choice(numbers)
                    data[at : at + 1] = chance.choice(DIGITS)
            case _:
                other = chance.randrange(4, max(5, len(data)))
                data[at:at] = data[other : other + 16]
    if chance.randrange(8):
        # The lengths of the frame and of its header, so that the fault is further inside.
        header = int.from_bytes(good[5:8]) + len(data) - len(good)
        data[:4] = (len(data) - 4).to_bytes(4)
        if 0 <= header < 1 << 24 and chance.randrange(4):
            data[5:8] = header.to_bytes(3)
    return bytes(data)


def test_there_are_frames() -> None:
    assert len(FRAMES) > 20


async def test_broken_requests_harm_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with EmbeddedServer() as server:
        ports = (server.broker.port, server.name_server.port)
        bystanders = [await RawPeer.open(port) for port in ports]
        for number, path in enumerate(FRAMES):
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
            unexpected = [r for r in caplog.records if r.exc_info and r.exc_info[0]]
            assert not unexpected, (
                f"{path.name}: {unexpected[0].getMessage()} {caplog.text[-3000:]}"
            )
        for bystander in bystanders:
            await bystander.close()
