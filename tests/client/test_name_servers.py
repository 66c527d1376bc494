from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from pocketmq.client.errors import InvalidName, NoNameServer, TopicNotExist
from pocketmq.client.routes.name_server_list import NameServerList, parse_addresses
from pocketmq.client.routes.name_servers import NameServers
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.namesrv import GetRouteInfoRequestHeader
from pocketmq.remoting.pool import ConnectionPool
from tests.client.fake_cluster import FakeNameServer
from tests.client.waiting import until

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("h:1", ["h:1"]),
        ("h:1;i:2", ["h:1", "i:2"]),
        (" h:1 , i:2 ; ", ["h:1", "i:2"]),
        (["h:1", "i:2", "h:1"], ["h:1", "i:2"]),
        ("[::1]:9876", ["[::1]:9876"]),
    ],
)
def test_addresses(given: str | list[str], expected: list[str]) -> None:
    assert parse_addresses(given) == expected


@pytest.mark.parametrize(
    "given", ["host", "host:", ":1", "host:x", "host:0", "host:65536", "a;b:1"]
)
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(InvalidName, match="name server"):
        parse_addresses(given)


def test_the_environment_is_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    nothing: tuple[str | list[str] | None, ...] = (None, "", [], " ; ")
    for given in nothing:
        with pytest.raises(NoNameServer, match="NAMESRV_ADDR"):
            NameServerList(given)
    monkeypatch.setenv("NAMESRV_ADDR", "env:1;env:2")
    assert NameServerList(None).addresses == ["env:1", "env:2"]
    assert NameServerList("given:1").addresses == ["given:1"]


@pytest.fixture
async def servers() -> AsyncIterator[list[FakeNameServer]]:
    three = [FakeNameServer() for _ in range(3)]
    for server in three:
        server.put("T", [])
        await server.start()
    yield three
    for server in three:
        await server.stop()


async def ask(names: NameServers, topic: str = "T") -> None:
    await names.request(ROUTE, GetRouteInfoRequestHeader(topic=topic))


def asked(servers: list[FakeNameServer]) -> list[int]:
    return [server.seen[ROUTE] for server in servers]


async def test_one_server_is_kept_while_it_answers(servers: list[FakeNameServer]) -> None:
    async with ConnectionPool() as pool:
        names = NameServers([server.address for server in servers], pool)
        for _ in range(6):
            await ask(names)
    assert sorted(asked(servers)) == [0, 0, 6]


async def test_the_next_one_takes_over_and_is_kept(servers: list[FakeNameServer]) -> None:
    async with ConnectionPool() as pool:
        names = NameServers([server.address for server in servers], pool)
        await ask(names)
        first = asked(servers).index(1)
        await servers[first].stop()
        await asyncio.gather(*(ask(names) for _ in range(5)))
        await servers[first].start()
        await ask(names)
    assert asked(servers)[first] == 1
    assert asked(servers)[(first + 1) % 3] == 6


async def test_an_error_answer_is_final(servers: list[FakeNameServer]) -> None:
    async with ConnectionPool() as pool:
        names = NameServers([server.address for server in servers], pool)
        with pytest.raises(TopicNotExist) as caught:
            await ask(names, "nowhere")
        assert caught.value.broker in names.addresses
    assert sum(asked(servers)) == 1


async def test_a_server_that_hangs_leaves_time_for_the_others(
    servers: list[FakeNameServer],
) -> None:
    async with ConnectionPool() as pool:
        names = NameServers([server.address for server in servers], pool)
        await ask(names)
        hanging = servers[asked(servers).index(1)]
        hanging.hangs = True
        await names.request(ROUTE, GetRouteInfoRequestHeader(topic="T"), timeout=0.3)


async def test_all_of_them_silent(servers: list[FakeNameServer]) -> None:
    async with ConnectionPool() as pool:
        names = NameServers([server.address for server in servers], pool)
        for server in servers:
            await server.stop()
        with pytest.raises(NoNameServer) as caught:
            await ask(names)
        for server in servers:
            assert server.address in str(caught.value)
        assert caught.value.retriable
        await servers[1].start()
        await ask(names)


async def test_an_outage_is_warned_of_once(
    servers: list[FakeNameServer], caplog: pytest.LogCaptureFixture
) -> None:
    async with ConnectionPool() as pool:
        names = NameServers([servers[0].address], pool)
        for outages in (1, 2):
            await servers[0].stop()
            for _ in range(5):
                with pytest.raises(NoNameServer):
                    await ask(names)
            told = [r for r in caplog.records if "does not answer" in r.getMessage()]
            assert len(told) == outages
            await servers[0].start()
            await ask(names)


async def test_that_a_server_answers_again_is_told_before_anybody_asks_it(
    servers: list[FakeNameServer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pocketmq.client.routes.name_servers")
    async with ConnectionPool() as pool:
        names = NameServers([server.address for server in servers], pool)
        await ask(names)
        first = servers[asked(servers).index(1)]
        await first.stop()
        watching = asyncio.create_task(names.watch())
        await ask(names)  # another one answers, and is kept
        assert len(caplog.records) == 1
        await first.start()
        await until(lambda: len(caplog.records) == 2)
        watching.cancel()
    assert asked(servers)[servers.index(first)] == 1
    told = f"name server {first.address} answers again after "
    assert caplog.records[1].getMessage().startswith(told)


async def test_a_write_goes_to_each_and_its_first_error_is_raised(
    servers: list[FakeNameServer],
) -> None:
    header = GetRouteInfoRequestHeader(topic="T")
    async with ConnectionPool() as pool:
        names = NameServers([server.address for server in servers], pool)
        await names.request_all(ROUTE, header)
        assert asked(servers) == [1, 1, 1]
        del servers[0].routes["T"]
        with pytest.raises(TopicNotExist):
            await names.request_all(ROUTE, header)
        assert asked(servers) == [2, 2, 2]
