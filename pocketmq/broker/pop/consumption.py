"""The POP consumption of one broker: creates, starts and stops its parts."""

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
    """The POP consumption of one broker. `store_host` is its packed address, `clock` gives ms.

    The constructor reads consumerOrderInfo.json and messageRequestMode.json.

    Raises:
        ConfigFileError: one of these files is damaged.

    Attributes:
        deliveries: the delivered messages, except those popped in order.
        orders: the messages popped in order.
        offset: the offsets at which the next pops read.
        in_flight: the number of delivered messages.
        modes: which groups pop and which pull.
        revive: revives messages that were not acknowledged.
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
            lambda: timer.delivered_until(writer.topic),
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
        """Run as a slave until `stack` is closed: keep the tables copied from the master."""
        self.modes.start()
        stack.push_step(self.modes.stop)

    def start(self, stack: StopSteps) -> None:
        """Revive unacknowledged messages, until `stack` is closed."""
        self.follow(stack)
        self.take_over(stack)

    def take_over(self, stack: StopSteps) -> None:
        """After `follow`: revive unacknowledged messages, until `stack` is closed."""
        orders = PeriodicSave(self._config.flush_consumer_offset_interval / 1000, self.orders.save)
        orders.start()
        stack.push_step(orders.stop)
        # Even if there never was a timed message: then the timer counts as caught up.
        self.revive.start()
        stack.callback(self.deliveries.stop)
        stack.callback(self.revive.stop)

    def forget_topic(self, topic: str) -> None:
        """Remove a deleted topic."""
        self.deliveries.forget_topic(topic)
        self.orders.forget_topic(topic)
        self.modes.forget_topic(topic)

    def forget_group(self, group: str) -> None:
        """Remove a deleted group."""
        self.deliveries.forget_group(group)
