"""The tables of a broker: topics, groups, offsets, and connected clients.

Some are saved in STORE/config, in the official broker's files; the others exist as long as the
connections.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Final

from pocketmq.broker.background import PeriodicSave
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.broker.tables.client_ids import ClientIds
from pocketmq.broker.tables.consumer_filter import ConsumerFilters
from pocketmq.broker.tables.consumer_groups import ConsumerGroup, ConsumerGroups
from pocketmq.broker.tables.consumer_offset import (
    LMQ_FILE,
    OFFSETS_OF_LIGHT_QUEUE,
    ConsumerOffsets,
)
from pocketmq.broker.tables.producer_groups import ProducerGroups
from pocketmq.broker.tables.queue_locks import QueueLocks
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.limited_log import LimitedLog
from pocketmq.message.limits import SCHEDULE_TOPIC
from pocketmq.monitoring.settings import ExporterType, exporter_type
from pocketmq.remoting.monotonic import MonotonicClock, monotonic_ms
from pocketmq.remoting.serving.long_requests import in_turns
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.store.files import Files

log = logging.getLogger(__name__)

SAVE_FILTERS_SECONDS: Final = 10.0

#: What is lost with each file. A broker writes them within seconds of its first start, but
#: delayOffset.json only matters after a message was delayed. consumerFilter.json is not here:
#: consumers send its content with their next heartbeats.
_LOST: Final = {
    "topics.json": "the settings of all topics are lost",
    "subscriptionGroup.json": "the settings of all consumer groups are lost",
    "consumerOffset.json": "consumer groups have no offsets and begin as new groups do",
    "delayOffset.json": "all messages of delay levels that the log still has are delivered again",
}


class Tables:
    """The tables of one broker; `clock` gives milliseconds of the wall clock.

    `on_topics(names)` is called with the changed topics, `on_members(group)` for each change about
    which the members of a group must be notified. `log_end()` returns the end of the commit log, a
    physical offset.

    Attributes:
        directory: the directory of the files.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Callable[[], int],
        on_topics: Callable[[Collection[str]], None],
        on_members: Callable[[ConsumerGroup], None],
        log_end: Callable[[], int] = lambda: 0,
        *,
        monotonic: MonotonicClock = monotonic_ms,
    ) -> None:
        self._config = config
        self._log = LimitedLog(log)
        directory = self.directory = Path(config.root / "config")
        measuring = exporter_type(config.metrics_exporter_type) is not ExporterType.DISABLE
        self.statistics = Statistics(
            config.broker_cluster_name, clock, monotonic, detailed=measuring
        )
        self.groups = SubscriptionGroups(config, directory / "subscriptionGroup.json", clock)
        self.offsets = ConsumerOffsets(
            directory / "consumerOffset.json",
            clock,
            config.consumer_offset_update_version_step,
            config.enable_lmq,
            OFFSETS_OF_LIGHT_QUEUE * config.max_lmq_consume_queue_num,
        )
        self.groups.offset_of = self.offsets.query
        self.topics = TopicConfigs(config, directory / "topics.json", clock, on_topics, log_end)
        self.filters = ConsumerFilters(config, directory / "consumerFilter.json", clock)
        self.consumers = ConsumerGroups(on_members, monotonic, self.filters)
        self.producers = ProducerGroups(monotonic)
        self.client_ids = ClientIds()
        self.locks = QueueLocks(monotonic, config.rebalance_lock_max_live_time)

    def load(self, *, in_use: bool = False) -> None:
        """Read the files; log a warning for missing files that a store `in_use` should have.

        Raises ConfigFileError, OSError.
        """
        files = Files()
        files.make_directory(self.directory)
        # Even if the directory existed: a crash may have come between its creation and the sync.
        files.sync_directory(self.directory.parent)
        if in_use:
            self._note_missing()
        for table in (self.groups, self.offsets, self.topics, self.filters):
            table.load()

    def _note_missing(self) -> None:
        for name, lost in _LOST.items():
            path = self.directory / name
            if name == "consumerOffset.json" and (self.directory / LMQ_FILE).exists():
                continue
            delayed = self.directory.parent / "consumequeue" / SCHEDULE_TOPIC
            if name == "delayOffset.json" and not delayed.is_dir():
                continue
            if not path.exists() and not path.with_name(f"{name}.bak").exists():
                log.warning(
                    "%s and its .bak are missing, but the store is in use. If there was one, %s",
                    path,
                    lost,
                )

    def keep(self, stack: StopSteps) -> None:
        """Save changes from now on, and once more when `stack` is closed."""
        self._keep(stack, self._config.flush_consumer_offset_interval / 1000, self.offsets.flush)
        for table in (self.groups, self.topics):
            table.start()
            stack.push_step(table.stop)
        self._keep(stack, SAVE_FILTERS_SECONDS, self.filters.save)

    @staticmethod
    def _keep(stack: StopSteps, seconds: float, save: Callable[[], Awaitable[None]]) -> None:
        periodic = PeriodicSave(seconds, save)
        periodic.start()
        stack.push_step(periodic.stop)

    async def expire(self) -> None:
        """Remove silent clients and expired locks."""
        silent = self._config.channel_expired_timeout
        for client in await in_turns(self.consumers.expire(silent)):
            self._log.warning("consumer %s sent no heartbeat for %d ms", client.client_id, silent)
        await in_turns(self.producers.expire(silent))
        await in_turns(self.locks.expire())
