"""A master's slaves, how many are in sync, and the puts that wait for them.

Reference: DefaultHAService, GroupTransferService, CommitLog.calcNeedAckNums.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from pocketmq.broker.config import BrokerConfig, BrokerRole
from pocketmq.broker.replication.allowed_replicas import AllowedReplicas
from pocketmq.broker.replication.ha_server import HaServer
from pocketmq.broker.replication.replica_waits import ReplicaWaits, enough
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)


class HaService:
    """The slaves of one broker, and the puts that wait for them.

    Attributes:
        server: the port and its connections.
        needed: the number of copies, including the master's, that a put needs.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        allowed: AllowedReplicas,
        light: LightClients | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._waits = ReplicaWaits(self._replicated)
        self._timer: asyncio.TimerHandle | None = None
        self._hurrying = False
        self._is_sync = config.broker_role is BrokerRole.SYNC_MASTER
        self.needed = config.in_sync_replicas if self._is_sync else 1
        self.server = HaServer(config, store, allowed, self._on_ack, light)

    def __len__(self) -> int:
        """Return the number of puts that wait for replicas."""
        return len(self._waits)

    @property
    def degrades(self) -> bool:
        """Whether the needed number of copies depends on the number of live replicas."""
        return self._is_sync and self._config.enable_slave_acting_master

    async def stop(self) -> None:
        """Fail waiting puts, and close the port."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.server.stop()
        self._waits.fail_all()

    def when_replicated(self, end: int, listener: Callable[[bool], None]) -> None:
        """Call `listener(True)` when `needed` copies have the log up to the physical offset `end`,
        or `listener(False)` after slaveTimeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.slave_timeout / 1000
        self._waits.add(end, self.needed, deadline, listener)
        if not self._waits:
            return
        if self._timer is None:
            self._timer = loop.call_at(deadline, self._expire)
        if not self._hurrying:
            # At the end of the turn, together with all other messages that were put in it.
            self._hurrying = True
            loop.call_soon(self._hurry)

    def review(self) -> None:
        """Update the number of copies that puts need, and refuse puts if there are fewer."""
        if not self.degrades:
            return
        config = self._config
        alive = self.server.in_sync() + 1
        needed = config.in_sync_replicas
        if config.enable_auto_in_sync_replicas:
            needed = max(min(needed, alive), config.min_in_sync_replicas)
        self.needed = needed
        self._store.lack_replicas(needed > alive)

    def _hurry(self) -> None:
        self._hurrying = False
        with contextlib.suppress(OSError):
            self._store.settle()
        self.server.hurry()

    def _replicated(self, end: int, needed: int) -> bool:
        return enough(self.server.copies(), end, needed)

    def _on_ack(self) -> None:
        self.review()
        self._waits.acked(max((begin for begin, _ in self.server.copies()), default=0))

    def _expire(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        next_deadline = self._waits.expire(loop.time())
        if next_deadline is not None:
            self._timer = loop.call_at(next_deadline, self._expire)
