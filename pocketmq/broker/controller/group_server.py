"""A master's HA port in controller mode: the connections of its slaves.

Each has a `SlaveLink` with the rules. After each write to the log, the connections send the new
bytes within 2 ms, or at once if a send waits for replicas.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from itertools import zip_longest
from typing import Final, Protocol

from pocketmq.broker.controller.ha_frames import (
    BadFrame,
    Handshake,
    Report,
    SlaveFrames,
    encode_epochs,
    encode_transfer,
)
from pocketmq.broker.controller.replica import Drop, Order, Replica
from pocketmq.broker.controller.slave_link import SlaveLink, UnfitSlave
from pocketmq.broker.replication.allowed_replicas import AllowedReplicas
from pocketmq.broker.replication.log_sender import CopyTurns, LogSender
from pocketmq.broker.replication.report_port import ReportProtocol, too_many
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.listening import serve
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_GATHER_SECONDS: Final = 0.002
_MOST_UNREAD: Final = 1024 * 1024


class Driver(Protocol):
    """Drives the rules of this broker."""

    @property
    def replica(self) -> Replica | None:
        """The rules; None before the broker is a member of a group."""

    def obey(self, orders: list[Order]) -> None:
        """Execute the orders of the rules, and publish changes."""

    async def cut_torn(self) -> None:
        """Wait until all received records are in their queues; then remove an incomplete record at
        the end. Raises StoreError, OSError."""


class GroupServer:
    """The slaves of one broker. Each gets at most `most_per_second` bytes of the log per second.
    `clock` gives monotonic milliseconds. Connections that `allowed` refuses are closed, and not
    counted. Slaves that copy much give way to `light`.

    Attributes:
        connections: the connections of slaves, in the order of arrival.
        port: the port that it listens on.
    """

    def __init__(
        self,
        store: MessageStore,
        driver: Driver,
        clock: Callable[[], int],
        allowed: AllowedReplicas,
        *,
        most_per_second: float = math.inf,
        light: LightClients | None = None,
    ) -> None:
        self.connections: list[GroupConnection] = []
        self.port = 0
        self.driver = driver
        self.clock = clock
        self.most_per_second = most_per_second
        self.lines = LimitedLog(log)
        self.turns = CopyTurns(light)
        self._store = store
        self._allowed = allowed
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._pumping: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError."""
        self._server = await serve(lambda: GroupConnection(self), host, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()
        if self._pumping is not None:
            self._pumping.cancel()
        self._store.commit_log.on_written = None
        if self._server is not None:
            await self._server.wait_closed()

    def drop(self, link: SlaveLink) -> None:
        """Close the connection of a slave."""
        for connection in list(self.connections):
            if connection.link is link:
                connection.close()

    def note_in_turn(self, connection: GroupConnection, dropped: list[Order]) -> None:
        """Log that two slaves with the same id disconnect each other."""
        links = [order.link for order in dropped if isinstance(order, Drop)]
        peers = [one.peer for one in self.connections if one.link in links]
        if connection.link is not None and peers:
            self.lines.warning(
                "two slaves with the id %d connect in turn, from %s and from %s, and each one's "
                "connection ends the other's: brokerIdentity of one is a copy. Stop it, remove "
                "brokerIdentity from its store, and start it again",
                connection.link.slave_id, peers[0], connection.peer,
            )  # fmt: skip

    def read(self, offset: int, size: int) -> memoryview:
        """Return bytes of the log; the rules ensure that they exist."""
        data = self._store.commit_log.read(offset, size)
        assert data is not None
        return data

    def hurry(self) -> None:
        """Send new bytes at once, because a send waits for replicas."""
        for connection in list(self.connections):
            connection.sender.hurry()

    # --- called by connections ----------------------------------------------------------------

    def joined(self, connection: GroupConnection, host: str) -> SlaveLink | None:
        """Accept a connection from an allowed address, unless there are too many, or this is not a
        master."""
        refusal = self._allowed.refusal(host)
        if refusal:
            self.lines.warning("HA port refuses %s: %s", connection.peer, refusal)
            return None
        refusal = too_many((one.host for one in self.connections), host)
        if refusal:
            self.lines.error("HA port refuses %s: %s", connection.peer, refusal)
            return None
        replica = self.driver.replica
        if replica is None:
            return None
        link = replica.accepted(self.clock())
        if link is not None:
            self.connections.append(connection)
            self._store.commit_log.on_written = self._written
        return link

    def left(self, connection: GroupConnection) -> None:
        """Remove a closed connection."""
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        replica, link = self.driver.replica, connection.link
        if replica is not None and link is not None:
            self.driver.obey(replica.closed(link, self.clock()))
        if not self.connections:
            self._store.commit_log.on_written = None

    def _written(self) -> None:
        if self._pumping is None:
            self._pumping = self._loop.call_later(_GATHER_SECONDS, self._pump_all)

    def _pump_all(self) -> None:
        self._pumping = None
        for connection in self.connections:
            connection.sender.send_soon()


class GroupConnection(ReportProtocol):
    """The connection of one slave; `link` has the rules, None for a refused connection."""

    def __init__(self, server: GroupServer) -> None:
        super().__init__(LogSender(self._next_frame, server.most_per_second, turns=server.turns))
        self.link: SlaveLink | None = None
        self._server = server
        self._reader = SlaveFrames()

    def joined(self) -> bool:
        """Accept or refuse the connection."""
        self.link = self._server.joined(self, self.host)
        return self.link is not None

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the slave."""
        super().connection_lost(exc)
        if self.link is not None and self.link.slave_id > 0:
            self._server.lines.warning(
                "slave %d at %s disconnected",
                self.link.slave_id,
                self.peer,
                cause=("left", self.link.slave_id),
            )
        self._server.left(self)

    def received(self, data: bytes) -> None:
        """Process bytes from the slave."""
        replica, link = self._server.driver.replica, self.link
        if replica is None or link is None or link not in replica.links:
            return  # it is being dropped
        now = self._server.clock()
        orders: list[Order] = []
        begins = False
        try:
            frames = self._reader.feed(data)
            for frame, following in zip_longest(frames, frames[1:]):
                if isinstance(frame, Handshake):
                    answer, more = replica.greeted(link, frame, now)
                    orders += more
                    if link.in_turn:
                        self._server.note_in_turn(self, more)
                    if answer is not None:
                        if self._transport.get_write_buffer_size() > _MOST_UNREAD:
                            raise BadFrame("it does not read the answers to its handshakes")
                        self._server.lines.warning(
                            "slave %d connected from %s; this log ends at %d, with the epochs %s",
                            frame.broker_id, self.peer, answer.end, answer.epochs,
                            cause=("came", frame.broker_id),
                        )  # fmt: skip
                        self._transport.write(encode_epochs(answer))
                elif not isinstance(following, Report):  # only the last of several reports counts
                    first = link.acked < 0
                    orders += replica.reported(link, frame, now)
                    if first:
                        begins = True
                        log.info("slave %d copies from %d on", link.slave_id, frame.offset)
        except (BadFrame, UnfitSlave) as error:
            self._server.lines.error("HA port closes the connection of %s: %s", self.peer, error)
            self.close()
        self._server.driver.obey(orders)
        if begins:
            self.sender.send_soon()

    # --- sending ------------------------------------------------------------------------------

    def _next_frame(self) -> tuple[bytes, memoryview | bytes] | None:
        replica, link = self._server.driver.replica, self.link
        if replica is None or link is None or link not in replica.links:
            return None
        head = replica.next_transfer(link, self._server.clock())
        if head is None:
            return None
        self.may_report(head.size)
        body = self._server.read(head.offset, head.size) if head.size else b""
        return encode_transfer(head), body
