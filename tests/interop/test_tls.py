"""The official Java client and mqadmin against our servers over TLS.

The official Go client of the remoting protocol has no TLS. Our client against official servers with
TLS is in test_our_producer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority, Certificate
from tests.interop.harness import ours
from tests.interop.harness.cluster import Cluster
from tests.interop.harness.official import JavaError, JavaPeer


@pytest.fixture(scope="module")
def authority(directory: Path) -> Authority:
    return Authority(directory / "authority")


@pytest.fixture(scope="module")
def member(authority: Authority) -> Certificate:
    """What servers and clients of the cluster show."""
    made = authority.sign("member")
    made.key.chmod(0o600)
    return made


@pytest.fixture(scope="module")
def encrypted(directory: Path, authority: Authority, member: Certificate) -> Iterator[Cluster]:
    """Our servers; they take only TLS, and only clients with a certificate of the authority."""
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": member.chain,
        "tls.server.keyPath": member.key,
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": True,
        "tls.server.trustCertPath": authority.certificate.chain,
        "tls.enable": True,
        "tls.client.trustCertPath": authority.certificate.chain,
        "tls.client.certPath": member.chain,
        "tls.client.keyPath": member.key,
    }
    home = directory / "encrypted"
    namesrv = ours.start_name_server(home, settings=settings)
    broker = ours.start_broker(home, namesrv.address, settings=settings)
    yield Cluster("ours", namesrv, broker)
    broker.process.kill()
    namesrv.process.kill()


@pytest.fixture
def known(
    jars: Path, directory: Path, authority: Authority, member: Certificate
) -> Iterator[JavaPeer]:
    peer = JavaPeer(
        directory / "known",
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={authority.certificate.chain}",
        f"-Dtls.client.certPath={member.chain}",
        f"-Dtls.client.keyPath={member.key}",
    )
    yield peer
    peer.close()


def test_java_sends_and_receives(known: JavaPeer, encrypted: Cluster, topic: str) -> None:
    bodies = [f"{number}: {'large' * 700}" for number in range(40)]
    results = known(
        "send",
        namesrv=encrypted.address,
        group="PG",
        topic=topic,
        mode="sync",
        messages=[{"body": body} for body in bodies],
    )
    assert [result["status"] for result in results] == ["SEND_OK"] * len(bodies)
    answer = known("pull", namesrv=encrypted.address, group="CG", topics=[topic])
    assert sorted(message["body"] for message in answer["messages"]) == sorted(bodies)
    shown = known.mqadmin("topicStatus", "-t", topic, "-n", encrypted.address)
    assert "ours" in shown
    assert "CODE" not in shown


def test_java_without_tls_is_refused(java: JavaPeer, encrypted: Cluster, topic: str) -> None:
    with pytest.raises(JavaError):
        java(
            "send",
            namesrv=encrypted.address,
            group="PG",
            topic=topic,
            mode="sync",
            messages=[{"body": "x"}],
        )
    assert "does not speak TLS" in encrypted.namesrv.process.tail()
