"""TLS on a server's port: which connections it takes, and what bad peers cost."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import shutil
import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import RemotingConnectError, RemotingError
from pocketmq.remoting.serving.server import ServerConnection
from pocketmq.remoting.settings.properties_file import ConfigError
from pocketmq.remoting.tls.tls_config import DEFAULT_FILE, TlsConfig, load_tls_config
from pocketmq.remoting.tls.tls_context import LOOK_INTERVAL, ServerTls, client_context, server_tls
from pocketmq.remoting.tls.tls_layer import (
    FREE_RECORDS,
    MOST_RECORDS_IN_TURN,
    MOST_RECORDS_WITHOUT_DATA,
    Handshakes,
    TlsLayer,
)
from tests.certificates import Authority, Certificate
from tests.remoting.peers import ECHO, LARGE, FakeTransport, RawPeer, echo_server, frame


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Certificate:
    return authority.sign("server")


def config(certificate: Certificate, mode: str = "enforcing", *more: str) -> TlsConfig:
    lines = [
        f"tls.server.mode={mode}",
        f"tls.server.certPath={certificate.chain}",
        f"tls.server.keyPath={certificate.key}",
        *more,
    ]
    loaded, warnings = load_tls_config("\n".join(lines))
    assert not warnings
    return loaded


def serving(certificate: Certificate, mode: str = "enforcing", *more: str) -> ServerTls:
    tls = server_tls(config(certificate, mode, *more))
    assert tls is not None
    return tls


def asking_for_certificates(trusted: Path, word: str) -> list[str]:
    return [
        f"tls.server.need.client.auth={word}",
        "tls.server.authClient=true",
        f"tls.server.trustCertPath={trusted}",
    ]


def trusting(authority: Authority, own: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate.chain))
    if own is not None:
        context.load_cert_chain(own.chain, own.key)
    return context


async def ask(port: int, tls: ssl.SSLContext | None, body: bytes = b"x") -> bytes:
    """Send one request on a new connection, and return the body of its answer."""
    connection = await Connection.open(f"127.0.0.1:{port}", tls=tls)
    try:
        return bytes((await connection.request(ECHO, body=body)).body)
    finally:
        await connection.close()


async def reason(caplog: pytest.LogCaptureFixture, peer: RawPeer) -> str:
    """Read until the server closes, and return its one log line."""
    with caplog.at_level(logging.WARNING):
        await peer.read_to_end()
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert not lines[0].exc_info
    await peer.close()
    return lines[0].getMessage()


async def until(holds: Callable[[], bool]) -> None:
    """Let the server go on until something holds that it tells nobody."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_a_permissive_server_takes_both(
    authority: Authority, certificate: Certificate
) -> None:
    async with echo_server(tls=serving(certificate, "permissive")) as (server, _):
        assert await ask(server.port, trusting(authority), b"encrypted") == b"encrypted"
        assert await ask(server.port, None, b"plain") == b"plain"


async def test_an_enforcing_server_refuses_plain_connections(
    authority: Authority, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    async with echo_server(tls=serving(certificate)) as (server, echo):
        assert await ask(server.port, trusting(authority)) == b"x"
        peer = await RawPeer.open(server.port)
        peer.send(frame(ECHO, 2))
        assert "does not speak TLS" in await reason(caplog, peer)
        assert len(echo.seen) == 1


async def test_a_server_without_tls_names_what_to_set(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with echo_server() as (server, _):
        with caplog.at_level(logging.WARNING), pytest.raises(RemotingError, match="TLS"):
            await ask(server.port, trusting(authority))
    assert "tls.server.certPath" in caplog.text


async def test_a_disabled_server_refuses_tls_in_spite_of_its_certificate(
    authority: Authority, certificate: Certificate
) -> None:
    async with echo_server(tls=server_tls(config(certificate, "disabled"))) as (server, _):
        with pytest.raises(RemotingError, match="TLS"):
            await ask(server.port, trusting(authority))
        assert await ask(server.port, None, b"plain") == b"plain"


async def test_large_frames_in_both_directions(
    authority: Authority, certificate: Certificate
) -> None:
    async with echo_server(tls=serving(certificate)) as (server, echo):
        echo.large = bytes(range(256)) * 40_000
        connection = await Connection.open(f"127.0.0.1:{server.port}", tls=trusting(authority))
        body = bytes(reversed(range(256))) * 20_000
        answers = await asyncio.gather(
            *(connection.request(ECHO, body=body) for _ in range(3)), connection.request(LARGE)
        )
        assert [bytes(answer.body) for answer in answers] == [body] * 3 + [echo.large]
        await connection.close()


async def test_a_hello_may_come_byte_by_byte(
    authority: Authority, certificate: Certificate
) -> None:
    async with echo_server(tls=serving(certificate)) as (server, _):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trusting(authority).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        peer = await RawPeer.open(server.port)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    peer.send(bytes([byte]))
                    await peer.writer.drain()
                    await asyncio.sleep(0)
                incoming.write(await peer.reader.read(65536))
        # The request leaves together with the end of the handshake.
        tls.write(frame(ECHO, 7, body=b"whole"))
        peer.send(outgoing.read())
        answer = b""
        while not answer.endswith(b"whole"):
            incoming.write(await peer.reader.read(65536))
            try:
                answer += tls.read(65536)
            except ssl.SSLWantReadError:
                continue
        await peer.close()


async def test_a_required_client_certificate(
    authority: Authority,
    stranger: Authority,
    certificate: Certificate,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tls = serving(
        certificate, "enforcing", *asking_for_certificates(authority.certificate.chain, "require")
    )
    async with echo_server(tls=tls) as (server, echo):
        assert await ask(server.port, trusting(authority, authority.sign("client"))) == b"x"
        for wrong in (None, stranger.sign("client")):
            caplog.clear()
            with caplog.at_level(logging.WARNING), pytest.raises(RemotingError, match="alert"):
                await ask(server.port, trusting(authority, wrong))
            assert "certificate" in caplog.text
            assert "Traceback" not in caplog.text
        assert len(echo.seen) == 1


async def test_an_optional_client_certificate_must_be_good(
    authority: Authority, stranger: Authority, certificate: Certificate
) -> None:
    tls = serving(
        certificate, "enforcing", *asking_for_certificates(authority.certificate.chain, "optional")
    )
    async with echo_server(tls=tls) as (server, _):
        assert await ask(server.port, trusting(authority)) == b"x"
        with pytest.raises(RemotingError):
            await ask(server.port, trusting(authority, stranger.sign("client")))


async def s_client(port: int, *options: str) -> bytes:
    """Let the program openssl connect; return what it says."""
    client = await asyncio.create_subprocess_exec(
        *("openssl", "s_client", "-connect", f"127.0.0.1:{port}", *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await client.communicate()
    return said


async def test_keys_over_finite_fields_are_refused(
    certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    """They take a hundred times as long as the others."""
    async with echo_server(tls=serving(certificate)) as (server, _):
        with caplog.at_level(logging.WARNING):
            said = await s_client(server.port, "-groups", "ffdhe2048")
        assert b"handshake failure" in said
        assert "finite field" in caplog.text
        assert server.handshakes.running == 0
        said = await s_client(server.port, "-groups", "X25519:ffdhe2048")
        assert b"New, TLSv1.3" in said


async def test_a_lost_connection_is_freed_at_once(
    authority: Authority, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    """A collection of many of them stops the server, and half a handshake may take 400 KB."""
    caplog.set_level(logging.CRITICAL)  # caught log records would keep the connections

    def left() -> int:
        of_a_connection = (ssl.SSLObject, TlsLayer, ServerConnection)
        return sum(isinstance(thing, of_a_connection) for thing in gc.get_objects())

    handshakes = Handshakes()
    async with echo_server(tls=serving(certificate), handshakes=handshakes) as (server, _):
        gc.collect()
        gc.disable()
        try:
            before = left()
            for _ in range(3):
                garbage = await RawPeer.open(server.port)
                garbage.send(b"\x16\x03\x01\x00\x10" + bytes(16))
                await garbage.read_to_end()
                await garbage.close()
                await until(lambda: not server.connections)
                half = await RawPeer.open(server.port)
                half.send(b"\x16\x03\x01\x02\x00\x01")
                await until(lambda: handshakes.running == 1)
                await half.close()
                await until(lambda: not handshakes.running)
                peer = await asyncio.to_thread(
                    socket.create_connection, ("127.0.0.1", server.port), 10
                )
                whole = await asyncio.to_thread(
                    trusting(authority).wrap_socket, peer, server_hostname="127.0.0.1"
                )
                whole.close()
                del whole, peer
                await until(lambda: not server.connections)
            async with asyncio.timeout(10):
                await until(lambda: left() == before)
        finally:
            gc.enable()


async def test_addresses_take_turns_in_the_thread() -> None:
    handshakes = Handshakes()
    begin = threading.Event()
    done: list[str] = []

    def step(name: str) -> bool:
        begin.wait(10)
        done.append(name)
        return True

    flood = [handshakes.step("192.0.2.1", partial(step, f"flood {n}")) for n in range(4)]
    other = handshakes.step("192.0.2.2", partial(step, "other"))
    flood[1].cancel()  # its connection is lost
    begin.set()
    await asyncio.gather(flood[0], other, *flood[2:])
    handshakes.stop()
    assert done == ["flood 0", "other", "flood 2", "flood 3"]


class Socket(FakeTransport):
    """The transport below a layer."""

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass

    def taken(self) -> bytes:
        data = b"".join(self.writes)
        self.writes.clear()
        return data


class Recording(asyncio.Protocol):
    """Keeps what a layer hands on."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self.received.append(data)


async def test_records_of_a_byte_are_decrypted_in_turns(
    authority: Authority, certificate: Certificate
) -> None:
    """Ten thousand of them are in one read, and take twenty milliseconds."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting(authority).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    handshakes, transport, above = Handshakes(), Socket(), Recording()
    layer = TlsLayer(
        serving(certificate).context(), transport, above, handshakes, "192.0.2.1",
        lambda why, cause: pytest.fail(why),
    )  # fmt: skip
    while handshakes.running:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        if data := outgoing.read():
            layer.data_received(data)
        await asyncio.sleep(0)
        incoming.write(transport.taken())
    sent = bytes(n % 251 for n in range(3000))
    for byte in sent:
        client.write(bytes([byte]))
    layer.data_received(outgoing.read())
    most = FREE_RECORDS + MOST_RECORDS_IN_TURN
    assert len(above.received[0]) == most
    assert not transport.reading
    layer.pause_reading()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(above.received) == 1
    layer.resume_reading()
    await until(lambda: transport.reading)
    assert b"".join(above.received) == sent
    assert max(map(len, above.received)) <= most
    layer.abort()
    handshakes.stop()


HELLO = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03"


@pytest.mark.parametrize("data", [HELLO, HELLO + b"rubbish", b"\x16\x03" + b"\xff" * 300])
async def test_a_broken_hello_costs_one_line(
    certificate: Certificate, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    async with echo_server(tls=serving(certificate)) as (server, _):
        peer = await RawPeer.open(server.port)
        peer.send(data)
        assert "TLS: " in await reason(caplog, peer)
        assert server.handshakes.running == 0


async def test_who_leaves_during_the_handshake_is_named(
    certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    async with echo_server(tls=serving(certificate)) as (server, _):
        peer = await RawPeer.open(server.port)
        peer.send(b"\x16\x03\x01\x02\x00\x01")
        peer.writer.write_eof()
        assert "left during the handshake" in await reason(caplog, peer)
        assert server.handshakes.running == 0


async def test_a_handshake_has_a_deadline(
    certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    handshakes = Handshakes(timeout=0.05)
    async with echo_server(tls=serving(certificate), handshakes=handshakes) as (server, _):
        peer = await RawPeer.open(server.port)
        peer.send(b"\x16\x03\x01\x02\x00\x01")
        assert "took more than 0.05 s" in await reason(caplog, peer)
        assert handshakes.running == 0


async def test_handshakes_in_progress_are_bounded(
    authority: Authority, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    handshakes = Handshakes(limit=2, limit_per_address=2)
    async with echo_server(tls=serving(certificate), handshakes=handshakes) as (server, _):
        halves = [await RawPeer.open(server.port) for _ in range(2)]
        for half in halves:
            half.send(b"\x16\x03\x01\x02\x00\x01")
        await until(lambda: handshakes.running == 2)
        late = await RawPeer.open(server.port)
        late.send(HELLO)
        assert "2 TLS handshakes with its address are" in await reason(caplog, late)
        await halves[0].close()
        await until(lambda: handshakes.running < 2)
        assert await ask(server.port, trusting(authority)) == b"x"
        await halves[1].close()


async def test_one_address_leaves_handshakes_to_the_others(
    authority: Authority, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    handshakes = Handshakes(limit=8)
    async with echo_server(tls=serving(certificate), handshakes=handshakes) as (server, _):
        for _ in range(2):
            handshakes.begin("192.0.2.1")  # as many as one address may have
        halves = [await RawPeer.open(server.port) for _ in range(2)]
        for half in halves:
            half.send(b"\x16\x03\x01\x02\x00\x01")
        await until(lambda: handshakes.running == 4)
        late = await RawPeer.open(server.port)
        late.send(HELLO)
        assert "2 TLS handshakes with its address" in await reason(caplog, late)
        for half in halves:
            await half.close()
        await until(lambda: handshakes.running == 2)
        for _ in range(3):
            assert await ask(server.port, trusting(authority)) == b"x"


@pytest.mark.parametrize("limits", [{"limit_per_address": 3}, {"limit": 3, "limit_per_address": 4}])
async def test_a_handshake_that_does_not_go_on_makes_room_for_others(
    authority: Authority,
    certificate: Certificate,
    caplog: pytest.LogCaptureFixture,
    limits: dict[str, int],
) -> None:
    """Of the same address, behind which there may be others."""
    handshakes = Handshakes(**limits, patience=0.0)
    async with echo_server(tls=serving(certificate), handshakes=handshakes) as (server, _):
        halves = [await RawPeer.open(server.port) for _ in range(3)]
        for half in halves:
            half.send(b"\x16\x03\x01\x02\x00\x01")
        await until(lambda: handshakes.running == 3)
        answer = b""
        while not answer:  # refused until the thread is done with what the halves sent
            with contextlib.suppress(RemotingConnectError):
                answer = await ask(server.port, trusting(authority))
        assert answer == b"x"
        assert any("others need its place" in line for line in caplog.messages)
        for half in halves:
            await half.close()
        await until(lambda: not handshakes.running)


def test_what_is_full_is_said_of_the_address_or_of_the_server() -> None:
    handshakes = Handshakes(limit=3, limit_per_address=2)
    handshakes.begin("192.0.2.1")
    handshakes.begin("192.0.2.1")
    of_address, of_server = handshakes.refusal("192.0.2.1"), handshakes.refusal("192.0.2.2")
    assert of_address is not None
    assert "its address" in of_address[0]
    assert of_server is None
    handshakes.begin("192.0.2.2")
    of_server = handshakes.refusal("192.0.2.2")
    assert of_server is not None
    assert of_server[0] == "3 TLS handshakes are in progress already"
    assert of_server[1] != of_address[1]
    for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        handshakes.end(address)
    assert handshakes.refusal("192.0.2.1") is None


async def test_garbage_after_the_handshake_closes_one_connection(
    authority: Authority, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    def disturb(port: int) -> None:
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            trusting(authority).wrap_socket(plain, server_hostname="127.0.0.1") as tls,
        ):
            tls.sendall(frame(ECHO, 1))
            assert tls.recv(4)
            os.write(tls.fileno(), HELLO)  # as if to negotiate again
            with contextlib.suppress(OSError):
                while tls.recv(65536):
                    pass

    async with echo_server(tls=serving(certificate)) as (server, _):
        bystander = await Connection.open(f"127.0.0.1:{server.port}", tls=trusting(authority))
        with caplog.at_level(logging.WARNING):
            await asyncio.to_thread(disturb, server.port)
        assert "TLS: " in caplog.text
        assert "Traceback" not in caplog.text
        assert bytes((await bystander.request(ECHO, body=b"y")).body) == b"y"
        await bystander.close()


async def test_new_keys_of_a_peer_are_bounded(
    authority: Authority, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    async with echo_server(tls=serving(certificate)) as (server, _):
        bystander = await Connection.open(f"127.0.0.1:{server.port}", tls=trusting(authority))
        peer = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-tls1_3", "-quiet", "-no_ign_eof"),
            *("-connect", f"127.0.0.1:{server.port}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        keyboard, answers, screen = peer.stdin, peer.stdout, peer.stderr
        assert keyboard is not None
        assert answers is not None

        async def new_key() -> bool:
            assert keyboard is not None
            assert screen is not None
            keyboard.write(b"k\n")
            try:
                await keyboard.drain()
                await screen.readuntil(b"KEYUPDATE\n")
            except (OSError, asyncio.IncompleteReadError):
                return False
            return True

        async with asyncio.timeout(60):
            for _ in range(10):
                assert await new_key()
            keyboard.write(frame(ECHO, 1))
            assert await answers.readexactly(4)
            with caplog.at_level(logging.WARNING):
                count = 10
                while await new_key():
                    count += 1
                await peer.wait()
        assert count >= MOST_RECORDS_WITHOUT_DATA
        assert f"{MOST_RECORDS_WITHOUT_DATA} records without data" in caplog.text
        assert bytes((await bystander.request(ECHO, body=b"y")).body) == b"y"
        await bystander.close()


async def test_sessions_are_resumed(authority: Authority, certificate: Certificate) -> None:
    context = trusting(authority)
    async with echo_server(tls=serving(certificate)) as (server, _):
        resumed, session = await asyncio.to_thread(visit, context, server.port, None)
        assert not resumed
        resumed, _ = await asyncio.to_thread(visit, context, server.port, session)
        assert resumed


def visit(
    context: ssl.SSLContext, port: int, session: ssl.SSLSession | None
) -> tuple[bool | None, ssl.SSLSession | None]:
    """Ask once on a new connection; return whether `session` was resumed, and the new one."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as tls,
    ):
        tls.sendall(frame(ECHO, 1))
        assert tls.recv(4)
        return tls.session_reused, tls.session


def install(certificate: Certificate, files: Certificate) -> None:
    """Put a certificate where the server's files are."""
    shutil.copy(certificate.chain, files.chain)
    shutil.copy(certificate.key, files.key)


async def test_a_session_ends_with_the_certificate(authority: Authority, tmp_path: Path) -> None:
    files = Certificate(tmp_path / "chain.pem", tmp_path / "key.pem")
    install(authority.sign("before"), files)
    context = trusting(authority)
    now = 0.0
    tls = ServerTls(config(files), clock=lambda: now)
    async with echo_server(tls=tls) as (server, _):
        _, session = await asyncio.to_thread(visit, context, server.port, None)
        install(authority.sign("after"), files)
        now += LOOK_INTERVAL
        resumed, session = await asyncio.to_thread(visit, context, server.port, session)
        assert not resumed
        resumed, _ = await asyncio.to_thread(visit, context, server.port, session)
        assert resumed


async def test_new_authorities_of_clients_are_for_new_connections(
    authority: Authority, stranger: Authority, certificate: Certificate, tmp_path: Path
) -> None:
    trusted = tmp_path / "trusted.pem"
    shutil.copy(authority.certificate.chain, trusted)
    lines = asking_for_certificates(trusted, "require")
    ours = trusting(authority, authority.sign("client_before"))
    theirs = trusting(authority, stranger.sign("client_after"))
    now = 0.0
    tls = ServerTls(config(certificate, "enforcing", *lines), clock=lambda: now)
    async with echo_server(tls=tls) as (server, _):
        old = await Connection.open(f"127.0.0.1:{server.port}", tls=ours)
        with pytest.raises(RemotingError):
            await ask(server.port, theirs)
        shutil.copy(stranger.certificate.chain, trusted)
        now += LOOK_INTERVAL
        assert await ask(server.port, theirs) == b"x"
        with pytest.raises(RemotingError):
            await ask(server.port, ours)
        assert bytes((await old.request(ECHO, body=b"old")).body) == b"old"
        await old.close()


async def test_a_new_certificate_is_for_new_connections(
    authority: Authority, stranger: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Certificate(tmp_path / "chain.pem", tmp_path / "key.pem")
    install(authority.sign("first"), files)
    now = 0.0
    tls = ServerTls(config(files), clock=lambda: now)
    async with echo_server(tls=tls) as (server, _):
        old = await Connection.open(f"127.0.0.1:{server.port}", tls=trusting(authority))
        files.chain.write_text("no certificate")
        for _ in range(3):
            now += LOOK_INTERVAL
            assert await ask(server.port, trusting(authority)) == b"x"
        complaints = [r for r in caplog.records if "old certificate" in r.getMessage()]
        assert len(complaints) == 1
        install(stranger.sign("second"), files)
        assert await ask(server.port, trusting(authority)) == b"x"  # it has not looked yet
        now += LOOK_INTERVAL
        assert await ask(server.port, trusting(stranger)) == b"x"
        assert bytes((await old.request(ECHO, body=b"old")).body) == b"old"
        await old.close()


@pytest.mark.parametrize("kind", ["pipe", "directory", "loop", "large"])
async def test_a_certificate_that_becomes_something_else_stops_nobody(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """A pipe would be waited for, and a large file takes long to read."""
    files = Certificate(tmp_path / "chain.pem", tmp_path / "key.pem")
    install(authority.sign("regular"), files)
    now = 0.0
    tls = ServerTls(config(files), clock=lambda: now)
    files.chain.unlink()
    if kind == "pipe":
        os.mkfifo(files.chain)
    elif kind == "directory":
        files.chain.mkdir()
    elif kind == "loop":
        files.chain.symlink_to(files.chain)
    else:
        with files.chain.open("wb") as file:
            file.truncate(1 << 30)
    async with echo_server(tls=tls) as (server, _):
        now += LOOK_INTERVAL
        assert await ask(server.port, trusting(authority)) == b"x"
    assert "old certificate" in caplog.text


async def test_stop_ends_connections_and_handshakes(
    authority: Authority, certificate: Certificate
) -> None:
    async with echo_server(tls=serving(certificate)) as (server, _):
        connection = await Connection.open(f"127.0.0.1:{server.port}", tls=trusting(authority))
        half = await RawPeer.open(server.port)
        half.send(b"\x16\x03\x01\x02\x00\x01")
        await connection.request(ECHO)
    assert await half.read_to_end() == b""
    await connection.close()
    await half.close()


async def test_mode_test_needs_no_files() -> None:
    loaded, _ = load_tls_config("tls.test.mode.enable=true")
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl is missing")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with echo_server(tls=server_tls(loaded)) as (server, _):
        assert await ask(server.port, context) == b"x"


# Settings


def test_the_key_may_be_encrypted(authority: Authority) -> None:
    secret = authority.sign("secret", password="a pass phrase")
    serving(secret, "enforcing", "tls.server.keyPassword=a pass phrase")
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath"):
        serving(secret, "enforcing", "tls.server.keyPassword=wrong")
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath"):
        serving(secret)


def test_permissive_without_a_certificate_is_plain() -> None:
    assert server_tls(load_tls_config("")[0]) is None


def test_a_closed_file_of_the_machine_is_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without its settings, a server would take plain connections only."""
    stat = os.stat

    def refused(path: os.PathLike[str] | str, **options: bool) -> os.stat_result:
        if os.fspath(path) == DEFAULT_FILE:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), DEFAULT_FILE)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", refused)
    with pytest.raises(ConfigError, match=f"tls.config.file = '{DEFAULT_FILE}'"):
        load_tls_config("")


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ("tls.server.mode=enforcing", r"needs tls\.server\.certPath"),
        ("tls.server.certPath=/nowhere.pem", r"keyPath"),
        ("tls.server.certPath=/no.pem\ntls.server.keyPath=/no.key", "No such file"),
        ("tls.server.mode=sometimes", "disabled or permissive or enforcing"),
        ("tls.config.file=/nowhere.properties", r"tls\.config\.file"),
    ],
)
def test_settings_that_cannot_be(more: str, names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        server_tls(load_tls_config(more)[0])


@pytest.mark.parametrize("word", ["optional", "require"])
def test_client_certificates_need_somebody_to_trust(certificate: Certificate, word: str) -> None:
    with pytest.raises(ConfigError, match="authClient"):
        serving(certificate, "enforcing", f"tls.server.need.client.auth={word}")


def test_the_file_of_tls_wins(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.keyPath=/of/the/file\n")
    loaded, warnings = load_tls_config(
        f"listenPort=1\ntls.server.keyPath=/of/broker.conf\ntls.config.file={file}\n"
        "tls.server.certPaht=typo"
    )
    assert loaded.key_path == "/of/the/file"
    assert warnings == ["tls.server.certPaht: unknown property, did you mean tls.server.certPath?"]


def test_passwords_are_not_shown() -> None:
    loaded, _ = load_tls_config("tls.server.keyPassword=hush\ntls.client.keyPassword=hush")
    assert "hush" not in repr(loaded)


async def test_links_to_other_servers(
    authority: Authority, stranger: Authority, certificate: Certificate
) -> None:
    assert client_context(load_tls_config("")[0]) is None
    tls = serving(
        certificate, "enforcing", *asking_for_certificates(authority.certificate.chain, "require")
    )
    own = authority.sign("broker")
    lines = "\n".join(
        ["tls.enable=true", f"tls.client.certPath={own.chain}", f"tls.client.keyPath={own.key}"]
    )

    def link(more: str) -> ssl.SSLContext | None:
        return client_context(load_tls_config(f"{lines}\n{more}")[0])

    async with echo_server(tls=tls) as (server, _):
        trusted = f"tls.client.trustCertPath={authority.certificate.chain}"
        assert await ask(server.port, link(trusted)) == b"x"
        assert await ask(server.port, link("tls.client.authServer=false")) == b"x"
        with pytest.raises(RemotingError, match="certificate verify failed"):
            await ask(server.port, link(""))
        others = stranger.certificate.chain
        with pytest.raises(RemotingError, match="certificate verify failed"):
            await ask(server.port, link(f"tls.client.trustCertPath={others}"))


def agreed(context: ssl.SSLContext, port: int) -> tuple[str | None, str | None]:
    """Ask once on a new connection; return the version of TLS and the cipher suite."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
    ):
        tls.sendall(frame(ECHO, 1))
        assert tls.recv(4)
        suite = tls.cipher()
        return tls.version(), suite[0] if suite else None


NEWEST = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
OLDER = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"


@pytest.mark.parametrize(
    ("more", "version", "suite"),
    [
        (["tls.protocols=TLSv1.2"], "TLSv1.2", ""),
        (["tls.protocols=TLSv1.3"], "TLSv1.3", ""),
        (["tls.protocols=TLSv1.2, TLSv1.3"], "TLSv1.3", ""),
        ([f"tls.ciphers={OLDER}"], "TLSv1.2", "CHACHA20-POLY1305"),
        ([f"tls.ciphers={NEWEST}"], "TLSv1.3", ""),
        ([f"tls.ciphers={NEWEST},{OLDER}"], "TLSv1.3", ""),
        ([f"tls.ciphers={NEWEST},{OLDER}", "tls.protocols=TLSv1.2"], "TLSv1.2", "CHACHA20"),
        (
            [
                "tls.ciphers=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
                ",ECDHE-ECDSA-AES128-GCM-SHA256,TLS_RSA_WITH_AES_256_CBC_SHA256"
            ],
            "TLSv1.2",
            "AES128-GCM-SHA256",
        ),
    ],
)
async def test_versions_and_suites(
    authority: Authority, certificate: Certificate, more: list[str], version: str, suite: str
) -> None:
    tls = serving(certificate, "enforcing", *more)
    async with echo_server(tls=tls) as (server, _):
        spoken, used = await asyncio.to_thread(agreed, trusting(authority), server.port)
        assert spoken == version
        assert suite in (used or "")
        # The links to other servers have the same choice.
        own, _ = load_tls_config(
            "\n".join(["tls.enable=true", "tls.client.authServer=false", *more])
        )
        link = client_context(own)
        assert link is not None
        assert await ask(server.port, link) == b"x"
        assert link.maximum_version == getattr(ssl.TLSVersion, version.replace(".", "_"))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["tls.protocols=TLSv1.1"], "TLSv1.2 or TLSv1.3"),
        (["tls.protocols=TLSv1.2,SSLv3"], "SSLv3"),
        (["tls.ciphers=TLS_AES_128_GCM_SHA256"], "lacks TLS_AES_256_GCM_SHA384"),
        (["tls.ciphers=TLS_RSA_WITH_NONSENSE"], "TLS_RSA_WITH_NONSENSE"),
        (["tls.ciphers=ALL"], "ALL"),
        ([f"tls.ciphers={OLDER}", "tls.protocols=TLSv1.3"], "with a suite of TLSv1.3"),
    ],
)
def test_versions_and_suites_that_cannot_be(
    certificate: Certificate, more: list[str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        serving(certificate, "enforcing", *more)
