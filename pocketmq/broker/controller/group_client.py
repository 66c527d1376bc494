"""A slave's connection to the master of its group: it copies the master's log.

A `MasterLink` has the rules. If they require the log to be truncated, reading pauses until the
store has done that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from pocketmq.broker.controller.epoch_log import CutRefused
from pocketmq.broker.controller.group_server import Driver
from pocketmq.broker.controller.ha_frames import (
    BadFrame,
    MasterEpochs,
    MasterFrames,
    encode_handshake,
    encode_report,
)
from pocketmq.broker.controller.master_link import MasterLink, UnfitMaster
from pocketmq.kept_task import KeptTask
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.connection import split_address
from pocketmq.store.errors import StoreError
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

RECONNECT_SECONDS: Final = 1.0
"""Pause between two attempts; the reference waits 5 s."""

_CONNECT_SECONDS: Final = 5.0
_BUFFER: Final = 256 * 1024
_UNFIT_SECONDS: Final = 10.0


class GroupClient:
    """Copies the log of the master at `address`, until it is stopped. `clock` gives milliseconds.

    Attributes:
        connection: the connection to the master; None while there is none.
        trouble: why the last connection failed or ended; empty once one works.
        changed_at: time of the last connection or disconnection, in milliseconds of `clock`.
        on_connected: called when the connection is established.
        on_cut: called after the log was truncated.
    """

    def __init__(
        self,
        store: MessageStore,
        driver: Driver,
        clock: Callable[[], int],
        *,
        reconnect_seconds: float = RECONNECT_SECONDS,
    ) -> None:
        self.address = ""
        self.connection: MasterConnection | None = None
        self.trouble = ""
        self.changed_at = clock()
        self.on_connected: Callable[[], None] = lambda: None
        self.on_cut: Callable[[], None] = lambda: None
        self.store = store
        self.driver = driver
        self.clock = clock
        self.lines = LimitedLog(log)
        self._reconnect = reconnect_seconds
        self._known = asyncio.Event()
        self._task: KeptTask | None = None

    def start(self) -> None:
        """Connect as soon as the address is known, and stay connected."""
        self._task = KeptTask(self._run, "copy of the log")

    async def stop(self) -> None:
        """Close the connection, and clear the address."""
        if self._task is not None:
            await self._task.stop()
        self._task = None
        self.address = self.trouble = ""
        self._known.clear()

    def use(self, address: str) -> None:
        """Copy from this HA address."""
        if address and address != self.address:
            log.warning("master HA address is %s", address)
            self.address = address
            self._known.set()
            if self.connection is not None:
                self.connection.close()

    async def _run(self) -> None:
        while True:
            await self._known.wait()
            pause = self._reconnect
            try:
                await self._copy()
            except (UnfitMaster, CutRefused, StoreError) as error:
                self.trouble = str(error)
                self.lines.error("broker cannot copy its master %s: %s", self.address, error)
                pause = _UNFIT_SECONDS
            except OSError as error:  # TimeoutError is one
                self.trouble = str(error) or "silence"
                self.lines.warning(
                    "no connection to the master's HA port %s: %s", self.address, error or "silence"
                )
            except Exception:
                # After a bug here, the slave must connect again.
                self.trouble = "an error in this broker, see its log"
                log.exception("copying the log of master %s failed", self.address)
                pause = _UNFIT_SECONDS
            await asyncio.sleep(pause)

    async def _copy(self) -> None:
        """Connect, and copy until the connection ends. Raises the error that ended it."""
        await self.driver.cut_torn()
        loop = asyncio.get_running_loop()
        try:
            host, port = split_address(self.address)
        except ValueError as error:
            raise OSError(str(error)) from None
        replica = self.driver.replica
        assert replica is not None
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, connection = await loop.create_connection(
                lambda: MasterConnection(self, replica.connected(self.clock())), host, port
            )
        self.connection = connection
        self.changed_at = self.clock()
        log.warning(
            "connected to the master's HA port %s; this log ends at %d",
            self.address, self.store.commit_log.end,
        )  # fmt: skip
        self.on_connected()
        try:
            await connection.closed
        finally:
            self.connection = None
            self.changed_at = self.clock()
            await connection.ended()
            if replica.link is connection.link:
                replica.disconnected()
        if connection.failure is not None:
            raise connection.failure


class MasterConnection(asyncio.BufferedProtocol):
    """One connection to a master.

    Attributes:
        link: the rules.
        closed: done when the connection is closed.
        failure: the error that ended it; None if there was none.
        rate: bytes per second received lately.
        master_end: the end of the master's log, as last known; None before the first information.
    """

    _transport: asyncio.Transport

    def __init__(self, client: GroupClient, link: MasterLink) -> None:
        self.link = link
        self.rate = 0
        self.master_end: int | None = None
        self.failure: Exception | None = None
        self._client = client
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._reader = MasterFrames()
        self._buffer = memoryview(bytearray(_BUFFER))
        self._received = 0
        self._counted = self._loop.time()
        self._cutting: asyncio.Task[None] | None = None

    # --- asyncio ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the handshake."""
        self._transport = cast(asyncio.Transport, transport)
        # In one write: the official master parses a handshake as soon as it has 12 bytes of it.
        self._transport.write(encode_handshake(self.link.handshake()))

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake the client, which connects again."""
        if not self.closed.done():
            self.closed.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        if self._transport.is_closing() or not self._is_current:
            return
        self._received += nbytes
        try:
            for item in self._reader.feed(self._buffer[:nbytes]):
                if isinstance(item, MasterEpochs):
                    # The master sends nothing more before the first report.
                    self._cutting = self._loop.create_task(self._join(item))
                    return
                if not isinstance(item, memoryview):
                    self.master_end = max(self.master_end or 0, item.offset + item.size)
                self.link.received(item, self._client.clock())
        except (BadFrame, UnfitMaster, StoreError, OSError) as error:
            self._fail(error)
            return
        self._client.trouble = ""
        self.report()
        self._client.driver.obey([])

    async def _join(self, master: MasterEpochs) -> None:
        """Truncate the log to the part that the master has, and start to copy."""
        store = self._client.store
        try:
            place = self.link.place_to_cut(master)
            if place is not None:
                log.warning(
                    "the master's log ends at %d and has the epochs %s, this one has %s: cutting "
                    "this log at %d", master.end, master.epochs, self.link.epochs, place,
                )  # fmt: skip
                try:
                    await store.cut(place)
                except ValueError as error:
                    raise UnfitMaster(
                        f"this log cannot be cut where it differs from the master's: {error}. Stop "
                        "this broker, empty its store (keep a copy), and start it again"
                    ) from None
                self._client.on_cut()
            if not self._is_current:
                return
            self.master_end = master.end
            self.link.received(master, self._client.clock())
        except (BadFrame, UnfitMaster, CutRefused, StoreError, OSError) as error:
            self._fail(error)
            return
        except Exception as error:
            self._fail(error)
            log.exception("joining the master failed")
            return
        finally:
            self._cutting = None
        self.report()
        self._client.driver.obey([])

    # --- reporting ----------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        self.failure = OSError(str(error)) if isinstance(error, BadFrame) else error
        self.close()

    @property
    def _is_current(self) -> bool:
        """Whether the rules still use this connection: the role may have changed."""
        replica = self._client.driver.replica
        return replica is not None and replica.link is self.link

    def close(self) -> None:
        """Close the connection."""
        self._transport.abort()

    async def ended(self) -> None:
        """Close the connection, and wait for a truncation in progress: until then, the log must not
        be used."""
        self.close()
        if self._cutting is not None:
            await asyncio.wait([self._cutting])

    def report(self) -> None:
        """Send a report if one is due."""
        offset = self.link.report(self._client.clock())
        if offset is not None and not self._transport.is_closing():
            self._transport.write(encode_report(offset))

    def tick(self) -> None:
        """Report, measure the rate, and disconnect from a silent master; about once a second."""
        now = self._loop.time()
        if now > self._counted:
            self.rate = round(self._received / (now - self._counted))
        self._received, self._counted = 0, now
        if self.link.is_lost(self._client.clock()):
            self.failure = TimeoutError("silence")
            self.close()
        else:
            self.report()
