"""All metrics of one broker, from counters that its parts keep for other purposes.

This module is not on the hot path. A scrape reads the tables on the event loop, where they are
changed, a millisecond at a time. Names, labels and units are those of a 5.3.3 broker; RocketMQ does
not have the metrics that begin with `pocketmq_`. Reference: BrokerMetricsManager,
DefaultStoreMetricsManager, RemotingMetricsManager.
"""

from __future__ import annotations

import re
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.delivery import DelayedDelivery
from pocketmq.broker.health_check import HealthCheck
from pocketmq.broker.metrics.consumer_lag import ConsumerLag
from pocketmq.broker.metrics.creation_times import CreationTimes
from pocketmq.broker.metrics.health_metrics import health_metrics
from pocketmq.broker.metrics.pop_metrics import pop_metrics
from pocketmq.broker.metrics.replication_metrics import replication_metrics
from pocketmq.broker.pop.consumption import PopConsumption
from pocketmq.broker.processors.pull import PullProcessor
from pocketmq.broker.processors.send.send import SendProcessor
from pocketmq.broker.statistics.message_types import SIZE_BOUNDS
from pocketmq.broker.statistics.timer_counts import DELAY_BOUNDS
from pocketmq.broker.statistics.transaction_counts import FINISH_BOUNDS
from pocketmq.broker.tables.consumer_groups import ClientInfo
from pocketmq.broker.tables.subscription_group import is_tool_group
from pocketmq.broker.tables.tables import Tables
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.message.record_layout import MIN_RECORD
from pocketmq.monitoring.families import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Distribution,
    Family,
    Labels,
    Value,
    certificate_expiry,
)
from pocketmq.monitoring.pace import Pace
from pocketmq.monitoring.rpc_family import PROTOCOL, rpc_latency
from pocketmq.remoting.codes import release_of
from pocketmq.remoting.serving.rpc_latency import RpcLatency
from pocketmq.store.message_store import MessageStore

_SEPARATORS: Final = re.compile(r"[.-]")

Points = list[tuple[Labels, Value]]

_STORAGE: Final = ("storage_type", "storage_medium")
_DISK: Final = ("local", "disk")
_PROCESSORS: Final = (
    "send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull",
    "transaction", "consumer_manager", "admin", "reply",
)  # fmt: skip
_MODES: Final = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
#: Seconds from now, the bounds of the counts of timed messages that are due.
TIMER_BOUNDS: Final = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)


class BrokerMetrics:
    """The metrics of one broker. `clock` gives milliseconds, `replication` the figures of its
    copies, `connections` the number of open connections, `name_servers` the number of name servers
    at which it is registered, and `expires_at` the expiry of its certificate in Unix seconds.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        tables: Tables,
        sends: SendProcessor,
        pulls: PullProcessor,
        delayed: DelayedDelivery,
        pop: PopConsumption,
        replication: Callable[[], Mapping[str, object]],
        health: HealthCheck,
        latency: RpcLatency,
        creations: CreationTimes,
        clock: Callable[[], int],
        *,
        connections: Callable[[], int],
        name_servers: Callable[[], int],
        expires_at: Callable[[], float | None],
    ) -> None:
        self._config = config
        self._store = store
        self._tables = tables
        self._sends = sends
        self._pulls = pulls
        self._delayed = delayed
        self._pop = pop
        self._replication = replication
        self._health = health
        self._latency = latency
        self._creations = creations
        self._clock = clock
        self._connections = connections
        self._name_servers = name_servers
        self._expires_at = expires_at
        self._lag = ConsumerLag(config, store, tables, clock)

    async def families(self) -> list[Family]:
        """Return all metrics."""
        pace = Pace()
        return [
            *await self._messages_in(pace),
            *await self._messages_out(pace),
            *await self._lags(pace),
            *self._clients(),
            *self._requests(),
            *self._broker(),
            *self._storage(),
            *await self._timers(pace),
            *self._transactions(),
            *pop_metrics(self._pop, self._tables.statistics.pops),
            *replication_metrics(self._replication()),
            *self._own(),
        ]

    def _is_system(self, topic: str, group: str = "") -> str:
        return _flag(self._tables.topics.is_system(topic) or is_tool_group(group))

    # --- traffic --------------------------------------------------------------------------------

    async def _messages_in(self, pace: Pace) -> Iterator[Family]:
        messages: Points = []
        sizes: Points = []
        distributions: Points = []
        statistics = self._tables.statistics
        for topic, traffic in list(statistics.topic_put.items()):
            await pace.breathe()
            is_system = self._is_system(topic)
            types = statistics.types_of(topic)
            for kind, count, size, buckets in types.split(traffic.messages, traffic.size):
                labels = topic, kind, is_system
                messages.append((labels, count))
                sizes.append((labels, size))
                distributions.append((labels, Distribution(buckets, size)))
        names = ("topic", "message_type", "is_system")
        return iter(
            (
                Family("rocketmq_messages_in_total", COUNTER, "Messages stored", names, messages),
                Family("rocketmq_throughput_in_total", COUNTER, "Bytes stored", names, sizes),
                Family(
                    "rocketmq_message_size",
                    HISTOGRAM,
                    "Bytes of stored messages",
                    names,
                    distributions,
                    bounds=SIZE_BOUNDS,
                ),
            )
        )

    async def _messages_out(self, pace: Pace) -> Iterator[Family]:
        messages: Points = []
        sizes: Points = []
        more, more_size = 0, 0
        table = self._tables.statistics.group_get
        most = self._config.metrics_otel_cardinality_limit
        others = list(table.values())[most:]
        for key, traffic in list(islice(table.items(), most)):
            await pace.breathe()
            topic, _, group = key.partition("@")
            labels = topic, group, self._is_system(topic, group), _is_retry(topic)
            messages.append((labels, traffic.messages))
            sizes.append((labels, traffic.size))
        for first in range(0, len(others), _AT_ONCE):
            await pace.breathe()
            for traffic in others[first : first + _AT_ONCE]:
                more += traffic.messages
                more_size += traffic.size
        names = ("topic", "consumer_group", "is_system", "is_retry")
        dropped = len(others)
        pulled = Family(
            "rocketmq_messages_out_total", COUNTER, "Messages pulled", names, messages,
            dropped=dropped, rest=more,
        )  # fmt: skip
        size = Family(
            "rocketmq_throughput_out_total", COUNTER, "Bytes pulled", names, sizes,
            dropped=dropped, rest=more_size,
        )  # fmt: skip
        return iter((pulled, size, self._dead_letters()))

    def _dead_letters(self) -> Family:
        return Family(
            "rocketmq_send_to_dlq_messages_total",
            COUNTER,
            "Messages that groups gave up",
            ("topic", "consumer_group", "is_system"),
            [
                ((topic, group, self._is_system(topic, group)), count)
                for (topic, group), count in self._tables.statistics.dead_letters.items()
            ],
        )

    async def _lags(self, pace: Pace) -> Iterator[Family]:
        names = ("topic", "consumer_group", "is_retry", "is_system")
        figures: dict[str, Points] = {name: [] for name in _LAGS}
        lags, dropped = await self._lag.largest(pace, self._config.metrics_otel_cardinality_limit)
        for each in lags:
            await pace.breathe()
            topic, group = each.topic, each.group
            labels = topic, group, _is_retry(topic), self._is_system(topic, group)
            for name, value in (
                ("lag_messages", each.lag),
                ("lag_latency", each.lag_latency),
                ("inflight_messages", each.inflight),
                ("queueing_latency", each.queueing_latency),
                ("ready_messages", each.lag - each.inflight),
            ):
                figures[name].append((labels, value))
        return (
            Family(
                f"rocketmq_consumer_{name}",
                GAUGE,
                text,
                names,
                figures[name],
                "milliseconds" if name.endswith("latency") else "",
                dropped=dropped,
            )
            for name, text in _LAGS.items()
        )

    # --- clients --------------------------------------------------------------------------------

    def _clients(self) -> Iterator[Family]:
        producers = {
            client.connection: client
            for members in self._tables.producers.all().values()
            for client in members
        }
        by_kind = Counter(_client_labels(client) for client in producers.values())
        yield Family(
            "rocketmq_producer_connections",
            GAUGE,
            "Producers that are connected",
            ("language", "version", "protocol_type"),
            [((*kind, PROTOCOL), count) for kind, count in by_kind.items()],
        )
        consumers: Counter[Labels] = Counter()
        for name in self._tables.consumers.names():
            group = self._tables.consumers.get(name)
            if group is not None:
                mode = _MODES.get(group.consume_type, "unknown")
                consumers.update(
                    (name, *_client_labels(client), mode, PROTOCOL, _flag(is_tool_group(name)))
                    for client in group.clients.values()
                )
        yield Family(
            "rocketmq_consumer_connections",
            GAUGE,
            "Consumers that are connected",
            (
                "consumer_group", "language", "version", "consume_mode", "protocol_type",
                "is_system",
            ),
            list(consumers.items()),
        )  # fmt: skip

    def _requests(self) -> Iterator[Family]:
        yield rpc_latency(self._latency)
        yield from self._creations.families()
        waiting = {"send": self._sends.unflushed.count}
        yield Family(
            "rocketmq_processor_watermark",
            GAUGE,
            "Requests that wait: sends for the disk, others never",
            ("processor",),
            [((name,), waiting.get(name, 0)) for name in _PROCESSORS],
        )

    def _broker(self) -> Iterator[Family]:
        tables = self._tables
        yield _gauge(
            "rocketmq_broker_permission", "4 read, 2 write", self._config.broker_permission
        )
        yield _gauge("rocketmq_topic_number", "Topics", len(tables.topics.table))
        yield _gauge("rocketmq_consumer_group_number", "Groups", len(tables.groups.table))

    # --- the store ------------------------------------------------------------------------------

    def _storage(self) -> Iterator[Family]:
        store = self._store
        log = store.commit_log
        oldest = log.store_timestamp_at(log.min_offset, MIN_RECORD)
        reserved = self._clock() - oldest if oldest > 0 else 0
        used = shutil.disk_usage(self._config.commit_log_directory).used
        behind = log.end - store.flushed_offset
        yield _stored("rocketmq_storage_size", "Used space of the disk", used, "bytes")
        yield _stored("rocketmq_storage_flush_behind", "Not on the disk yet", behind, "bytes")
        yield _stored(
            "rocketmq_storage_dispatch_behind",
            "Not in the consume queues, or not in the index",
            store.dispatch_behind,
            "bytes",
        )
        yield _stored(
            "rocketmq_storage_message_reserve_time",
            "Age of the oldest message",
            max(reserved, 0),
            "milliseconds",
        )

    async def _timers(self, pace: Pace) -> Iterator[Family]:
        timers = self._tables.statistics.timers
        behind = self._delayed.timer.behind()
        overdue = 0
        due = dict.fromkeys(TIMER_BOUNDS, 0)
        index = self._delayed.timer.index
        now = self._clock()
        for slot in index.slots():
            await pace.breathe()
            ahead = (slot - now) / 1000
            # A slave may have a recall alone, whose message was delivered before.
            messages = max(index.congestion(slot), 0)
            if slot + index.precision <= now:
                overdue += messages
            elif ahead < TIMER_BOUNDS[-1]:
                due[TIMER_BOUNDS[bisect_right(TIMER_BOUNDS, ahead)]] += messages
        return iter(
            (
                _stored("rocketmq_timer_enqueue_lag", "Messages not yet read", behind.unread),
                _stored(
                    "rocketmq_timer_enqueue_latency",
                    "Age of the next message to read",
                    behind.unread_ms,
                    "milliseconds",
                ),
                _stored("rocketmq_timer_dequeue_lag", "Messages that are overdue", overdue),
                _stored(
                    "rocketmq_timer_dequeue_latency",
                    "How long the next message is overdue",
                    behind.late_ms,
                    "milliseconds",
                ),
                _by_topic(
                    "rocketmq_timing_messages",
                    GAUGE,
                    "Waiting timed messages",
                    timers.waiting(self._tables.topics.table),
                ),
                _by_topic(
                    "rocketmq_timer_enqueue_total",
                    COUNTER,
                    "Messages that began to wait",
                    timers.enqueued,
                ),
                _by_topic(
                    "rocketmq_timer_dequeue_total",
                    COUNTER,
                    "Messages delivered at their time",
                    timers.dequeued,
                ),
                Family(
                    "rocketmq_timer_message_snapshot",
                    GAUGE,
                    "Messages that are due within these seconds, and not within the bound before",
                    ("timer_bound_s", *_STORAGE),
                    [((str(bound), *_DISK), count) for bound, count in due.items()],
                ),
                Family(
                    "rocketmq_delay_message_latency",
                    HISTOGRAM,
                    "How long messages are to wait",
                    ("topic", *_STORAGE),
                    [((*labels, *_DISK), value) for labels, value in timers.delays.points()],
                    "seconds",
                    DELAY_BOUNDS,
                ),
            )
        )

    def _transactions(self) -> Iterator[Family]:
        counts = self._tables.statistics.transactions
        for name, kind, text, table in (
            ("half_messages", GAUGE, "Open transactions", counts.pending),
            ("commit_messages_total", COUNTER, "Transactions committed", counts.committed),
            ("rollback_messages_total", COUNTER, "Transactions rolled back", counts.rolled_back),
        ):
            points: Points = [((topic,), count) for topic, count in list(table.items())]
            yield Family(f"rocketmq_{name}", kind, text, ("topic",), points)
        yield Family(
            "rocketmq_finish_message_latency",
            HISTOGRAM,
            "Seconds, whatever the name says, from the send to the commit",
            ("topic",),
            counts.finish.points(),
            "milliseconds",
            FINISH_BOUNDS,
        )

    # --- metrics that RocketMQ does not have ----------------------------------------------------

    def _own(self) -> Iterator[Family]:
        store = self._store
        health = self._health.now()
        yield from health_metrics(health)
        yield certificate_expiry(self._expires_at())
        disk = shutil.disk_usage(self._config.commit_log_directory)
        yield _gauge("pocketmq_storage_capacity", "Size of the disk", disk.total, "bytes")
        yield _gauge("pocketmq_storage_free", "Space for the broker's user", disk.free, "bytes")
        for name, text, count in (
            ("puts_refused", "Messages that the store refused", store.counters.puts_refused),
            (
                "damaged_messages",
                "Messages that could not be read",
                store.counters.messages_passed_over,
            ),
        ):
            yield Family(f"pocketmq_{name}", COUNTER, text, (), [((), count)])
        yield _gauge("pocketmq_connections", "Open connections", self._connections())
        yield _gauge("pocketmq_held_pulls", "Long polls that wait", len(self._pulls.holds))
        yield _gauge(
            "pocketmq_registered_name_servers",
            "Name servers that know the broker",
            self._name_servers(),
        )


_AT_ONCE: Final = 1000

_LAGS: Final = {
    "lag_messages": "Messages that are not committed",
    "lag_latency": "Age of the oldest message that is not committed",
    "inflight_messages": "Messages that are pulled and not committed",
    "queueing_latency": "Age of the oldest message that is not pulled",
    "ready_messages": "Messages that are not pulled",
}


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _is_retry(topic: str) -> str:
    return _flag(topic.startswith(RETRY_PREFIX))


def _client_labels(client: ClientInfo) -> tuple[str, str]:
    version = release_of(client.version)
    known = version[0].isdigit()
    return client.language.lower(), "v" + _SEPARATORS.sub(
        "_", version.lower()
    ) if known else "unknown"


def _gauge(name: str, text: str, value: float, unit: str = "") -> Family:
    return Family(name, GAUGE, text, (), [((), value)], unit)


def _stored(name: str, text: str, value: float, unit: str = "") -> Family:
    return Family(name, GAUGE, text, _STORAGE, [(_DISK, value)], unit)


def _by_topic(name: str, kind: str, text: str, table: Mapping[str, int]) -> Family:
    points: Points = [((topic, *_DISK), count) for topic, count in list(table.items())]
    return Family(name, kind, text, ("topic", *_STORAGE), points)
