"""The services that depend on the role of a broker in a controller group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.delivery import DelayedDelivery
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.broker.transactions.transactions import Transactions
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.store.message_store import MessageStore


class RoleServices:
    """The services that only a master runs, and the registration with the name servers.

    `on_role(broker_id)` is called with the id of the new role, before the topics are registered;
    the first call registers the broker.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigs,
        transactions: Transactions,
        delayed: DelayedDelivery,
        take_over_consumption: Callable[[StopSteps], None],
        on_role: Callable[[int], Awaitable[None]],
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._transactions = transactions
        self._delayed = delayed
        self._take_over_consumption = take_over_consumption
        self._on_role = on_role
        # Without a time limit per step: a broker must not follow while it still leads.
        self._running = StopSteps(None)

    async def stop(self) -> None:
        """Stop the services of a master."""
        await self._running.aclose()

    async def lead(self, epoch: int) -> None:
        """Run the services of a master, and register. Raises StoreError, OSError."""
        await self.stop()
        # The messages of a new topic may have been copied before the topic table was.
        log = self._store.commit_log
        self._topics.adopt(self._store.queues, log.min_offset, log.end)
        self._transactions.take_over()
        self._running.callback(self._transactions.stop)
        self._delayed.take_over(self._running)
        self._take_over_consumption(self._running)
        await self._announce(epoch)

    async def follow(self, epoch: int) -> None:
        """Run the services of a slave, and register. Raises StoreError, OSError."""
        await self.stop()
        await self._announce(epoch)

    def new_reign(self, epoch: int) -> None:
        """Register again: the same master has a new epoch."""
        self._topics.new_reign(epoch)

    def was_cut(self) -> None:
        """Continue at the new ends of the log and the queues: they were truncated."""
        self._topics.log_ends(self._store.commit_log.end)
        self._delayed.was_cut()

    async def _announce(self, epoch: int) -> None:
        # If two brokers register as master, name servers keep the one with the later epoch.
        self._topics.new_reign(epoch)
        await self._on_role(self._config.broker_id)
