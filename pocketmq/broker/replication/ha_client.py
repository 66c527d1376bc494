"""The slave's side of classic HA: a connection to the master that copies its log.

Bytes go from the socket to the file unchecked; `store.recovery.replica_log` checks them later. When
the connection is lost, the slave reconnects after five seconds, or at once if the master was only
silent. Reference: DefaultHAClient.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, cast

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.replication.frames import BadFrame, FrameReader, Head, encode_report
from pocketmq.broker.replication.intake import RECONNECT_SECONDS, Intake
from pocketmq.kept_task import KeptTask
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.connection import split_address
from pocketmq.store.errors import ForeignBytes, StoreError
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_CONNECT_SECONDS: Final = 5.0
_BUFFER: Final = 256 * 1024
_SECOND: Final = 1.0


async def _nothing() -> None:
    """Return at once."""


class HaClient:
    """Copies the log of a master into a store in slave mode (`MessageStore.follow`).

    Attributes:
        address: host:port of the master's HA port; empty while it is not known.
        connection: the connection to the master; None while there is none.
        failure: why copying has stopped; None if it has not.
        trouble: why the last connection failed or ended; empty once one works.
        changed_at: time of the last connection or disconnection, by the clock of the loop.
        on_connected: called when the connection is established.
        before_connecting: awaited before each attempt to connect; must not raise.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        *,
        reconnect_seconds: float = RECONNECT_SECONDS,
    ) -> None:
        self.address = ""
        self.connection: MasterConnection | None = None
        self.failure: ForeignBytes | None = None
        self.trouble = ""
        self.changed_at = asyncio.get_running_loop().time()
        self.config = config
        self.store = store
        self.lines = LimitedLog(log)
        self._reconnect = reconnect_seconds
        self.on_connected: Callable[[], None] = lambda: None
        self.before_connecting: Callable[[], Awaitable[None]] = _nothing
        self._known = asyncio.Event()
        self._task: KeptTask | None = None

    def start(self) -> None:
        """Connect as soon as the address is known, and stay connected."""
        self.store.replica.on_failure = self._failed
        self._task = KeptTask(self._run, "copy of the log", ends=True)

    async def stop(self) -> None:
        """Close the connection."""
        if self._task is not None:
            await self._task.stop()
        self._task = None

    def use(self, address: str) -> None:
        """Copy from this address. An existing connection is kept, as by the official slave."""
        if address and address != self.address:
            log.warning("master HA address is %s", address)
            self.address = address
            self._known.set()

    def _failed(self, failure: ForeignBytes) -> None:
        self.failure = failure
        self.trouble = str(failure)
        if self.connection is not None:
            self.connection.close()

    async def _run(self) -> None:
        while self.failure is None:
            await self._known.wait()
            await self.before_connecting()
            connection = await self._connect()
            if connection is not None:
                self.connection = connection
                self.changed_at = connection.intake.last_heard
                self.on_connected()
                try:
                    await connection.closed
                finally:
                    self.connection = None
                    self.changed_at = asyncio.get_running_loop().time()
                    connection.close()
                self.lines.warning(
                    "connection to master %s closed%s",
                    self.address, f": {self.trouble}" if self.trouble else "",
                )  # fmt: skip
                if connection.was_silent:
                    continue
                if not connection.was_heard:
                    self.trouble = "it closed the connection before it sent anything"
                    self.lines.warning(
                        "master %s closed the connection before it sent anything: its log says "
                        "why. enableControllerMode must be the same on both brokers",
                        self.address,
                    )
            await asyncio.sleep(self._reconnect)

    async def _connect(self) -> MasterConnection | None:
        loop = asyncio.get_running_loop()
        try:
            host, port = split_address(self.address)
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, connection = await loop.create_connection(
                    lambda: MasterConnection(self), host, port
                )
        except (OSError, ValueError) as error:  # TimeoutError is one
            self.trouble = str(error) or "no answer"
            self.lines.warning(
                "cannot connect to the master's HA port %s: %s", self.address, error or "no answer"
            )
            return None
        log.warning(
            "connected to the master's HA port %s; this log ends at %d",
            self.address, self.store.commit_log.end,
        )  # fmt: skip
        return connection


class MasterConnection(asyncio.BufferedProtocol):
    """One connection to a master.

    Attributes:
        intake: the rules, and the state of the transfer.
        closed: done when the connection is closed.
        was_silent: it was closed because the master was silent.
        was_heard: the master has sent something.
        rate: bytes per second received lately.
        last_read, last_write: when something was last received and sent, by the clock of the loop.
    """

    _transport: asyncio.Transport

    def __init__(self, client: HaClient) -> None:
        config = client.config
        self._client = client
        self._store = client.store
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._buffer = memoryview(bytearray(_BUFFER))
        self._next = 0  # physical offset of the next byte of a body
        self._timer: asyncio.TimerHandle | None = None
        self._tick_seconds = min(_SECOND, config.ha_send_heartbeat_interval / 2000)
        self._received = 0
        self._counted = self._loop.time()
        self.rate = 0
        self.was_silent = self.was_heard = False
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.intake = Intake(
            client.store.commit_log.file_size,
            heartbeat_interval=config.ha_send_heartbeat_interval / 1000,
            housekeeping_interval=config.ha_housekeeping_interval / 1000,
            now=self._loop.time(),
        )

    # --- asyncio ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report at once: the master sends nothing before the first report."""
        # uvloop's transports have the methods of asyncio.Transport, but are not a subclass of it.
        self._transport = cast(asyncio.Transport, transport)
        self._tick()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake the client, which connects again."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.closed.done():
            self.closed.set_result(None)
        if exc is not None:
            self._client.trouble = str(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Write received bytes to the log, and report them."""
        self._received += nbytes
        self.was_heard = True
        try:
            for found in self._reader.feed(self._buffer[:nbytes]):
                if isinstance(found, Head):
                    self.intake.check(found, self._store.commit_log.end, self._loop.time())
                    self._next = found.offset
                else:
                    self._store.replica.append(self._next, found)
                    self._next += len(found)
        except BadFrame as error:
            self._client.trouble = str(error)
            self._client.lines.error(
                "connection to master %s closed: %s. If this persists, the two logs are "
                "not the same: empty this slave's store (keep a copy), and start it again",
                self._client.address, error,
            )  # fmt: skip
            self.close()
        except (StoreError, OSError) as error:
            if self._client.failure is None:
                self._client.trouble = f"what it sends cannot be stored: {error}"
                self._client.lines.error("data from the master cannot be stored: %s", error)
            self.close()
        else:
            if self._client.failure is None:
                self._client.trouble = ""
            self._report()

    # --- reporting ----------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection."""
        self._transport.abort()

    def _report(self) -> None:
        offset = self.intake.report(self._store.commit_log.end, self._loop.time())
        if offset is not None and not self._transport.is_closing():
            self._transport.write(encode_report(offset))

    def _tick(self) -> None:
        # First, so that the next tick runs even if this one fails.
        self._timer = self._loop.call_later(self._tick_seconds, self._tick)
        now = self._loop.time()
        if self.intake.is_lost(now):
            self._client.trouble = "it was silent"
            self._client.lines.warning(
                "master %s has been silent for %d ms: connecting again",
                self._client.address, self._client.config.ha_housekeeping_interval,
            )  # fmt: skip
            self.was_silent = True
            self.close()
            return
        if now - self._counted >= _SECOND:
            self.rate = round(self._received / (now - self._counted))
            self._received, self._counted = 0, now
        self._report()
