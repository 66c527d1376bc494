"""What members of a group and their controllers say to each other, broken at random."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from pathlib import Path

import pytest

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import encode_command
from tests.mutation import broken
from tests.remoting.peers import RawPeer, frame

from .group import running
from .test_ha_frames import recorded

MUTATIONS = 40
CLASSIC = Path(__file__).parents[2] / "data" / "replication" / "classic.json"

#: What slaves of both kinds send to the HA port.
STREAMS = {
    name: b"".join(data for sender, data in recorded(name) if sender == "slave")
    for name in ("join", "rejoin")
} | {
    "classic": b"".join(
        bytes.fromhex(report["hex"]) for report in json.loads(CLASSIC.read_text())["reports"]
    )
}

#: What controllers ask of brokers. No masterAddress: the broken one could be somebody else's.
REQUESTS = {
    "role": encode_command(
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        1,
        ext_fields={
            "masterEpoch": "2",
            "syncStateSetEpoch": "3",
            "masterBrokerId": "2",
        },
        body=b'{"syncStateSet":[1,2],"syncStateSetEpoch":3}',
    ),
    "epochs": encode_command(RequestCode.GET_BROKER_EPOCH_CACHE, 2),
    "copies": encode_command(RequestCode.GET_BROKER_HA_STATUS, 3),
}


async def test_broken_bytes_harm_no_member(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with running(tmp_path) as group:
        await group.start("a")
        broker = await group.leads("a")
        member = broker.components.group
        assert member is not None
        ha_port = int(member.ha_address.rpartition(":")[2])
        for number, (name, good) in enumerate([*STREAMS.items(), *REQUESTS.items()]):
            chance = random.Random(number)
            framed = name in REQUESTS
            for _ in range(MUTATIONS):
                peer = await RawPeer.open(broker.port if framed else ha_port)
                peer.send(broken(good, chance, framed=framed))
                peer.writer.write_eof()
                async with asyncio.timeout(30):
                    await peer.read_to_end()
                await peer.close()
            bystander = await RawPeer.open(broker.port)
            bystander.send(frame(RequestCode.GET_BROKER_CONFIG, number))
            assert (await bystander.read()).opaque == number
            await bystander.close()
            unexpected = [r for r in caplog.records if r.exc_info and r.exc_info[0]]
            assert not unexpected, f"{name}: {unexpected[0].getMessage()} {caplog.text[-3000:]}"
