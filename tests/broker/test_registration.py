"""Registration at name servers: at start, on change, after a loss, at stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.registration import BrokerIdentity, Registration
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.remoting.bodies.table import KVTable
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.serving.request import Response
from tests.broker.conftest import NameServerStub

IDENTITY = BrokerIdentity("C0", "b0", 0, "127.0.0.1:10911")


class Registering:
    """A registration over a topic table, with whatever settings a test wants."""

    def __init__(self, directory: Path, *addresses: str, **settings: Any) -> None:
        config = BrokerConfig(
            namesrv_addr=";".join(addresses),
            broker_name="b0",
            broker_cluster_name="C0",
            register_broker_timeout_mills=2000,
            **settings,
        )
        self.topics = TopicConfigs(config, directory / "topics.json", lambda: 1, self._changed)
        self.topics.load()
        self.registration = Registration(
            config, IDENTITY, self.topics, self.topics.mark_ordered, first_retry=0.02
        )
        self.registration.ha_address = "127.0.0.1:10912"

    def _changed(self, names: Any) -> None:
        self.registration.topics_changed(names)

    async def __aenter__(self) -> Registering:
        await self.registration.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.registration.stop()


@pytest.fixture(autouse=True)
async def _in_time() -> AsyncIterator[None]:
    async with asyncio.timeout(20):
        yield


async def test_start_returns_registered(name_server: NameServerStub, tmp_path: Path) -> None:
    async with Registering(tmp_path, name_server.address) as broker:
        header, body = name_server.registered.get_nowait()

        assert (header.cluster_name, header.broker_name, header.broker_id) == ("C0", "b0", 0)
        assert header.broker_addr == "127.0.0.1:10911"
        assert header.ha_server_addr == "127.0.0.1:10912"
        assert header.body_crc32 != 0
        wrapper = body.topic_config_serialize_wrapper
        assert wrapper.topic_config_table == broker.topics.table
        assert wrapper.data_version == broker.topics.data_version
    assert name_server.unregistered.get_nowait().broker_addr == "127.0.0.1:10911"


async def test_a_change_is_told_at_once_and_alone(
    name_server: NameServerStub, tmp_path: Path
) -> None:
    async with Registering(tmp_path, name_server.address) as broker:
        name_server.registered.get_nowait()
        broker.topics.create_if_absent("T", 4)
        broker.topics.create_if_absent("U", 4)
        await broker.registration.settled()

        _, body = name_server.registered.get_nowait()
        wrapper = body.topic_config_serialize_wrapper
        assert set(wrapper.topic_config_table) == {"T", "U"}
        assert wrapper.data_version.counter == 2
        assert name_server.registered.empty()


async def test_every_name_server_is_told(name_server: NameServerStub, tmp_path: Path) -> None:
    other = NameServerStub()
    await other.start()
    async with Registering(tmp_path, name_server.address, other.address) as broker:
        for stub in (name_server, other):
            stub.registered.get_nowait()
        broker.topics.create_if_absent("T", 4)
        await broker.registration.settled()
        for stub in (name_server, other):
            _, body = stub.registered.get_nowait()
            assert set(body.topic_config_serialize_wrapper.topic_config_table) == {"T"}
    await other.stop()


async def test_an_unreachable_name_server_is_a_warning_and_found_later(
    name_server: NameServerStub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = NameServerStub()
    await other.start()
    await other.stop()
    async with Registering(tmp_path, name_server.address, other.address) as broker:
        name_server.registered.get_nowait()
        assert f"cannot register at name server {other.address}" in caplog.text
        broker.topics.create_if_absent("T", 4)

        await other.start()
        _, body = await other.registered.get()
        assert "T" in body.topic_config_serialize_wrapper.topic_config_table
        assert "SELF_TEST_TOPIC" in body.topic_config_serialize_wrapper.topic_config_table
    await other.stop()


async def test_a_restarted_name_server_is_told_everything_again(
    name_server: NameServerStub, tmp_path: Path
) -> None:
    async with Registering(tmp_path, name_server.address):
        name_server.registered.get_nowait()
        await name_server.stop()
        await name_server.start()

        _, body = await name_server.registered.get()
        assert "SELF_TEST_TOPIC" in body.topic_config_serialize_wrapper.topic_config_table


async def test_a_refused_registration_is_tried_again_in_full(
    name_server: NameServerStub, tmp_path: Path
) -> None:
    name_server.answers.append(Response(ResponseCode.SYSTEM_ERROR, "register broker failed"))
    async with Registering(tmp_path, name_server.address):
        await name_server.registered.get()
        _, body = await name_server.registered.get()
        assert "SELF_TEST_TOPIC" in body.topic_config_serialize_wrapper.topic_config_table


async def test_signs_of_life_between_registrations(
    name_server: NameServerStub, tmp_path: Path
) -> None:
    async with Registering(tmp_path, name_server.address, broker_heartbeat_interval=20):
        for _ in range(2):
            header = await name_server.heartbeats.get()
            assert (header.broker_name, header.broker_addr) == ("b0", "127.0.0.1:10911")
        assert name_server.registered.qsize() == 1


async def test_ordered_topics_come_from_the_name_server(
    name_server: NameServerStub, tmp_path: Path
) -> None:
    name_server.answers.append(Response(body=KVTable(table={"BenchmarkTest": "b0:4"}).encode()))
    async with Registering(tmp_path, name_server.address) as broker:
        assert broker.topics.table["BenchmarkTest"].order


async def test_permissions_of_the_broker_bound_those_of_its_topics(
    name_server: NameServerStub, tmp_path: Path
) -> None:
    async with Registering(tmp_path, name_server.address, broker_permission=4) as broker:
        _, body = name_server.registered.get_nowait()
        table = body.topic_config_serialize_wrapper.topic_config_table
        assert table["BenchmarkTest"].perm == 4
        assert broker.topics.table["BenchmarkTest"].perm == 6


async def test_compressed_registration(name_server: NameServerStub, tmp_path: Path) -> None:
    async with Registering(tmp_path, name_server.address, compressed_register=True) as broker:
        header, body = name_server.registered.get_nowait()
        assert header.compressed
        table = body.topic_config_serialize_wrapper.topic_config_table
        assert table["BenchmarkTest"] == broker.topics.table["BenchmarkTest"]


async def test_without_name_servers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Registering(tmp_path) as broker:
        broker.topics.create_if_absent("T", 4)
        await broker.registration.settled()
    assert "namesrvAddr is not set" in caplog.text
