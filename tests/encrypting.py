"""TLS in front of a server: takes encrypted connections, and hands on what they carry."""

from __future__ import annotations

import asyncio
import ssl

from tests.interop.harness.certificate import Certificate


class Encrypting:
    """Takes connections on 127.0.0.1 and makes one to the server behind for each.

    Args:
        behind: host and port of the server; port 0 is the one that this listens on.
        port: to listen on; 0 takes a free one.
        mutual: clients must show the same certificate.
    """

    def __init__(
        self,
        certificate: Certificate,
        behind: tuple[str, int],
        *,
        port: int = 0,
        mutual: bool = False,
    ) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate.chain, certificate.key)
        if mutual:
            self._context.load_verify_locations(certificate.chain)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._behind = behind
        self._port = port
        self.connections = 0
        self.address = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, ssl=self._context
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    async def stop(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        host, port = self._behind
        inner_reader, inner_writer = await asyncio.open_connection(host, port or self.port)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    sink.write(data)
            except (ConnectionError, ssl.SSLError):
                pass
            sink.close()

        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))
