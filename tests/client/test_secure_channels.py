"""TLS and the VIP channel: what is between client and servers, not what is said."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import NoNameServer, RemotingError, SendError
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.server import RemotingServer
from pocketmq.remoting.tls.tls_config import TlsConfig, load_tls_config
from pocketmq.remoting.tls.tls_context import ServerTls
from pocketmq.testing import RocketMQ
from tests.client.fake_cluster import FakeCluster
from tests.encrypting import Encrypting
from tests.interop.harness.certificate import Certificate, make_certificate
from tests.interop.harness.official import Unavailable


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    try:
        return make_certificate(tmp_path_factory.mktemp("certificate"))
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture
async def encrypted(
    cluster: FakeCluster, certificate: Certificate
) -> AsyncIterator[tuple[Encrypting, Encrypting]]:
    """The name server and broker "a" behind TLS; topic "T" is on that broker."""
    servers = (
        Encrypting(certificate, ("127.0.0.1", cluster.name_server.port)),
        Encrypting(certificate, ("127.0.0.1", cluster["a"].port)),
    )
    for server in servers:
        await server.start()
    cluster.put("T", "a")
    cluster.name_server.routes["T"].broker_datas[0].broker_addrs[0] = servers[1].address
    yield servers
    for server in servers:
        await server.stop()


async def test_all_connections_are_encrypted(
    cluster: FakeCluster, encrypted: tuple[Encrypting, Encrypting], certificate: Certificate
) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate.chain))
    async with Producer("PG", namesrv=encrypted[0].address, tls=trusting) as p:
        result = await p.send(Message("T", b"x" * 200_000))
        await p.send_batch([Message("T", b"x")] * 3)
    assert result.queue.broker_name == "a"
    assert [server.connections for server in encrypted] == [1, 1]


async def test_a_stranger_is_not_trusted(encrypted: tuple[Encrypting, Encrypting]) -> None:
    async with Producer("PG", namesrv=encrypted[0].address, tls=True, timeout=1.0) as p:
        with pytest.raises(NoNameServer, match="certificate verify failed"):
            await p.send(Message("T", b"x"))


@pytest.mark.parametrize("kind", [Producer, PullConsumer])
async def test_a_certificate_that_is_not_trusted_is_not_tried_again(
    encrypted: tuple[Encrypting, Encrypting], kind: Any
) -> None:
    """However long the client may wait for servers that are away."""
    client = kind("PG", namesrv=encrypted[0].address, tls=True, start_timeout=600)
    with pytest.raises(NoNameServer, match="certificate verify failed") as raised:
        await client.start()
    assert not raised.value.retriable
    async with Producer("PG", namesrv=encrypted[0].address, tls=True, timeout=600) as p:
        with pytest.raises(NoNameServer, match="certificate verify failed"):
            await p.send(Message("T", b"x"))


async def test_a_server_with_tls_and_a_client_without(
    encrypted: tuple[Encrypting, Encrypting],
) -> None:
    async with Producer("PG", namesrv=encrypted[0].address, timeout=1.0) as p:
        with pytest.raises(NoNameServer, match="it may expect TLS"):
            await p.send(Message("T", b"x"))


@pytest.fixture
async def demanding(certificate: Certificate) -> AsyncIterator[RemotingServer]:
    """A server of ours that takes encrypted connections only."""
    server = RemotingServer(Dispatcher(), tls=ServerTls(enforced(certificate)))
    await server.start()
    yield server
    await server.stop()


def enforced(certificate: Certificate) -> TlsConfig:
    return load_tls_config(
        f"tls.server.mode=enforcing\ntls.server.certPath={certificate.chain}\n"
        f"tls.server.keyPath={certificate.key}\n"
    )[0]


async def test_a_client_without_tls_is_told_to_switch_it_on_and_does_not_try_again(
    cluster: FakeCluster, demanding: RemotingServer, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"127.0.0.1:{demanding.port}"
    async with Producer("PG", namesrv=address, timeout=600) as p:
        with pytest.raises(NoNameServer, match="the server expects TLS, so switch it on") as raised:
            await p.send(Message("T", b"x"))
        assert not raised.value.retriable
    assert sum("does not speak TLS" in record.message for record in caplog.records) <= 1
    cluster.put("T", "a")
    cluster.name_server.routes["T"].broker_datas[0].broker_addrs[0] = address
    async with Producer("PG", namesrv=cluster.namesrv, timeout=600) as p:
        with pytest.raises(SendError, match="the server expects TLS, so switch it on"):
            await p.send(Message("T", b"x"))


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"EFATAL"])
async def test_the_port_of_another_protocol_is_said_to_be_one_and_not_tried_again(
    answer: bytes,
) -> None:
    """It was said to have sent nothing, and to expect TLS perhaps."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        async with Producer("PG", namesrv=f"127.0.0.1:{port}", timeout=600) as p:
            with pytest.raises(NoNameServer, match="does not speak RocketMQ's protocol") as raised:
                await p.send(Message("T", b"x"))
            assert not raised.value.retriable


async def test_a_client_with_tls_is_told_that_the_server_has_none_and_does_not_try_again(
    rocketmq: RocketMQ, cluster: FakeCluster
) -> None:
    options: Any = {"tls": True, "timeout": 600, "start_timeout": 600}
    producer = Producer("PG", namesrv=rocketmq.namesrv, **options)
    with pytest.raises(NoNameServer, match="the server does not speak TLS") as raised:
        await producer.start()
    assert not raised.value.retriable
    await producer.shutdown()


async def test_a_broker_in_place_of_a_name_server(rocketmq: RocketMQ) -> None:
    address = f"127.0.0.1:{rocketmq.broker.port}"
    async with Producer("PG", namesrv=address, timeout=600) as p:
        with pytest.raises(RemotingError, match="is not the address of a name server"):
            await p.send(Message("T", b"x"))


async def test_a_name_that_is_not_in_the_certificate(
    cluster: FakeCluster, encrypted: tuple[Encrypting, Encrypting], certificate: Certificate
) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate.chain))
    port = encrypted[1].address.rpartition(":")[2]
    cluster.name_server.routes["T"].broker_datas[0].broker_addrs[0] = f"localhost:{port}"
    producer = Producer("PG", namesrv=encrypted[0].address, tls=trusting, retries=0, timeout=1.0)
    async with producer as p:
        with pytest.raises(SendError, match="certificate verify failed"):
            await p.send(Message("T", b"x"))


async def test_a_server_without_tls(
    cluster: FakeCluster, certificate: Certificate, tmp_path: Path
) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate.chain))
    async with Producer("PG", namesrv=cluster.namesrv, tls=trusting, timeout=1.0) as p:
        with pytest.raises(NoNameServer, match="TLS"):
            await p.send(Message("T", b"x"))


async def test_the_vip_channel(cluster: FakeCluster) -> None:
    cluster.put("T", "a")
    # The broker's own port is said to be two above that which takes sends.
    addresses = cluster.name_server.routes["T"].broker_datas[0].broker_addrs
    addresses[0] = f"127.0.0.1:{cluster['a'].port + 2}"
    async with Producer("PG", namesrv=cluster.namesrv, vip_channel=True) as p:
        await p.send(Message("T", b"x"))
        await p.send_oneway(Message("T", b"x"))
        await p.send_batch([Message("T", b"x")] * 2)
    addresses[0] = f"[::1]:{cluster['a'].port + 2}"
    async with Producer(
        "PG", namesrv=cluster.namesrv, vip_channel=True, retries=0, timeout=1.0
    ) as p:
        with pytest.raises(SendError, match=rf"\[::1\]:{cluster['a'].port}\b"):
            await p.send(Message("T", b"x"))
