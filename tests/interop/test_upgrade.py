"""A broker is replaced by one of the other make, on the same store and port, under traffic.

From the official broker to pocketmq's and back, three times. Clients of every kind
(`tests.crash.clients`) and the official Java client work all the time. What was acknowledged to
them, also what waits for its time, for the end of its transaction or for an acknowledgement, has to
arrive.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.running import Running
from tests.crash.clients import BROKER, MIXED, ORDERLY, SUBSCRIPTIONS, WITH_OFFSETS, Clients
from tests.crash.history import broken_promises
from tests.crash.ledger import Committed, Kind, Ledger, OffsetKey
from tests.crash.mixed import PROXY_SETTINGS, SETTINGS, left_over
from tests.interop.harness import official, ours
from tests.interop.harness.official import JavaError, JavaPeer, Server
from tests.interop.harness.ports import OFFICIAL_BROKER_SPAN, free_block, free_port

START: Final[Mapping[str, Callable[..., Server]]] = {
    "official": official.start_broker,
    "ours": ours.start_broker,
}
MAKES: Final = ("official", "ours") * 3 + ("official",)
JAVA: Final = "java"
GROUPS: Final[Mapping[str, Collection[str]]] = {**SUBSCRIPTIONS, JAVA: (MIXED,)}
#: Acknowledgements that each broker gives before the next one takes its place.
WORK: Final = 250
#: A broker that starts and stops takes some seconds, and clients find it again after some more.
STALL: Final = 120.0


class JavaClient:
    """A push consumer that stays, and producers that come and go."""

    def __init__(self, java: JavaPeer, ledger: Ledger, namesrv: str) -> None:
        self._java = java
        self._ledger = ledger
        self._namesrv = namesrv

    async def start(self) -> None:
        await self._call(
            "push-start", namesrv=self._namesrv, topic=MIXED, expression="*", queues=4, members=1
        )

    async def stop(self) -> None:
        await self._call("push-stop")

    async def receive(self) -> None:
        while True:
            for got in await self._call("push-collect", count=1, timeoutMillis=500):
                place = (MIXED, got["queueId"], -1)  # a message that came again was elsewhere
                self._ledger.handle(JAVA, got["body"].encode(), *place, done=True)

    async def send(self) -> None:
        while True:
            sent = [self._ledger.add(Kind.SINGLE, MIXED, -1, 20) for _ in range(5)]
            messages = [{"body": each.body.decode()} for each in sent]
            try:
                await self._call(
                    "send", namesrv=self._namesrv, topic=MIXED, mode="sync", messages=messages
                )
            except JavaError:
                continue  # some of them may be stored
            for each in sent:
                self._ledger.acknowledge(each, None)

    async def _call(self, do: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(self._java, do, group=JAVA, **arguments)


def lost_offsets(ledger: Ledger) -> list[str]:
    """Where the offset of a group went back: after clean stops, none does."""
    seen: dict[OffsetKey, list[int]] = {}
    for event in ledger.history:
        if isinstance(event, Committed):
            seen.setdefault((event.group, event.topic, event.queue_id), []).append(event.offset)
    return [
        f"the offset of {key} was {before}, and then {after}"
        for key, offsets in seen.items()
        for before, after in pairwise(offsets)
        if after < before
    ]


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_upgrades_and_downgrades_under_traffic(
    java: JavaPeer, own_namesrv: Server, tmp_path: Path
) -> None:
    ledger = Ledger()
    namesrv, proxy_port = own_namesrv.address, free_port()
    port = free_block(OFFICIAL_BROKER_SPAN)
    store = tmp_path / "store"

    def start(make: str) -> Server:
        return START[make](
            tmp_path, namesrv, name=BROKER, store=store, port=port, settings=SETTINGS
        )

    broker = await asyncio.to_thread(start, MAKES[0])
    options = [word for value in PROXY_SETTINGS for word in ("--set", value)]
    with Running("proxy", "-n", namesrv, "--grpc-port", str(proxy_port), *options) as proxy:
        proxy.wait_for("proxy listening")
        chance = random.Random(1)
        clients = Clients(ledger, chance, namesrv, broker.address, proxy_port)
        peer = JavaClient(java, ledger, namesrv)
        try:
            async with clients, asyncio.TaskGroup() as group:
                await peer.start()
                receiving = group.create_task(peer.receive())
                sending = group.create_task(peer.send())
                for make in MAKES[1:]:
                    await work_goes_on(ledger, clients)
                    code = await asyncio.to_thread(broker.process.terminate)
                    assert code in (0, 143), broker.process.tail()  # Java's after SIGTERM
                    broker = await asyncio.to_thread(start, make)
                await work_goes_on(ledger, clients)
                sending.cancel()
                await clients.stop_sending()
                left = await left_over(ledger, clients, GROUPS, STALL)
                receiving.cancel()
                await peer.stop()
        except BaseException:
            print(broker.process.tail())
            raise
        finally:
            broker.process.kill()
    assert left == []
    assert broken_promises(ledger, orderly=[ORDERLY], tells=WITH_OFFSETS) == []
    assert lost_offsets(ledger) == []
    assert len(ledger.received[JAVA]) > WORK


async def work_goes_on(ledger: Ledger, clients: Clients) -> None:
    async with asyncio.timeout(STALL):
        before = ledger.acknowledged.total()
        while ledger.acknowledged.total() < before + WORK:
            clients.check()
            await ledger.more(WORK, timeout=1.0)
