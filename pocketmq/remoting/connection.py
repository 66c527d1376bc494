"""The calling side: one connection to a server, many requests in flight.

Requests are pipelined and answered in any order. The server's requests to the client come in on the
same connection and are executed by a dispatcher, as on a server.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Self

from pocketmq.remoting.errors import FrameError, HeaderError, RemotingConnectError, RemotingTimeout
from pocketmq.remoting.frames.first_bytes import is_tls_alert
from pocketmq.remoting.frames.frame import MAX_FRAME, Command, decode_command
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.frame_stream import MAX_PENDING, WRITE_LIMIT, FrameStream
from pocketmq.remoting.serving.request import RequestDecoder
from pocketmq.remoting.socket_options import find_dead_peer

CONNECT_TIMEOUT = 3.0
REQUEST_TIMEOUT = 3.0

Signer = Callable[
    [Header | None, Mapping[str, str] | None, bytes | bytearray | memoryview], Mapping[str, str]
]
"""Takes a request's header, its further extFields and its body; returns the extFields to send
beside the header, signature included."""

#: Seconds within which a server that expects TLS ends a connection without it.
SOON = 5.0

# How a handshake with a server without TLS fails: it answers with an alert, or with anything else.
_NO_TLS = ("TLSV1_ALERT_PROTOCOL_VERSION", "WRONG_VERSION_NUMBER")


def split_address(address: str) -> tuple[str, int]:
    """`"host:port"` or `"[::1]:port"` as (host, port). Raises ValueError with the reason."""
    host, colon, port = address.strip().rpartition(":")
    if not colon or not host:
        raise ValueError(f"{address!r} is not an address: expected host:port")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(
            f"{address!r} is not an address: {port!r} is not a port number (1 to 65535)"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


class _ClientStream(FrameStream):
    """The client's end: most frames are answers."""

    def __init__(self, dispatcher: Dispatcher, **options: Any) -> None:
        super().__init__(
            dispatcher,
            RequestDecoder(dispatcher.header_types),
            **options,
        )
        self._writable_again: asyncio.Future[None] | None = None
        self._made = 0.0
        self._plain = False  # and the server has sent nothing that is a frame

    def data_received(self, data: bytes) -> None:
        self.last_active = self._loop.time()
        if self._plain and is_tls_alert(data):
            self.hint = ": the server expects TLS, so switch it on in this client (tls=...)"
            self.final = True
            self.close()
            return
        try:
            for frame in self._splitter.feed(data):
                try:
                    command = decode_command(frame)
                    if command.is_response:
                        self._pending.resolve(command.opaque, command)
                        continue
                    request = self._decode(frame)
                except HeaderError as error:
                    if error.opaque is None:
                        raise FrameError(error.remark) from None
                    if error.flag & 1:
                        self._pending.fail(error.opaque, error)
                    else:
                        self.log.warning(
                            "%s sent a request that cannot be decoded: %s", self, error.remark
                        )
                    continue
                request.connection = self
                request.channel = self
                self._run(request)
            self._plain = False
        except FrameError as error:
            if self._plain:  # it has sent nothing that was a frame: a wrong port
                self.hint = ": the server does not speak RocketMQ's protocol"
                self.final = True
            self.close(error.remark)
        except Exception:
            self.log.exception("the connection %s failed", self)
            self.close("unexpected error", "error")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._made = self.last_active
        self._plain = transport.get_extra_info("ssl_object") is None
        find_dead_peer(transport.get_extra_info("socket"))

    def resume_writing(self) -> None:
        super().resume_writing()
        self._wake_writers()

    def connection_lost(self, exc: Exception | None) -> None:
        # A server that dies resets most connections, and may end those that it had for a while.
        soon = self._loop.time() - self._made < SOON
        if self._plain and soon and exc is None and not self.closed:
            self.hint = " before the server sent anything: it may expect TLS"
        super().connection_lost(exc)
        self._wake_writers()

    def _wake_writers(self) -> None:
        if self._writable_again is not None:
            self._writable_again.set_result(None)
            self._writable_again = None

    async def wait_writable(self, timeout: float) -> float:
        """Wait until the server has read most of what was sent; return the rest of `timeout`."""
        start = self._loop.time()
        while not self.writable and not self.closed:
            if self._writable_again is None:
                self._writable_again = self._loop.create_future()
            remaining = start + timeout - self._loop.time()
            try:
                async with asyncio.timeout(remaining):
                    await asyncio.shield(self._writable_again)
            except TimeoutError:
                raise RemotingTimeout(
                    f"not sent: the server has read nothing for {timeout:g} s", str(self)
                ) from None
        return start + timeout - self._loop.time()


class Connection:
    """A connection to one server; made by `open`.

    Attributes:
        address: as given to `open`.
    """

    def __init__(self, address: str, stream: _ClientStream, sign: Signer | None = None) -> None:
        self.address = address
        self._stream = stream
        self._sign = sign

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        timeout: float = CONNECT_TIMEOUT,
        dispatcher: Dispatcher | None = None,
        max_pending: int = MAX_PENDING,
        max_frame: int = MAX_FRAME,
        write_limit: int = WRITE_LIMIT,
        tls: ssl.SSLContext | None = None,
        sign: Signer | None = None,
    ) -> Self:
        """Connect to `"host:port"`.

        Args:
            timeout: seconds for the connect.
            dispatcher: executes what the server asks of this client; without one every such
                request is answered "not supported".
            max_pending: requests that may wait for answers at once.
            write_limit: bytes of unsent output after which the connection is dropped; sends wait
                long before.
            tls: encrypts the connection, and checks the server as the context says.
            sign: adds the signature to every request.

        Raises:
            RemotingConnectError: refused, unreachable, no such host, no answer in time, or a
                server that the TLS context does not trust, which is not retriable.
        """
        try:
            host, port = split_address(address)
        except ValueError as error:
            raise RemotingConnectError(str(error), address) from None
        dispatcher = dispatcher or Dispatcher()
        try:
            async with asyncio.timeout(timeout):
                _, stream = await asyncio.get_running_loop().create_connection(
                    lambda: _ClientStream(
                        dispatcher,
                        max_frame=max_frame,
                        max_pending=max_pending,
                        write_limit=write_limit,
                    ),
                    host,
                    port,
                    ssl=tls,
                )
        except TimeoutError:
            raise RemotingConnectError(f"no connection within {timeout:.3g} s", address) from None
        except ssl.SSLCertVerificationError as error:
            untrusted = RemotingConnectError(_reason(error), address)
            untrusted.retriable = False
            raise untrusted from None
        except ssl.SSLError as error:
            failed = RemotingConnectError(_reason(error), address)
            if error.reason in _NO_TLS:
                failed.remark += ": the server does not speak TLS, or another version of it"
                failed.retriable = False
            raise failed from None
        except OSError as error:
            raise RemotingConnectError(_reason(error), address) from None
        except ValueError as error:  # such as "a..b", which is looked up nowhere
            raise RemotingConnectError(f"no name of a host: {error}", address) from None
        return cls(address, stream, sign)

    def __str__(self) -> str:
        return self.address

    @property
    def closed(self) -> bool:
        """Whether the connection takes no more requests."""
        return self._stream.closed

    @property
    def writable(self) -> bool:
        """Whether requests are sent at once; else they wait until the server has read earlier
        ones."""
        return self._stream.writable

    @property
    def unsent(self) -> int:
        """Bytes that were written and not yet taken by the server."""
        return self._stream.unsent

    @property
    def pending(self) -> int:
        """The number of requests waiting for answers; `max_pending` bounds it."""
        return self._stream.pending

    def on_close(self, callback: Callable[[Connection], None]) -> None:
        """Call `callback(self)` once when the connection is gone, by either end."""
        self._stream.add_close_callback(lambda _: callback(self))

    # Neither this nor the pool's is `async`: with thousands of awaits at once, each frame counts.
    def request(
        self,
        code: int,
        header: Header | None = None,
        body: bytes | bytearray | memoryview = b"",
        *,
        timeout: float = REQUEST_TIMEOUT,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Coroutine[Any, Any, Command]:
        """Send a request and return its answer, whatever the answer's code.

        Cancelling the call forgets the request; a late answer is ignored.

        Args:
            timeout: seconds, including the time the server takes to read what was sent before.
            ext_fields: header fields beside those of `header`.

        Raises:
            RemotingTimeout: no answer in time; the server may have executed the request.
            RemotingClosed: the connection is or was closed; the server may have executed it.
            SystemBusy: `max_pending` requests are waiting already.
        """
        if self._sign is not None:
            ext_fields = self._sign(header, ext_fields, body)
        stream = self._stream
        request = stream.send_request if stream.writable else self._request_when_writable
        return request(code, header, body, timeout, ext_fields)

    async def _request_when_writable(
        self,
        code: int,
        header: Header | None,
        body: bytes | bytearray | memoryview,
        timeout: float,
        ext_fields: Mapping[str, str] | None,
    ) -> Command:
        timeout = await self._stream.wait_writable(timeout)
        return await self._stream.send_request(code, header, body, timeout, ext_fields)

    async def send_oneway(
        self,
        code: int,
        header: Header | None = None,
        body: bytes | bytearray | memoryview = b"",
        *,
        timeout: float = REQUEST_TIMEOUT,
        ext_fields: Mapping[str, str] | None = None,
    ) -> None:
        """Send a request that is not answered; return when the transport has it.

        Raises:
            RemotingTimeout: the server did not read what was sent before within `timeout` s.
            RemotingClosed: the connection is closed.
        """
        if self._sign is not None:
            ext_fields = self._sign(header, ext_fields, body)
        if not self._stream.writable:
            await self._stream.wait_writable(timeout)
        self._stream.send_oneway(code, header, body, ext_fields)

    async def close(self) -> None:
        """Close; pending requests end with RemotingClosed. Idempotent."""
        self._stream.close()
        await self._stream.wait_closed()


def _reason(error: OSError) -> str:
    """Return why a connect failed. The event loop's own text repeats the address, and is empty for
    a server that closes during the TLS handshake."""
    if error.errno and not isinstance(error, ssl.SSLError | socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error) or "closed by the server: it may not speak TLS"
