"""Certificates of replicas and of cluster proxies that are replaced, and one that has expired."""

from __future__ import annotations

import logging
import shutil
import ssl
from pathlib import Path

import grpc
import pytest

from pocketmq import Message, Producer
from pocketmq.cluster_proxy import ClusterProxy
from pocketmq.embedded import EmbeddedServer
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.tls.tls_config import TlsConfig, TlsMode
from tests.broker.replication.pair import classic, running
from tests.certificates import Authority, Certificate
from tests.proxy.grpc_client import GrpcClient, message
from tests.security.test_rotation import until_shown


class Authorities:
    """Two of them, with what both have signed.

    Attributes:
        trusted: PEM file of both, as clients have it while one replaces the other.
    """

    def __init__(self, directory: Path) -> None:
        before, after = Authority(directory / "before"), Authority(directory / "after")
        self.before, self.after = before.sign("before"), after.sign("after")
        self.expired = after.sign("expired", days=-1)
        both = (before.certificate.chain, after.certificate.chain)
        self.trusted = directory / "trusted.pem"
        self.trusted.write_text("".join(chain.read_text() for chain in both))

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.trusted))


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("authorities"))


class Installed:
    """The certificate of a server, in files that are replaced.

    Attributes:
        tls: the settings of the server, which takes TLS only, also to others.
    """

    def __init__(self, directory: Path, authorities: Authorities, name: str = "server") -> None:
        self._directory = directory
        self._files = Certificate(directory / f"{name}.pem", directory / f"{name}.key.pem")
        self.put(authorities.before)
        self.tls = TlsConfig(
            mode=TlsMode.ENFORCING,
            cert_path=str(self._files.chain),
            key_path=str(self._files.key),
            enable=True,
            client_trust_cert_path=str(authorities.trusted),
        )

    def put(self, certificate: Certificate) -> None:
        for source, file in (
            (certificate.key, self._files.key),
            (certificate.chain, self._files.chain),
        ):
            draft = self._directory / "draft"
            shutil.copy(source, draft)
            draft.replace(file)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def test_replicas_go_on_when_the_certificates_of_both_are_replaced(
    authorities: Authorities, tmp_path: Path
) -> None:
    installed = Installed(tmp_path, authorities)
    async with running(tmp_path, installed.tls) as pair:
        await pair.start(0, in_sync_replicas=2, min_in_sync_replicas=2)
        await pair.start(1)
        await pair.connected()
        pair.master.tables.topics.create_if_absent("T", 1)
        async with Producer("P", namesrv=pair.namesrv, tls=authorities.context()) as producer:
            await producer.send(Message("T", b"before"))
            installed.put(authorities.after)
            ports = (port_of(each.address) for each in pair.brokers.values())
            await until_shown(authorities.after, port_of(pair.namesrv), *ports)
            # Each send waits for the slave.
            await producer.send(Message("T", b"after"))
            metadata = classic(pair.slave).metadata
            assert metadata is not None
            pair.master.tables.topics.create_if_absent("new", 1)
            await metadata.copy_all()
            assert pair.slave.tables.topics.get("new") is not None
            # And so it is with a slave whose connections are all new.
            await pair.stop(1)
            await pair.start(1)
            await pair.connected()
            await producer.send(Message("T", b"restarted"))
        await pair.copied()
        for broker in (pair.master, pair.slave):
            assert broker.store.max_offset("T", 0) == 3


async def test_a_cluster_proxy_goes_on_when_its_certificate_and_that_of_its_brokers_are_replaced(
    authorities: Authorities, tmp_path: Path
) -> None:
    servers = Installed(tmp_path, authorities)
    own = Installed(tmp_path, authorities, "proxy")
    properties = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": servers.tls.cert_path,
        "tls.server.keyPath": servers.tls.key_path,
    }
    credentials = grpc.ssl_channel_credentials(authorities.trusted.read_bytes())

    async def send(client: GrpcClient) -> None:
        request = pb.SendMessageRequest(messages=[message("T")])
        assert (await client.call("SendMessage", request)).status.code == pb.OK

    async with EmbeddedServer(properties=properties) as server:
        server.broker.tables.topics.create_if_absent("T", 1)
        config = ProxyConfig(
            grpc_server_port=0, namesrv_addr=server.namesrv, enable_topic_message_type_check=False
        )
        async with (
            ClusterProxy(config, tls=own.tls) as proxy,
            GrpcClient(proxy.grpc_port, credentials=credentials) as old,
        ):
            await send(old)
            servers.put(authorities.after)
            own.put(authorities.after)
            ports = (port_of(server.namesrv), port_of(server.broker.address), proxy.grpc_port)
            await until_shown(authorities.after, *ports)
            await send(old)
            async with GrpcClient(proxy.grpc_port, credentials=credentials) as new:
                await send(new)
            # A proxy whose connections to the brokers are all new.
            async with (
                ClusterProxy(config, tls=own.tls) as another,
                GrpcClient(another.grpc_port, credentials=credentials) as new,
            ):
                await send(new)
        assert sum(server.broker.store.max_offset("T", queue) for queue in range(1)) == 4


async def test_an_expired_certificate_refuses_new_connections_only(
    authorities: Authorities, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    installed = Installed(tmp_path, authorities)
    properties = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": installed.tls.cert_path,
        "tls.server.keyPath": installed.tls.key_path,
    }
    async with EmbeddedServer(properties=properties) as server:
        server.broker.tables.topics.create_if_absent("T", 1)
        trusted = authorities.context()
        ports = (port_of(server.namesrv), port_of(server.broker.address))
        async with Producer("P", namesrv=server.namesrv, tls=trusted) as producer:
            await producer.send(Message("T", b"before"))
            with caplog.at_level(logging.ERROR):
                installed.put(authorities.expired)
                await until_shown(authorities.expired, *ports)
                for _ in range(3):
                    for address in (server.namesrv, server.broker.address):
                        with pytest.raises(RemotingError, match="certificate has expired"):
                            await Connection.open(address, tls=trusted)
            errors = [each for each in caplog.messages if "certificate" in each]
            assert len(errors) == len(ports)
            assert all(f"{installed.tls.cert_path} expired at " in each for each in errors)
            await producer.send(Message("T", b"after"))
        installed.put(authorities.after)
        await until_shown(authorities.after, *ports)
        await (await Connection.open(server.broker.address, tls=trusted)).close()
