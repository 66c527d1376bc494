"""The master's side of classic HA: a port at which slaves copy the log.

Each slave has one connection, and a `Feed` that decides what it gets. After each write to the log,
the connections send the new bytes within 5 ms, so that a busy log is sent in large writes, or at
once if a send waits for replicas. A report does not trigger sending: that would cause small writes,
each followed by another report, thousands of times a second.

With SYNC_FLUSH, a master sends only what is on its disk. Else a power cut could leave a slave with
bytes that its master has lost, and such a slave cannot continue. The reference sends everything.

Reference: DefaultHAService, DefaultHAConnection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from pocketmq.broker.config import BrokerConfig, BrokerRole
from pocketmq.broker.replication.allowed_replicas import AllowedReplicas
from pocketmq.broker.replication.feed import Feed, LogSpan, UnfitSlave
from pocketmq.broker.replication.frames import BadFrame, ReportReader, encode_head
from pocketmq.broker.replication.log_sender import CopyTurns, LogSender
from pocketmq.broker.replication.replica_waits import CopyStarts
from pocketmq.broker.replication.report_port import ReportProtocol, too_many
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.listening import serve
from pocketmq.store.config import FlushDiskType
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_GATHER_SECONDS: Final = 0.005


class HaServer:
    """The slaves of one broker. A slave has an HA server, too: other slaves may copy it, and it
    needs one if it becomes master.

    `on_ack()` is called when a slave has acknowledged more, or has disconnected. Connections that
    `allowed` refuses are closed, and not counted. Slaves that copy much give way to `light`.

    Attributes:
        connections: the connections of slaves, in the order of arrival.
        port: the port that it listens on.
        most_acked: the highest offset that a slave has acknowledged; it never decreases.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        allowed: AllowedReplicas,
        on_ack: Callable[[], None],
        light: LightClients | None = None,
    ) -> None:
        self.connections: list[HaConnection] = []
        self.port = 0
        self.most_acked = 0
        self.config = config
        self.lines = LimitedLog(log)
        self.turns = CopyTurns(light)
        self.starts = CopyStarts()
        self._store = store
        self._allowed = allowed
        self._on_ack = on_ack
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._pumping: asyncio.TimerHandle | None = None
        self._tick_seconds = min(1.0, config.ha_send_heartbeat_interval / 2000)
        # A slave of a slave gets everything: a slave orders no flushes.
        self._after_flush = (
            store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
            and config.broker_role is not BrokerRole.SLAVE
        )
        self._hurried = False

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._server = await serve(lambda: HaConnection(self), host, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        self.drop_all()
        for timer in (self._ticking, self._pumping):
            if timer is not None:
                timer.cancel()
        self._watch(None)
        if self._server is not None:
            await self._server.wait_closed()

    def drop_all(self) -> None:
        """Close every connection; slaves connect again."""
        for connection in list(self.connections):
            connection.close()

    def span(self) -> LogSpan:
        """The part of the log that can be sent."""
        commit_log = self._store.commit_log
        end = self._store.flushed_offset if self._after_flush else commit_log.written
        return LogSpan(commit_log.min_offset, end, commit_log.file_size)

    def read(self, offset: int, size: int) -> memoryview:
        """Return bytes of the log within `span`."""
        data = self._store.commit_log.read(offset, size)
        assert data is not None
        return data

    def acks(self) -> list[int]:
        """Return the offset that each slave has acknowledged."""
        return [connection.feed.acked for connection in self.connections]

    def copies(self) -> list[tuple[int, int]]:
        """Return what each slave has, as physical offsets from and to."""
        return [
            (connection.feed.holds_from, connection.feed.acked) for connection in self.connections
        ]

    def in_sync(self) -> int:
        """Return the number of slaves whose lag is less than haMaxGapNotInSync."""
        end = self._store.commit_log.written
        most = self.config.ha_max_gap_not_in_sync
        return sum(connection.feed.in_sync(end, most) for connection in self.connections)

    def hurry(self) -> None:
        """Send new bytes at once, because a send waits for replicas."""
        self._hurried = True
        self._send()

    # --- called by connections ----------------------------------------------------------------

    def joined(self, connection: HaConnection, host: str) -> bool:
        """Accept a connection from an allowed address, unless there are too many."""
        refusal = self._allowed.refusal(host)
        if refusal:
            self.lines.warning("HA port refuses %s: %s", connection.peer, refusal)
            return False
        refusal = too_many((one.host for one in self.connections), host)
        if refusal:
            self.lines.error("HA port refuses %s: %s", connection.peer, refusal)
            return False
        self.connections.append(connection)
        self._watch(self._written)
        if self._ticking is None:
            self._ticking = self._later(self._tick_seconds, self._tick)
        return True

    def left(self, connection: HaConnection) -> None:
        """Remove a closed connection."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._on_ack()
        if not self.connections:
            self._watch(None)

    def acked(self, connection: HaConnection) -> None:
        """Process a report."""
        self.most_acked = max(self.most_acked, connection.feed.acked)
        self._on_ack()

    def _watch(self, grown: Callable[[], None] | None) -> None:
        """Call `grown` when there is more to send."""
        if self._after_flush:
            self._store.on_flushed = grown
        else:
            self._store.commit_log.on_written = grown

    def _send(self) -> None:
        for connection in self.connections:
            connection.sender.hurry()

    def _written(self) -> None:
        if self._after_flush and self._hurried:
            self._hurried = False
            self._send()
        elif self._pumping is None:
            self._pumping = self._later(_GATHER_SECONDS, self._pump_all)

    def _pump_all(self) -> None:
        self._pumping = None
        for connection in self.connections:
            connection.sender.send_soon()

    def _tick(self) -> None:
        self._ticking = None
        try:
            for connection in list(self.connections):
                connection.tick()
        finally:
            if self.connections:
                self._ticking = self._later(self._tick_seconds, self._tick)

    def _later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        assert self._loop is not None, "start was not called"
        return self._loop.call_later(seconds, callback)


class HaConnection(ReportProtocol):
    """The connection of one slave; `feed` is its progress."""

    def __init__(self, server: HaServer) -> None:
        config = server.config
        super().__init__(
            LogSender(self._next_frame, config.most_ha_bytes_per_second, turns=server.turns)
        )
        self._server = server
        self._loop = asyncio.get_running_loop()
        self.feed = Feed(
            server.starts,
            batch_size=config.ha_transfer_batch_size,
            heartbeat_interval=config.ha_send_heartbeat_interval / 1000,
            housekeeping_interval=config.ha_housekeeping_interval / 1000,
            now=self._loop.time(),
        )
        self._reader = ReportReader()

    # --- asyncio ------------------------------------------------------------------------------

    def joined(self) -> bool:
        """Accept or refuse the connection."""
        return self._server.joined(self, self.host)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the slave."""
        super().connection_lost(exc)
        if self.feed.acked >= 0:
            self._server.lines.warning(
                "slave %s disconnected; it has acknowledged %d",
                self.peer,
                self.feed.acked,
                cause=("left", self.host),
            )
        self._server.left(self)

    def received(self, data: bytes) -> None:
        """Process reports."""
        is_first = self.feed.acked < 0
        try:
            offset = self._reader.feed(data)
            if offset is None:
                return
            self.feed.report(offset, self._server.span(), self._loop.time())
        except (BadFrame, UnfitSlave) as error:
            self._server.lines.error("HA port closes the connection of %s: %s", self.peer, error)
            self.close()
            return
        if is_first:
            self._server.lines.warning(
                "slave %s copies from %d on; it has the log up to %d",
                self.peer, self.feed.began, offset, cause=("came", self.host),
            )  # fmt: skip
            self.sender.send_soon()
        self._server.acked(self)

    # --- sending ------------------------------------------------------------------------------

    def tick(self) -> None:
        """Close a silent connection, send a heartbeat if it is due, and measure the rate."""
        if self.feed.is_lost(self._loop.time()):
            self._server.lines.warning(
                "HA port closes the connection of %s, which has been silent for %d ms",
                self.peer,
                self._server.config.ha_housekeeping_interval,
            )
            self.close()
            return
        self.sender.count()
        self.sender.send_soon()

    def _next_frame(self) -> tuple[bytes, memoryview | bytes] | None:
        head = self.feed.next_frame(self._server.span(), self._loop.time())
        if head is None:
            return None
        self.may_report(head.size)
        return encode_head(*head), self._server.read(*head) if head.size else b""
