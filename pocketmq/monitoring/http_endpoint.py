"""Serves /metrics, /live and /ready over HTTP, in its own threads.

So a probe is answered even while the event loop is blocked, and can report that. The server is the
standard library's: requests are few, and come from a trusted network. Connections are still limited
in number and time, and one address gets at most half of them. Above that, the oldest one without a
complete request is closed for the new one: a probe sends its request at once, and must not fail
because somebody keeps connections open. The time limit is for a whole request: a socket's timeout
restarts with each byte, so a client could keep one for ever by sending a byte now and then.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import logging
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

from pocketmq.limited_log import LimitedLog
from pocketmq.monitoring.pace import paced
from pocketmq.remoting.serving.listening import CannotListen, PortInUse
from pocketmq.remoting.shares import Shares

log = LimitedLog(logging.getLogger("pocketmq.monitoring"))

MAX_CONNECTIONS: Final = 16
MAX_CONNECTIONS_PER_ADDRESS: Final = 8
SOCKET_SECONDS: Final = 10.0
"""For one read or write."""
REQUEST_SECONDS: Final = 10.0
"""For a request, from the connection's start to its last byte."""
ANSWER_SECONDS: Final = 120.0
"""For its answer: the metrics of a large broker take half a minute, longer on a busy machine."""
_POLL_SECONDS: Final = 0.1
_GZIP: Final = 16 + zlib.MAX_WBITS


def _nothing() -> None:
    pass


class Page(NamedTuple):
    """An answer: status, content type, and the text in chunks. `done` is called when it was sent,
    or failed."""

    status: int
    content_type: str
    chunks: Iterable[bytes]
    done: Callable[[], object] = _nothing


#: Makes the page of a path; called in a thread.
MakePage = Callable[[], Page]


def plain(text: str, status: int = 200) -> Page:
    """Return a short page."""
    return Page(status, "text/plain; charset=utf-8", (text.encode(),))


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = SOCKET_SECONDS
    server_version = "pocketmq"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        self.server.give_time(self.connection)
        path = self.path.partition("?")[0]
        make = self.server.pages.get(path)
        if make is None:
            page = plain(f"pages: {' '.join(self.server.pages)}\n", 404)
        else:
            try:
                page = make()
            except Exception as error:
                log.exception("%s failed: %s", path, error, cause=("page", path, type(error)))
                page = plain(f"{type(error).__name__}\n", 500)
        try:
            self._send(page, with_body=with_body)
        finally:
            page.done()

    def _send(self, page: Page, *, with_body: bool) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Cache-Control", "no-store")
        chunks: Iterable[bytes] = page.chunks
        if "gzip" in self.headers.get("Accept-Encoding", "") and not isinstance(chunks, tuple):
            self.send_header("Content-Encoding", "gzip")
            chunks = _compressed(chunks)
        self.end_headers()  # HTTP/1.0: the text ends with the connection
        if with_body:
            for chunk in paced(chunks):
                self.wfile.write(chunk)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: probes come every few seconds."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self,
        address: tuple[str, int],
        pages: Mapping[str, MakePage],
        request_seconds: float,
        answer_seconds: float,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.pages = pages
        self._request_seconds = request_seconds
        self._answer_seconds = answer_seconds
        # Used by the listening thread and by those that answer.
        self._lock = threading.Lock()
        self._open = Shares()
        self._deadlines: dict[socket.socket, float] = {}
        # Connections without a complete request, with their addresses; the oldest first.
        self._asking: dict[socket.socket, str] = {}
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without HTTPServer's look-up of the host name."""
        if self.address_family == socket.AF_INET6 and self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        address = client_address[0]
        with self._lock:
            of_address, of_all = self._open.of(address), self._open.total
            full = False
            if of_address >= MAX_CONNECTIONS_PER_ADDRESS:
                full = not self._make_room(address)
            elif of_all >= MAX_CONNECTIONS:
                full = not self._make_room(next(iter(self._asking.values()), ""))
            if not full:
                self._open.add(address)
                self._asking[request] = address
                self._deadlines[request] = time.monotonic() + self._request_seconds
        if full:
            log.warning(
                "%d connections are open already, %d of them of %s: another one of it is closed",
                of_all,
                of_address,
                address,
            )
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._forget(request, client_address[0])

    def _forget(self, request: socket.socket, address: str) -> None:
        self._asking.pop(request, None)
        if self._deadlines.pop(request, None) is not None:
            self._open.remove(address)

    def _make_room(self, address: str) -> bool:
        """Close the oldest connection of an address that has no complete request; False if it has
        none."""
        for request, other in self._asking.items():
            if other == address:
                self._forget(request, address)
                # This wakes its thread, which closes it.
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)
                return True
        return False

    def give_time(self, request: socket.socket) -> None:
        """Start the answer's time: the request of this connection has been read."""
        with self._lock:
            self._asking.pop(request, None)
            if request in self._deadlines:
                self._deadlines[request] = time.monotonic() + self._answer_seconds

    def service_actions(self) -> None:
        """Close the connections whose time is up; called several times a second."""
        now = time.monotonic()
        with self._lock:
            late = [request for request, deadline in self._deadlines.items() if deadline < now]
        for request in late:
            # This wakes the thread that reads or writes, which then closes the connection.
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client that disconnects before its answer is not worth a line."""


class HttpEndpoint:
    """One listening port with these pages by path.

    Attributes:
        port: the listening port; before `start`, the requested one.
    """

    def __init__(
        self,
        host: str,
        port: int,
        pages: Mapping[str, MakePage],
        *,
        key: str,
        request_seconds: float = REQUEST_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`key`: the setting of the port, for errors."""
        self.port = port
        self._host = host
        self._pages = pages
        self._key = key
        self._request_seconds = request_seconds
        self._answer_seconds = answer_seconds
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen. Raises PortInUse, CannotListen."""
        try:
            server = _Server(
                (self._host, self.port), self._pages, self._request_seconds, self._answer_seconds
            )
        except OSError as error:
            kind = PortInUse if error.errno == errno.EADDRINUSE else CannotListen
            raise kind(
                f"cannot listen on {self._host}:{self.port} ({self._key}): "
                f"{error.strerror or error}"
            ) from None
        self._server = server
        self.port = server.server_address[1]
        self._thread = threading.Thread(
            target=server.serve_forever, args=(_POLL_SECONDS,), name=self._key, daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        """Stop listening. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.shutdown)
            server.server_close()


def on_loop(loop: asyncio.AbstractEventLoop, make: Callable[[], Any], seconds: float) -> Any:
    """Run the coroutine of `make()` on the event loop from a thread; return its result.

    Raises:
        TimeoutError: it did not end within `seconds`.
    """
    coroutine = make()
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError:
        coroutine.close()
        raise TimeoutError("the event loop is closed") from None
    try:
        return future.result(seconds)
    except concurrent.futures.TimeoutError:
        future.cancel()
        raise TimeoutError(f"the event loop did not answer within {seconds:g} s") from None


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    for chunk in chunks:
        yield packer.compress(chunk)
    yield packer.flush()
