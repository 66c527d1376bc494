"""`python -m tests.interop.record_ha` writes tests/data/replication/classic.json: the bytes that
pass between an official master and an official slave, which starts empty and is cut off once."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

from pocketmq import Message, Producer
from pocketmq.broker.replication.frames import FrameReader, Head, encode_head
from tests.interop.harness import ours
from tests.interop.harness.ha_proxy import HaProxy
from tests.interop.harness.official import PROJECT
from tests.interop.harness.process import killed_at_the_end
from tests.interop.harness.replicas import Group, wait_connected, wait_copied

RECORDED = PROJECT / "tests" / "data" / "replication" / "classic.json"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pocketmq-ha-") as directory, killed_at_the_end():
        group = Group(Path(directory), ours.start_name_server(Path(directory)))
        group.start("official", 0)
        proxy = HaProxy(group.ha_address())
        # haMasterAddress keeps an official slave from connecting at all, so the name server tells
        # it another address.
        told = {group.ha_address().encode(): proxy.address.encode()}
        names = HaProxy(group.namesrv.address, told)
        group.start("official", 1, namesrvAddr=names.address)
        wait_connected(group)
        asyncio.run(send(group.namesrv.address, 3, 100))
        wait_copied(group)
        time.sleep(2.5)  # two heartbeats
        asyncio.run(send(group.namesrv.address, 3, 400_000))  # over the end of a file
        wait_copied(group)
        proxy.cut()
        asyncio.run(send(group.namesrv.address, 1, 100))
        wait_copied(group)
        proxy.close()
    recorded: dict[str, list[object]] = {
        "reports": [
            {"after": round(piece.at, 2), "hex": piece.data.hex()}
            for piece in proxy.pieces
            if piece.by_slave
        ],
        "heads": [encode_head(*head).hex() for head in heads(proxy)],
    }
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")
    print(f"{len(recorded['heads'])} frames: {RECORDED}")


def heads(proxy: HaProxy) -> list[Head]:
    """The heads of all frames; their bodies are left out."""
    found = FrameReader().feed(memoryview(proxy.by_master()))
    return [each for each in found if isinstance(each, Head)]


async def send(namesrv: str, count: int, size: int) -> None:
    async with Producer("record", namesrv=namesrv, compression=None) as producer:
        for _ in range(count):
            await producer.send(Message("Recorded", b"r" * size))


if __name__ == "__main__":
    main()
