"""Certificates, users and grants that are replaced while clients work: nothing that was
acknowledged is lost, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq import ConsumedMessage, Credentials, Message, Producer, PushConsumer
from pocketmq.auth.policies import Acl, Action, Decision, Entry, Resource
from pocketmq.auth.store import AuthTables
from pocketmq.auth.users import User, UserStatus
from pocketmq.embedded import EmbeddedServer
from tests.certificates import Authority, Certificate
from tests.proxy.conftest import grpc_port
from tests.security.conftest import PROPERTIES

OWNER = User("owner", "owner-password-1")
OTHER = User("other", "other-password-1")


class Traffic:
    """A producer that sends to a topic without end, and a push consumer of it.

    Attributes:
        acknowledged, consumed: bodies.
        refused: why sends failed.
    """

    def __init__(
        self, server: EmbeddedServer, user: User, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self.topic = f"of-{user.username}"
        self.acknowledged: list[bytes] = []
        self.consumed: set[bytes] = set()
        self.refused: list[Exception] = []
        self._options: dict[str, Any] = {
            "namesrv": server.namesrv,
            "credentials": Credentials(user.username, user.password),
            "tls": tls or False,
        }
        self._changed = asyncio.Condition()

    async def _handle(self, body: bytes) -> None:
        async with self._changed:
            self.consumed.add(body)
            self._changed.notify_all()

    async def _send(self, producer: Producer) -> None:
        for number in range(1 << 30):
            body = b"%d" % number
            try:
                await producer.send(Message(self.topic, body))
            except Exception as error:
                self.refused.append(error)
            else:
                self.acknowledged.append(body)
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(0.01)

    async def until_refused(self, count: int = 1) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: len(self.refused) >= count)

    async def more(self, count: int = 20) -> None:
        """Wait until so many more messages are acknowledged, and all of them consumed."""
        aim = len(self.acknowledged) + count

        def done() -> bool:
            return len(self.acknowledged) >= aim and self.consumed.issuperset(
                self.acknowledged[:aim]
            )

        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(done)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Traffic]:
        async def handle(message: ConsumedMessage) -> None:
            await self._handle(message.body)

        async with (
            Producer(f"P-{self.topic}", retries=0, **self._options) as producer,
            PushConsumer(
                f"G-{self.topic}",
                {self.topic: "*"},
                handler=handle,
                start="begin",
                **self._options,
            ),
        ):
            sending = asyncio.create_task(self._send(producer))
            try:
                yield self
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)


def tables(server: EmbeddedServer) -> AuthTables:
    assert server.broker.auth is not None
    return server.broker.auth.tables


def grant(server: EmbeddedServer, user: User, *actions: Action) -> None:
    """Give a user these actions on the topic and group of their traffic, and nothing else."""
    topic = f"of-{user.username}"
    names = (f"Topic:{topic}", f"Group:G-{topic}", f"Topic:%RETRY%G-{topic}")
    entries = (Entry(Resource.parse(name), frozenset(actions), Decision.ALLOW) for name in names)
    tables(server).put_acl(user.username, Acl(custom=tuple(entries)))


@contextlib.asynccontextmanager
async def serving(**properties: str) -> AsyncIterator[EmbeddedServer]:
    """A server with the topics of two users."""
    async with EmbeddedServer(properties=PROPERTIES | properties, grpc_port=0) as server:
        for user in (OWNER, OTHER):
            server.broker.tables.topics.create_if_absent(f"of-{user.username}", 2)
            tables(server).put_user(user)
            grant(server, user, Action.PUB, Action.SUB)
        yield server


@pytest.mark.parametrize("how", ["password", "disabled", "deleted", "grants"])
async def test_a_user_who_is_shut_out_while_working_gets_no_more_and_nobody_else_notices(
    how: str,
) -> None:
    async with serving() as server:
        owner, other = Traffic(server, OWNER), Traffic(server, OTHER)
        async with owner.running(), other.running():
            await asyncio.gather(owner.more(), other.more())
            match how:
                case "password":
                    tables(server).put_user(User(OTHER.username, "another-password-1"))
                case "disabled":
                    status = UserStatus.DISABLE
                    tables(server).put_user(
                        User(OTHER.username, OTHER.password, user_status=status)
                    )
                case "deleted":
                    tables(server).delete_user(OTHER.username)
                case "grants":
                    grant(server, OTHER, Action.GET)
            acknowledged = len(other.acknowledged)
            await other.until_refused(5)
            # One send may have been on its way.
            assert len(other.acknowledged) <= acknowledged + 1
            # A pull for each queue was held, and may still be answered once.
            held = {b"held-%d" % number for number in range(2)}
            late = [b"late-%d" % number for number in range(10)]
            root = Credentials("root", "root-password-1")
            async with Producer("P", namesrv=server.namesrv, credentials=root) as producer:
                queues = await producer.queues(other.topic)
                for queue, body in zip(queues, sorted(held), strict=True):
                    await producer.send(Message(other.topic, body), queue=queue)
                await owner.more()
                for body in late:
                    await producer.send(Message(other.topic, body))
            await owner.more()
            assert not other.consumed.intersection(late)
            assert not owner.refused
            tables(server).put_user(OTHER)
            grant(server, OTHER, Action.PUB, Action.SUB)
            await asyncio.gather(owner.more(), other.more())
            assert not owner.refused
        assert owner.consumed.issuperset(owner.acknowledged[:-1])


def shown_by(port: int) -> str:
    """Return the certificate that a server shows to a new connection."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=30)


async def until_shown(certificate: Certificate, *ports: int) -> None:
    wanted = ssl.PEM_cert_to_DER_cert(certificate.chain.read_text())
    async with asyncio.timeout(60):
        for port in ports:
            # Servers look at their files once a second.
            while ssl.PEM_cert_to_DER_cert(await asyncio.to_thread(shown_by, port)) != wanted:
                pass


async def test_certificates_are_replaced_under_load(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = Authority(tmp_path / "before"), Authority(tmp_path / "after")
    files = Certificate(tmp_path / "chain.pem", tmp_path / "key.pem")

    def install(certificate: Certificate) -> None:
        for source, file in ((certificate.key, files.key), (certificate.chain, files.chain)):
            shutil.copy(source, tmp_path / "draft")
            (tmp_path / "draft").replace(file)

    # Clients trust both authorities, as they do while one replaces the other.
    trusted = ssl.create_default_context(cafile=str(before.certificate.chain))
    trusted.load_verify_locations(after.certificate.chain)
    first, second, third = before.sign("first"), before.sign("second"), after.sign("third")
    install(first)
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(files.chain),
        "tls.server.keyPath": str(files.key),
    }
    async with serving(**settings) as server:
        ports = (
            int(server.namesrv.rpartition(":")[2]),
            int(server.broker.address.rpartition(":")[2]),
            grpc_port(server),
        )
        owner = Traffic(server, OWNER, tls=trusted)
        async with owner.running():
            await owner.more()
            for certificate in (second, third):
                install(certificate)
                await until_shown(certificate, *ports)
                await owner.more()
                newcomer = Traffic(server, OTHER, tls=trusted)
                async with newcomer.running():
                    await newcomer.more()
                assert not newcomer.refused
            with caplog.at_level(logging.ERROR):
                files.chain.write_text("no certificate")
                while caplog.text.count("old certificate") < len(ports):
                    await until_shown(third, *ports)
                await until_shown(third, *ports)
            errors = [line for line in caplog.messages if "old certificate" in line]
            assert len(errors) == len(ports)
            await owner.more()
            assert not owner.refused
        assert owner.consumed.issuperset(owner.acknowledged[:-1])
