"""The official Java client and mqadmin against our servers over TLS.

The official Go client of the remoting protocol has no TLS. Our client against official servers with
TLS is in test_our_producer.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from tests.certificates import Authority, Certificate
from tests.interop.harness import official, ours
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


def settings_of(authority: Authority, member: Certificate) -> dict[str, object]:
    """Only TLS, and only clients with a certificate of the authority."""
    return {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": member.chain,
        "tls.server.keyPath": member.key,
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": authority.certificate.chain,
        "tls.enable": "true",
        "tls.client.trustCertPath": authority.certificate.chain,
        "tls.client.certPath": member.chain,
        "tls.client.keyPath": member.key,
    }


@pytest.fixture(scope="module")
def java_options(authority: Authority, member: Certificate) -> str:
    """The same settings for a process of Java."""
    settings: dict[str, object] = {
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        **settings_of(authority, member),
    }
    return " ".join(f"-D{name}={value!s}" for name, value in settings.items())


@pytest.fixture(scope="module")
def encrypted(directory: Path, authority: Authority, member: Certificate) -> Iterator[Cluster]:
    """Our servers."""
    settings = settings_of(authority, member)
    home = directory / "encrypted"
    namesrv = ours.start_name_server(home, settings=settings)
    broker = ours.start_broker(home, namesrv.address, settings=settings)
    yield Cluster("ours", namesrv, broker)
    broker.process.kill()
    namesrv.process.kill()


@pytest.fixture
def known(jars: Path, directory: Path, java_options: str) -> Iterator[JavaPeer]:
    peer = JavaPeer(directory / "known", *java_options.split())
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


async def test_our_broker_registers_with_an_official_name_server(
    jars: Path,
    directory: Path,
    java_options: str,
    authority: Authority,
    member: Certificate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", java_options)
    home = directory / "mixed"
    tls = ssl.create_default_context(cafile=str(authority.certificate.chain))
    tls.load_cert_chain(member.chain, member.key)
    with contextlib.ExitStack() as cleanup:
        namesrv = official.start_name_server(home)
        cleanup.callback(namesrv.process.kill)
        broker = ours.start_broker(
            home, namesrv.address, name="mine", settings=settings_of(authority, member)
        )
        cleanup.callback(broker.process.kill)
        async with Producer("PG", namesrv=namesrv.address, tls=tls) as producer:
            result = await producer.send(Message("T", b"x"))
        assert result.status.name == "SEND_OK"
        assert result.queue.broker_name == "mine"
