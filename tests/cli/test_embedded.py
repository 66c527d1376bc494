"""A name server and a broker in the test's own process."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.message import Message
from pocketmq.remoting.serving.listening import PortInUse
from pocketmq.remoting.settings.properties_file import ConfigError
from pocketmq.store.errors import StoreLocked

Stores = Callable[[], list[str]]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """The temporary stores that are there."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return lambda: [str(path) for path in directory.iterdir()]


async def bodies(server: EmbeddedServer, topic: str) -> list[bytes]:
    async with PullConsumer("readers", namesrv=server.namesrv, start="begin") as consumer:
        await consumer.assign(topic)
        return [message.body for message in await consumer.poll(timeout=10.0)]


async def test_started_means_routable(temporary: Stores) -> None:
    async with EmbeddedServer() as server:
        async with Producer("tests", namesrv=server.namesrv) as producer:
            result = await producer.send(Message("hello", b"world"))
            assert result.queue.broker_name == "broker-a"
        assert await bodies(server, "hello") == [b"world"]
        assert temporary() == [str(server.store)]
    assert temporary() == []


async def test_a_store_that_is_given_is_kept_between_starts(tmp_path: Path) -> None:
    server = EmbeddedServer(store=tmp_path / "store")
    for expected in ([b"one"], [b"two"]):
        await server.start()
        async with Producer("tests", namesrv=server.namesrv) as producer:
            await producer.send(Message("kept", expected[0]))
        # The group stands where it stopped, so each start reads what is new.
        assert await bodies(server, "kept") == expected
        await server.stop()


async def test_start_and_stop_twice() -> None:
    server = EmbeddedServer()
    await server.start()
    namesrv = server.namesrv
    await server.start()
    assert server.namesrv == namesrv
    await server.stop()
    await server.stop()


async def test_properties_by_their_official_names(tmp_path: Path) -> None:
    server = EmbeddedServer(
        store=tmp_path / "store",
        properties={"brokerName": "till", "mappedFileSizeCommitLog": "65536"},
    )
    async with server, Producer("tests", namesrv=server.namesrv) as producer:
        result = await producer.send(Message("named", b"x"))
        assert result.queue.broker_name == "till"
    first_file = tmp_path / "store" / "commitlog" / "00000000000000000000"
    assert first_file.stat().st_size == 65536


async def test_properties_of_its_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = EmbeddedServer(properties={"listenPort": str(port), "brokerIP1": "localhost"})
    async with server, Producer("tests", namesrv=server.namesrv) as producer:
        assert server.broker.address == f"localhost:{port}"
        await producer.send(Message("hello", b"world"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("flushDiskType", "SOMETIMES"),
        ("storePathRootDir", "/elsewhere"),
        ("namesrvAddr", "127.0.0.1:9876"),
    ],
)
def test_a_bad_property_is_named_at_once(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        EmbeddedServer(properties={key: value})


async def test_advertised_host(tmp_path: Path) -> None:
    async with EmbeddedServer(advertise="localhost") as server:
        assert server.broker.address.startswith("localhost:")
        async with Producer("tests", namesrv=server.namesrv) as producer:
            await producer.send(Message("hello", b"world"))


@pytest.mark.parametrize("part", ["namesrv_port", "listen_port"])
async def test_a_taken_port_leaves_nothing_behind(part: str, temporary: Stores) -> None:
    async with EmbeddedServer() as first:
        taken = first.name_server.port if part == "namesrv_port" else first.broker.port
        second = EmbeddedServer(**{part: taken})  # type: ignore[arg-type]
        with pytest.raises(PortInUse):
            await second.start()
        assert temporary() == [str(first.store)]
    # What the second had started is stopped: its name server's port is free again.
    async with EmbeddedServer(namesrv_port=second.name_server.port):
        pass


async def test_a_locked_store(tmp_path: Path) -> None:
    async with EmbeddedServer(store=tmp_path / "store"):
        with pytest.raises(StoreLocked):
            await EmbeddedServer(store=tmp_path / "store").start()
