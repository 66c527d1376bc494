"""One connection per server address, made on first use and again after it was lost."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Self

from pocketmq.remoting.connection import CONNECT_TIMEOUT, REQUEST_TIMEOUT, Connection, Signer
from pocketmq.remoting.errors import RemotingClosed, RemotingConnectError
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.serving.dispatch import Dispatcher

log = logging.getLogger("pocketmq.remoting.pool")


class ConnectionPool:
    """The connections of one client, by address.

    A lost connection stays lost until the next use of its address, which connects again. Several
    callers that need an address at the same time share one connect.

    Args:
        dispatcher: executes what servers ask of this client, on any connection.
        connect_timeout: seconds.
        tls, sign: as `Connection.open` takes them, for every connection.

    Attributes:
        on_connected: callbacks, each called with the address of a new connection.
        on_disconnected: callbacks, each called with the address of a connection that is gone.
    """

    def __init__(
        self,
        dispatcher: Dispatcher | None = None,
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        tls: ssl.SSLContext | None = None,
        sign: Signer | None = None,
    ) -> None:
        self.on_connected: list[Callable[[str], None]] = []
        self.on_disconnected: list[Callable[[str], None]] = []
        # One for all connections, since they share the limit of its log.
        self._dispatcher = dispatcher or Dispatcher()
        self._connect_timeout = connect_timeout
        self._tls = tls
        self._sign = sign
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def addresses(self) -> list[str]:
        """The addresses that are connected now."""
        return list(self._connections)

    async def get(self, address: str) -> Connection:
        """Return the open connection to `address`; connect first if needed.

        Raises:
            RemotingConnectError: no connection could be made.
            RemotingClosed: the pool is closed.
        """
        connection = self._connections.get(address)
        if connection is not None and not connection.closed:
            return connection
        if self._closed:
            raise _pool_closed(address)
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.ensure_future(self._connect(address))
            # Every caller may have given up by the time it fails.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._connecting[address] = task
        # Shielded: a caller that gives up does not cancel the connect for the others.
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if task.cancelled() and not (current and current.cancelling()):
                raise _pool_closed(address) from None
            raise

    async def _connect(self, address: str) -> Connection:
        try:
            connection = await Connection.open(
                address,
                timeout=self._connect_timeout,
                dispatcher=self._dispatcher,
                tls=self._tls,
                sign=self._sign,
            )
        finally:
            del self._connecting[address]
        self._connections[address] = connection
        self._tell(self.on_connected, address)
        connection.on_close(self._forget)
        return connection

    def _forget(self, connection: Connection) -> None:
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
        self._tell(self.on_disconnected, connection.address)

    @staticmethod
    def _tell(callbacks: list[Callable[[str], None]], address: str) -> None:
        for callback in callbacks:
            try:
                callback(address)
            except Exception:
                log.exception("a callback for the connection to %s failed", address)

    def request(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes | bytearray | memoryview = b"",
        *,
        timeout: float = REQUEST_TIMEOUT,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Coroutine[Any, Any, Command]:
        """Call `Connection.request` at an address; `timeout` (s) includes the connect."""
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            return self._connect_and_request(address, code, header, body, timeout, ext_fields)
        return connection.request(code, header, body, timeout=timeout, ext_fields=ext_fields)

    async def _connect_and_request(
        self,
        address: str,
        code: int,
        header: Header | None,
        body: bytes | bytearray | memoryview,
        timeout: float,
        ext_fields: Mapping[str, str] | None,
    ) -> Command:
        connection, timeout = await self._get_within(address, timeout)
        return await connection.request(code, header, body, timeout=timeout, ext_fields=ext_fields)

    async def send_oneway(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes | bytearray | memoryview = b"",
        *,
        timeout: float = REQUEST_TIMEOUT,
        ext_fields: Mapping[str, str] | None = None,
    ) -> None:
        """Call `Connection.send_oneway` at an address; `timeout` (s) includes the connect."""
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            connection, timeout = await self._get_within(address, timeout)
        await connection.send_oneway(code, header, body, timeout=timeout, ext_fields=ext_fields)

    async def _get_within(self, address: str, timeout: float) -> tuple[Connection, float]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            async with asyncio.timeout(timeout):
                connection = await self.get(address)
        except TimeoutError:
            raise RemotingConnectError(f"no connection within {timeout:.3g} s", address) from None
        return connection, deadline - loop.time()

    async def close(self) -> None:
        """Close every connection; later calls raise RemotingClosed. Idempotent."""
        self._closed = True
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close every connection; later calls connect again."""
        connecting = list(self._connecting.values())
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        # Together: each may wait for a server that hangs.
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))


def _pool_closed(address: str) -> RemotingClosed:
    error = RemotingClosed("the connection pool is closed", address)
    error.retriable = False  # unlike a connection that was lost
    return error
