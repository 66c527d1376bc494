"""The POP consumption of one broker: it wires the parts together, and starts and stops them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pocketmq.broker.background import CallLater, PeriodicSave
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.timer import TimerService
from pocketmq.broker.inner_message import PutHooks
from pocketmq.broker.pop.deliveries import PopDeliveries
from pocketmq.broker.pop.in_flight import InFlight
from pocketmq.broker.pop.order_table import OrderTable
from pocketmq.broker.pop.pop_offset import PopOffset
from pocketmq.broker.pop.request_mode import MessageRequestModes
from pocketmq.broker.pop.revive import ReviveService
from pocketmq.broker.pop.revive_writer import ReviveWriter
from pocketmq.broker.tables.tables import Tables
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.store.message_store import MessageStore


class PopConsumption:
    """What is popped from one broker. `store_host` is its packed address, `clock` gives ms.

    The constructor reads consumerOrderInfo.json and messageRequestMode.json.

    Raises:
        ConfigFileError: one of them is damaged.

    Attributes:
        deliveries: what was handed out, but for what was popped in order.
        orders: what was popped in order.
        offset: where the next pop of a queue reads.
        in_flight: how much was handed out.
        modes: who pops and who pulls.
        revive: takes back what was not acknowledged.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        put_hooks: PutHooks,
        tables: Tables,
        timer: TimerService,
        store_host: bytes,
        clock: Callable[[], int],
        call_later: CallLater,
    ) -> None:
        self._config = config
        directory: Path = tables.directory
        tables.offsets.log_flushed = store.all_flushed
        self.in_flight = InFlight()
        self.orders = OrderTable(
            directory / "consumerOrderInfo.json",
            clock,
            lambda topic, group: (
                tables.topics.get(topic) is not None and tables.groups.known(group)
            ),
        )
        self.orders.load()
        self.modes = MessageRequestModes(config, directory / "messageRequestMode.json")
        self.modes.load()
        writer = ReviveWriter(config, put_hooks, tables.statistics.pops, store_host, clock)
        self.revive = ReviveService(
            config,
            store,
            put_hooks,
            writer,
            tables.topics,
            tables.groups,
            tables.offsets,
            self.in_flight,
            tables.statistics,
            lambda: timer.delivered_until,
            clock,
            call_later,
        )
        self.deliveries = PopDeliveries(
            config,
            writer,
            self.revive,
            tables.topics,
            tables.groups,
            tables.offsets,
            self.in_flight,
            clock,
            call_later,
        )
        self.offset = PopOffset(config, store, tables.offsets, self.deliveries.buffer, self.orders)

    def follow(self, stack: StopSteps) -> None:
        """Keep what is copied from a master, until `stack` is closed: this broker is a slave."""
        self.modes.start()
        stack.push_step(self.modes.stop)

    def start(self, stack: StopSteps) -> None:
        """Take back from now on what is not acknowledged, until `stack` is closed."""
        self.follow(stack)
        self.take_over(stack)

    def take_over(self, stack: StopSteps) -> None:
        """After `follow`: take back what is not acknowledged, until `stack` is closed."""
        orders = PeriodicSave(self._config.flush_consumer_offset_interval / 1000, self.orders.save)
        orders.start()
        stack.push_step(orders.stop)
        # Also if no timed message ever came: the timer counts as caught up then.
        self.revive.start()
        stack.callback(self.deliveries.stop)
        stack.callback(self.revive.stop)

    def forget_topic(self, topic: str) -> None:
        """Forget a deleted topic."""
        self.deliveries.forget_topic(topic)
        self.orders.forget_topic(topic)
        self.modes.forget_topic(topic)

    def forget_group(self, group: str) -> None:
        """Forget a deleted group."""
        self.deliveries.forget_group(group)
