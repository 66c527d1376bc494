"""The transactions of one broker: creates their parts and runs their periodic tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.inner_message import PutHooks
from pocketmq.broker.statistics.transaction_counts import TransactionCounts
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.broker.tables.producer_groups import ProducerGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.broker.transactions.checks import TransactionChecks
from pocketmq.broker.transactions.half_message import HalfMessageHook
from pocketmq.broker.transactions.ops import Ops
from pocketmq.kept_task import KeptTask
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)


class Transactions:
    """Adds the hook of half messages to `put_hooks`, and reads the ops of an open store.

    `store_host` is the broker's packed address, `clock` gives milliseconds.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        put_hooks: PutHooks,
        topics: TopicConfigs,
        producers: ProducerGroups,
        offsets: ConsumerOffsets,
        store_host: bytes,
        clock: Callable[[], int],
        counts: TransactionCounts,
    ) -> None:
        put_hooks.hooks.append(HalfMessageHook(config))
        self.ops = Ops(store, put_hooks, store_host, clock, config.transaction_op_msg_max_size)
        self.checks = TransactionChecks(
            config,
            store,
            put_hooks,
            self.ops,
            topics,
            producers,
            offsets,
            store_host,
            clock,
            counts,
        )
        self.checks.load()
        self._config = config
        self._tasks: list[KeptTask] = []

    def start(self) -> None:
        """Start to write ops and to check; call this on the event loop."""
        self._tasks = [
            KeptTask(self._write_regularly, "ops of transactions"),
            KeptTask(self._check_regularly, "checks of transactions"),
        ]

    def take_over(self) -> None:
        """Continue where another master of this group has stopped."""
        self.checks.load()
        self.start()

    def stop(self) -> None:
        """Write the recorded ops, and stop."""
        for task in self._tasks:
            task.cancel()
        self.ops.write()

    async def _write_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.transaction_op_batch_interval / 1000)
            try:
                self.ops.write()
            except Exception:
                log.exception("writing the ops of transactions failed")

    async def _check_regularly(self) -> None:
        while True:
            # The interval may change while the broker runs.
            await asyncio.sleep(self._config.transaction_check_interval / 1000)
            try:
                await self.checks.check()
            except Exception:
                # A bug must not end the checks: the next round may succeed.
                log.exception("checking half messages failed")
