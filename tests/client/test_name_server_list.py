from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pocketmq.client.errors import InvalidName, NoNameServer
from pocketmq.client.producer.producer import Producer
from pocketmq.client.routes.name_server_list import NameServerList
from pocketmq.message.message import Message
from tests.client.fake_cluster import FakeCluster


class AddressServer:
    """Answers every path with `text`, or 404 while that is None."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.paths.append(self.path)
                self.send_response(404 if outer.text is None else 200)
                self.end_headers()
                self.wfile.write((outer.text or "").encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/rocketmq/nsaddr"


@pytest.fixture
def address_server() -> Iterator[AddressServer]:
    answering = AddressServer()
    thread = threading.Thread(target=answering.server.serve_forever, args=(0.01,))
    thread.start()
    yield answering
    answering.server.shutdown()
    thread.join()
    answering.server.server_close()


async def test_a_producer_asks_the_address_server(
    cluster: FakeCluster, address_server: AddressServer
) -> None:
    address_server.text = f"{cluster.namesrv}\n"
    producer = Producer("PG", namesrv=address_server.url, unit_name="east")
    assert address_server.paths == []
    async with producer:
        await producer.send(Message("T", b"x"))
    assert address_server.paths == ["/rocketmq/nsaddr-east?nofix=1"]


async def test_a_client_without_a_list_does_not_start(address_server: AddressServer) -> None:
    producer = Producer("PG", namesrv=address_server.url)
    with pytest.raises(NoNameServer, match="404"):
        await producer.start()
    await producer.shutdown()


@pytest.mark.parametrize("answer", [b"no HTTP\r\n", b"HTTP/1.1 404\r\nx: " + b"x" * 70_000])
async def test_what_is_no_address_server(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        names = NameServerList(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x")
        with pytest.raises(NoNameServer, match="no name server list from http"):
            await names.fetch()


async def test_what_is_no_url() -> None:
    for url in ("http://127.0.0.1:port/x", "http://a b/x"):
        with pytest.raises(NoNameServer, match="no name server list from http"):
            await NameServerList(url).fetch()


async def test_the_list_follows_its_source_and_survives_its_loss(
    address_server: AddressServer,
) -> None:
    address_server.text = "a:1;b:2"
    names = NameServerList(address_server.url)
    shared = names.addresses
    assert await names.fetch()
    assert shared == ["a:1", "b:2"]
    address_server.text = "b:2;a:1"
    assert not await names.fetch()
    address_server.text = "c:3"
    assert await names.fetch()
    for text in (None, "", "nonsense"):
        address_server.text = text
        with pytest.raises((NoNameServer, InvalidName)):
            await names.fetch()
    assert shared == ["c:3"]


async def test_a_file_names_the_name_servers(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nsaddr"
    path.write_text(cluster.namesrv)
    monkeypatch.setenv("NAMESRV_ADDR", path.as_uri())
    async with Producer("PG") as producer:
        await producer.send(Message("T", b"x"))


def test_making_a_list_reads_nothing(tmp_path: Path) -> None:
    names = NameServerList((tmp_path / "missing").as_uri())
    assert names.addresses == []
