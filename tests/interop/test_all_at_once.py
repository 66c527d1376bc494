"""Everything at once: our name server and two brokers of ours under applications of all kinds.

The official Java client of both releases, the Go client and our own, over 50 topics and 30 groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.admin import Admin
from tests.interop.harness import ours
from tests.interop.harness.go_client import GoClient
from tests.interop.harness.go_crowd import GoCrowd
from tests.interop.harness.java_crowd import JavaCrowd
from tests.interop.harness.official import CLIENT_4, VERSION, JavaPeer, Server
from tests.interop.harness.our_crowd import OurCrowd

SETTINGS = {
    # Who is asked twice before it answers may well commit twice.
    "transactionCheckInterval": 5000,
    "transactionTimeOut": 4000,
    "transactionOpBatchInterval": 100,
}


@pytest.fixture
def brokers(own_namesrv: Server, tmp_path: Path) -> Iterator[list[Server]]:
    pair = [
        ours.start_broker(tmp_path, own_namesrv.address, name=name, settings=SETTINGS)
        for name in ("left", "right")
    ]
    yield pair
    for broker in pair:
        assert broker.process.running, broker.process.tail()
        assert broker.process.terminate() == 0, broker.process.tail()
        # Whatever a handler did not expect is in the log with its traceback.
        assert not [line for line in broker.process.lines if "Traceback" in line]


async def test_everything_at_once(
    java_peers: Callable[[str], JavaPeer],
    go: GoClient,
    own_namesrv: Server,
    brokers: list[Server],
    tmp_path: Path,
) -> None:
    namesrv = own_namesrv.address
    blocking = [
        JavaCrowd(java_peers(VERSION), namesrv).applications,
        JavaCrowd(java_peers(CLIENT_4), namesrv).applications,
        GoCrowd(go, namesrv).applications,
    ]
    own = OurCrowd(namesrv, tmp_path).applications
    crowds: list[Mapping[Any, list[str]]] = [*blocking, own]
    topics = {name for crowd in crowds for names in crowd.values() for name in names}
    async with Admin(namesrv=namesrv) as admin:
        for topic in topics:
            assert len(await admin.create_topic(topic, queues=4)) == len(brokers)

        with ThreadPoolExecutor(64) as pool:
            loop = asyncio.get_running_loop()
            applications = [application for crowd in blocking for application in crowd]
            results = await asyncio.gather(
                *(loop.run_in_executor(pool, application) for application in applications),
                *(application() for application in own),
                return_exceptions=True,
            )
        groups = {group for group in await admin.groups() if group.startswith("G_")}
    failures = [result for result in results if isinstance(result, Exception)]
    if failures:
        raise ExceptionGroup(f"of {len(results)} applications", failures)
    assert len(topics) >= 50
    assert len(groups) >= 20
