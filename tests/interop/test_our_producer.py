"""Our producer's transactions, requests, recalls and traces at brokers of both makes; signed and
encrypted requests at the official one."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.credentials import Credentials
from pocketmq.client.errors import (
    NoNameServer,
    NoPermission,
    RemotingError,
    RequestTimeout,
    SendError,
)
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.transaction import TransactionProducer, TransactionState
from pocketmq.client.send_result import SendStatus
from pocketmq.message.message import Message, MessageExt
from tests.cli.running import environment
from tests.interop.harness import official, ours
from tests.interop.harness.certificate import Certificate, make_certificate
from tests.interop.harness.cluster import Cluster
from tests.interop.harness.official import JavaPeer, Unavailable

START = {"official": official.start_broker, "ours": ours.start_broker}
SETTINGS = {
    "recallMessageEnable": True,
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 1000,
    "traceTopicEnable": True,
    "maxMessageSize": 65_536,
}


@pytest.fixture(scope="module", params=["official", "ours"])
def keen(request: pytest.FixtureRequest, directory: Path) -> Iterator[Cluster]:
    """A broker of each make that checks transactions soon and allows recalls."""
    if request.param == "official":
        request.getfixturevalue("jars")
    home = directory / f"keen-{request.param}"
    namesrv = ours.start_name_server(home)
    broker = START[request.param](home, namesrv.address, name="keen", settings=SETTINGS)
    yield Cluster(request.param, namesrv, broker)
    broker.process.kill()
    namesrv.process.kill()


async def receive(consumer: PullConsumer, count: int, timeout: float = 40.0) -> list[MessageExt]:
    """That many messages."""
    got: list[MessageExt] = []
    async with asyncio.timeout(timeout):
        while len(got) < count:
            got += await consumer.poll(max_messages=count - len(got), timeout=1.0)
    return got


@asynccontextmanager
async def reader(cluster: Cluster, topic: str, **options: Any) -> AsyncIterator[PullConsumer]:
    """A consumer of a topic that exists, from its beginning."""
    async with PullConsumer(
        f"reader_{topic}", namesrv=cluster.address, start="begin", **options
    ) as consumer:
        await consumer.assign(topic)
        yield consumer


async def test_sends_of_one_moment(keen: Cluster, topic: str) -> None:
    """Also those that are too large together for this broker, which takes each of them."""
    bodies = [b"%d" % number for number in range(100)]
    large = [b"%d" % number * 1000 for number in range(100, 140)]
    async with Producer("moment", namesrv=keen.address, timeout=30.0) as producer:
        await producer.send(Message(topic, b"first"))
        sent = await asyncio.gather(*(producer.send(Message(topic, body)) for body in bodies))
        sent += await asyncio.gather(*(producer.send(Message(topic, body)) for body in large))
    async with reader(keen, topic) as consumer:
        got = await receive(consumer, 141)
    found = {(message.queue_id, message.queue_offset): message for message in got}
    for body, result in zip(bodies + large, sent, strict=True):
        message = found[result.queue.queue_id, result.queue_offset]
        assert (message.body, message.msg_id) == (body, result.msg_id)
        assert message.offset_msg_id == result.offset_msg_id


async def test_transactions(keen: Cluster, topic: str) -> None:
    checked: dict[bytes, int] = {}

    async def check(message: MessageExt) -> TransactionState:
        assert message.topic == topic
        checked[message.body] = checked.get(message.body, 0) + 1
        if message.body == b"unknown, committed":
            # Only the second check finds it.
            return TransactionState(8 if checked[message.body] > 1 else 0)
        return TransactionState.ROLLBACK

    def fail() -> None:
        raise ZeroDivisionError

    async with TransactionProducer(f"PG_{topic}", check=check, namesrv=keen.address) as producer:
        await producer.send(Message(topic, b"makes the topic"))
        async with reader(keen, topic) as consumer:
            await receive(consumer, 1)
            async with producer.transaction(Message(topic, b"committed", keys=["k"])) as begun:
                assert begun.half.status is SendStatus.SEND_OK
                assert await consumer.poll(timeout=0.3) == []
            [message] = await receive(consumer, 1)
            assert (message.body, message.keys, message.msg_id) == (
                b"committed", ("k",), begun.half.msg_id,
            )  # fmt: skip
            assert message.queue_id == begun.half.queue.queue_id
            async with producer.transaction(Message(topic, b"rolled back")) as begun:
                begun.rollback()
            async with producer.transaction(Message(topic, b"unknown, rolled back")) as begun:
                begun.unknown()
            with pytest.raises(ZeroDivisionError):
                await producer.send_in_transaction(
                    Message(topic, b"unknown, committed"),
                    lambda message, half: fail(),
                )
            [message] = await receive(consumer, 1)
            assert message.body == b"unknown, committed"
    assert checked[b"unknown, committed"] == 2
    assert checked[b"unknown, rolled back"] >= 1


async def test_requests_are_answered(keen: Cluster, topic: str) -> None:
    async with (
        Producer(f"Ask_{topic}", namesrv=keen.address) as asking,
        Producer(f"Answer_{topic}", namesrv=keen.address) as answering,
    ):
        await asking.send(Message(topic, b"makes the topic"))
        async with reader(keen, topic) as consumer:
            await receive(consumer, 1)

            async def serve() -> None:
                for request in await receive(consumer, 4):
                    result = await answering.reply(request, b"reply to " + request.body * 3000)
                    assert result.status is SendStatus.SEND_OK

            serving = asyncio.create_task(serve())
            replies = await asyncio.gather(
                *(asking.request(Message(topic, b"%d" % n), timeout=20.0) for n in range(4))
            )
            await serving
        assert [reply.body for reply in replies] == [
            b"reply to " + b"%d" % n * 3000 for n in range(4)
        ]
        assert {reply.topic for reply in replies} == {"DefaultCluster_REPLY_TOPIC"}
        with pytest.raises(RequestTimeout):
            await asking.request(Message(topic, b"nobody answers"), timeout=0.3)


async def test_timed_messages_and_recalls(keen: Cluster, topic: str) -> None:
    async with Producer("PG", namesrv=keen.address) as producer:
        await producer.send(Message(topic, b"makes the topic"))
        at = int(time.time() * 1000) + 4000
        recalled = await producer.send(Message(topic, b"recalled", deliver_at=at))
        await producer.send(Message(topic, b"at", deliver_at=at))
        asked = int(time.time() * 1000)
        await producer.send(Message(topic, b"in", delay=3))
        await producer.send(Message(topic, b"level", delay_level=1))
        assert recalled.recall_handle is not None
        assert await producer.recall(topic, recalled.recall_handle) == recalled.msg_id
        late = await producer.send(Message(topic, b"past", deliver_at=int(time.time() * 1000) - 1))
        assert late.status is SendStatus.SEND_OK
        async with reader(keen, topic) as consumer:
            got = await receive(consumer, 5)
    assert sorted(message.body for message in got) == sorted(
        [b"makes the topic", b"level", b"in", b"at", b"past"]
    )
    stored = {message.body: message.store_timestamp for message in got}
    assert stored[b"at"] >= at
    assert stored[b"in"] >= asked + 3000
    assert got[-1].store_timestamp >= at - 1000


async def test_lingered_messages_keep_the_order_of_their_keys(keen: Cluster, topic: str) -> None:
    async with Producer(
        "PG", namesrv=keen.address, linger_ms=2, batch_bytes=4096, queue_selector="consistent"
    ) as producer:
        # Until the topic's own route is known, its queues are those of the template.
        async with Producer("PG", namesrv=keen.address) as another:
            await another.send(Message(topic, b"makes the topic"))
        for n in range(500):
            await producer.post(Message(topic, b"%d %d" % (n % 7, n)), key=n % 7)
    async with reader(keen, topic) as consumer:
        got = [message.body for message in await receive(consumer, 501)]
    for key in range(7):
        mine = [int(body.split()[1]) for body in got if body.startswith(b"%d " % key)]
        assert mine == list(range(key, 500, 7))


async def test_mqadmin_finds_the_trace(keen: Cluster, java: JavaPeer, topic: str) -> None:
    async with Producer("Traced", namesrv=keen.address, trace=True) as producer:
        result = await producer.send(Message(topic, b"x", tags="t", keys=["key1"]))

    def look() -> str:
        return java.mqadmin("queryMsgTraceById", "-n", keen.address, "-i", result.msg_id)

    output = ""
    async with asyncio.timeout(30):
        while "Traced" not in output:
            output = await asyncio.to_thread(look)
    assert "Pub" in output
    assert "success" in output


async def test_java_reads_from_our_namespace(keen: Cluster, java: JavaPeer, topic: str) -> None:
    async with Producer("PG", namesrv=keen.address, namespace="ns") as producer:
        result = await producer.send(Message(topic, b"x"))
        assert result.queue.topic == topic
    answer = await asyncio.to_thread(
        java, "pull", namesrv=keen.address, group="reader", topics=[f"ns%{topic}"]
    )
    [message] = answer["messages"]
    assert message["properties"]["INSTANCE_ID"] == "ns"


@pytest.fixture(scope="module")
def certificate(directory: Path) -> Certificate:
    try:
        return make_certificate(directory)
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def secured(jars: Path, directory: Path, certificate: Certificate) -> Iterator[Cluster]:
    """Official servers that know our certificate, and a broker that knows one user."""
    home = directory / "secured"
    user = {"accessKey": "admin", "secretKey": "12345678"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "JAVA_TOOL_OPTIONS",
            "-Dtls.test.mode.enable=false -Dtls.server.mode=permissive "
            f"-Dtls.server.keyPath={certificate.key} -Dtls.server.certPath={certificate.chain}",
        )
        namesrv = official.start_name_server(home)
        broker = official.start_broker(
            home,
            namesrv.address,
            name="secured",
            settings={
                "authenticationEnabled": True,
                "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider."
                "DefaultAuthenticationProvider",
                "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication."
                "provider.LocalAuthenticationMetadataProvider",
                "initAuthenticationUser": json.dumps(
                    {"username": user["accessKey"], "password": user["secretKey"]}
                ),
                "innerClientAuthenticationCredentials": json.dumps(user),
            },
        )
    yield Cluster("official", namesrv, broker)
    broker.process.kill()
    namesrv.process.kill()


@pytest.fixture
def trusting(certificate: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate.chain))


@pytest.mark.parametrize("vip_channel", [False, True])
async def test_signed_requests_over_tls(
    secured: Cluster, trusting: ssl.SSLContext, topic: str, vip_channel: bool
) -> None:
    options: dict[str, Any] = {
        "credentials": Credentials("admin", "12345678"),
        "tls": trusting,
    }
    async with Producer(
        "PG", namesrv=secured.address, vip_channel=vip_channel, **options
    ) as producer:
        await producer.send(Message(topic, b"single", properties={"a": "ä 消息"}))
        await producer.send(Message(topic, b"large" * 2000))
        await producer.send_batch([Message(topic, b"b1"), Message(topic, b"b2")])
        await producer.send_oneway(Message(topic, b"oneway"))
    async with reader(secured, topic, **options) as consumer:
        got = await receive(consumer, 5)
    assert {message.body for message in got} == {
        b"single", b"large" * 2000, b"b1", b"b2", b"oneway",
    }  # fmt: skip


@pytest.mark.parametrize(
    "credentials", [None, Credentials("admin", "wrong"), Credentials("x", "y")]
)
async def test_the_broker_refuses_others(
    secured: Cluster, topic: str, credentials: Credentials | None
) -> None:
    async with Producer("PG", namesrv=secured.address, credentials=credentials) as producer:
        with pytest.raises(SendError) as caught:
            await producer.send(Message(topic, b"x"))
    assert isinstance(caught.value.__cause__, NoPermission | RemotingError)
    assert caught.value.code in (1, 16)


async def test_a_server_that_is_not_trusted_is_not_used(secured: Cluster, topic: str) -> None:
    async with Producer("PG", namesrv=secured.address, tls=True) as producer:
        with pytest.raises(NoNameServer, match="certificate"):
            await producer.send(Message(topic, b"x"))


def test_the_secure_example(secured: Cluster, certificate: Certificate, tmp_path: Path) -> None:
    text = (official.PROJECT / "examples" / "secure.py").read_text()
    program = tmp_path / "secure.py"
    program.write_text(text.replace("127.0.0.1:9876", secured.address))
    done = subprocess.run(
        [sys.executable, program, certificate.chain, "admin", "12345678"],
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "SEND_OK orders\n"
