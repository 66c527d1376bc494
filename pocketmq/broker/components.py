"""The working components of one broker: the parts that store, deliver and answer.

A processor serves one family of requests; `dispatcher` returns a table of all request codes. This
module passes each component its dependencies; no component imports this module.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from pocketmq.auth.admin import AuthProcessor
from pocketmq.auth.audit import audit
from pocketmq.auth.service import Auth
from pocketmq.broker.acknowledge.put_safety import PutSafety
from pocketmq.broker.acknowledge.put_times import PutTimes
from pocketmq.broker.acknowledge.unwritten_sends import UnwrittenSends
from pocketmq.broker.background import CallLater
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.controller.group_replication import GroupReplication
from pocketmq.broker.controller.role_services import RoleServices
from pocketmq.broker.delayed.delivery import DelayedDelivery
from pocketmq.broker.destinations import Destinations
from pocketmq.broker.health_check import HealthCheck
from pocketmq.broker.inner_message import PutHooks
from pocketmq.broker.live_config import LiveConfig
from pocketmq.broker.metrics.broker_metrics import BrokerMetrics
from pocketmq.broker.metrics.creation_times import CreationTimes
from pocketmq.broker.pop.consumption import PopConsumption
from pocketmq.broker.pop.long_polling import PopLongPolling
from pocketmq.broker.pop.order_locks import OrderLocks
from pocketmq.broker.processors.admin.cleaning import CleaningProcessor
from pocketmq.broker.processors.admin.connections import ConnectionsProcessor
from pocketmq.broker.processors.admin.consume_stats import ConsumeStatsProcessor
from pocketmq.broker.processors.admin.controller_mode import ControllerModeProcessor
from pocketmq.broker.processors.admin.group import GroupProcessor
from pocketmq.broker.processors.admin.offset import OffsetAdminProcessor
from pocketmq.broker.processors.admin.replication import ReplicationProcessor
from pocketmq.broker.processors.admin.settings import SettingsProcessor
from pocketmq.broker.processors.admin.stats import AdminProcessor
from pocketmq.broker.processors.admin.topic import TopicProcessor
from pocketmq.broker.processors.batch import BatchProcessor
from pocketmq.broker.processors.client import ClientProcessor
from pocketmq.broker.processors.forward import ForwardProcessor
from pocketmq.broker.processors.message_query import MessageQueryProcessor
from pocketmq.broker.processors.offset import OffsetProcessor
from pocketmq.broker.processors.pop.access import PopAccess
from pocketmq.broker.processors.pop.ack import AckProcessor
from pocketmq.broker.processors.pop.assignment import AssignmentProcessor
from pocketmq.broker.processors.pop.change_invisible_time import ChangeInvisibleTimeProcessor
from pocketmq.broker.processors.pop.notification import NotificationProcessor
from pocketmq.broker.processors.pop.peek import PeekProcessor
from pocketmq.broker.processors.pop.pop import PopProcessor
from pocketmq.broker.processors.pull import PullProcessor
from pocketmq.broker.processors.queue_lock import QueueLockProcessor
from pocketmq.broker.processors.send.checks import SendChecks
from pocketmq.broker.processors.send.end_transaction import EndTransactionProcessor
from pocketmq.broker.processors.send.recall import RecallProcessor
from pocketmq.broker.processors.send.reply import ReplyProcessor
from pocketmq.broker.processors.send.send import SendProcessor
from pocketmq.broker.processors.send.send_back import SendBackProcessor
from pocketmq.broker.replication import slave_gate
from pocketmq.broker.replication.allowed_replicas import AllowedReplicas
from pocketmq.broker.replication.metadata_sync import MetadataSync
from pocketmq.broker.replication.replication import Replication
from pocketmq.broker.runtime_info import RuntimeInfo
from pocketmq.broker.tables.tables import Tables
from pocketmq.broker.topic_routes import AskNameServers, TopicRoutes, ask_nobody
from pocketmq.broker.transactions.transactions import Transactions
from pocketmq.broker.waiting.compile_queue import CompileQueue
from pocketmq.remoting.monotonic import MonotonicClock, monotonic_ms
from pocketmq.remoting.serving.body_limits import limit_bodies
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.long_requests import LongRequests
from pocketmq.remoting.serving.rpc_latency import RpcLatency
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.store.message_store import MessageStore

if TYPE_CHECKING:
    from pocketmq.broker.tracing import Tracing


log = logging.getLogger(__name__)


class Processor(Protocol):
    """Serves one family of requests."""

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the codes of the family here."""


class Components:
    """The components of one broker; the constructor reads files and may raise ConfigFileError.

    `address` is the broker's address for clients, `store_host` the same packed; `clock` gives
    milliseconds; `work_clock` gives seconds, and measures how long a request works;
    `on_settings(keys)` is called with the property names of changed settings; `announced()` waits,
    for a bounded time, until the name servers have the latest changes; `unregistered()` returns why
    no client can find this broker, empty if clients can; `ask` sends a request to the name servers;
    `links` encrypts connections to a master; `auth` has the users and permissions, None allows
    everything. With `measuring`, each request is timed; `tracing` makes spans.

    Attributes:
        light: the clients of all ports that send little; other work gives way to them.
    """

    def __init__(
        self,
        config: BrokerConfig,
        tables: Tables,
        store: MessageStore,
        *,
        address: str,
        store_host: bytes,
        clock: Callable[[], int],
        monotonic: MonotonicClock = monotonic_ms,
        work_clock: Callable[[], float] = perf_counter,
        call_later: CallLater,
        on_settings: Callable[[frozenset[str]], None],
        announced: Callable[[], Awaitable[None]],
        unregistered: Callable[[], str] = lambda: "",
        ask: AskNameServers = ask_nobody,
        links: ssl.SSLContext | None = None,
        auth: Auth | None = None,
        measuring: bool = False,
        tracing: Tracing | None = None,
    ) -> None:
        self._config = config
        self._tables = tables
        self._store = store
        self._address = address
        self._clock = clock
        self._monotonic = monotonic
        self._call_later = call_later
        self._announced = announced
        self._ask = ask
        self._auth = auth
        self._creations = CreationTimes(tables.topics.is_system)
        self.light = LightClients()
        tables.offsets.log_flushed = store.all_flushed
        self._latency = RpcLatency(listeners=self._creations.listeners)
        self._measuring = measuring
        self._tracing = tracing
        self._live = LiveConfig(config, on_settings, clock)
        put_hooks = self._put_hooks = PutHooks(
            store, tables.topics.takes_messages, Destinations(tables.topics)
        )
        self.transactions = Transactions(
            config,
            store,
            put_hooks,
            tables.topics,
            tables.producers,
            tables.offsets,
            store_host,
            clock,
            tables.statistics.transactions,
        )
        self._delayed = DelayedDelivery(
            config, store, put_hooks, tables.statistics, tables.directory, clock, call_later
        )
        self.unwritten = UnwrittenSends(config, store, store_host)
        self._safety = PutSafety(store)
        checks = SendChecks(config, tables.topics, tables.groups, tables.locks, clock)
        self.sends = SendProcessor(
            config,
            store,
            put_hooks,
            checks,
            tables.statistics,
            self.unwritten,
            self._safety,
            store_host,
            announced,
        )
        self.put_times = PutTimes(store, self.sends.unflushed, monotonic)
        self._replies = ReplyProcessor(
            config,
            put_hooks,
            checks,
            tables.producers,
            tables.statistics,
            self.unwritten,
            self._safety,
            store_host,
            clock,
        )
        self._long = LongRequests(self.light, clock=work_clock)
        self._compiling = CompileQueue(self.light, clock=work_clock)
        self.pulls = PullProcessor(
            config,
            store,
            tables.topics,
            tables.groups,
            tables.consumers,
            tables.filters,
            tables.offsets,
            tables.statistics,
            self._compiling,
            lacks_master=lambda: self.replication.lacks_master,
        )
        holds = self.pulls.holds
        holds.woken.light = holds.parents.light = self.light
        self.pop = PopConsumption(
            config,
            store,
            put_hooks,
            tables,
            self._delayed.timer,
            store_host,
            clock,
            call_later,
        )
        self.group: GroupReplication | None = None
        self.replication: Replication | GroupReplication
        allowed = self._allowed_replicas = AllowedReplicas(config)
        if config.enable_controller_mode:
            metadata = MetadataSync(config, tables, self._delayed, self.pop.modes, store, tls=links)
            self.replication = self.group = GroupReplication(
                config,
                store,
                metadata,
                self._safety,
                allowed,
                address=address,
                tls=links,
                light=self.light,
            )
        else:
            self.replication = Replication(
                config,
                store,
                tables,
                self._delayed,
                self.pop.modes,
                self._safety,
                allowed,
                address=address,
                tls=links,
                light=self.light,
            )
        self.health = HealthCheck(config, store, self.replication, unregistered)
        access = self._pop_access = PopAccess(config, tables.topics, tables.groups, clock)
        self.pops = PopProcessor(
            config,
            store,
            access,
            tables.offsets,
            self.pop.offset,
            self.pop.deliveries,
            self.pop.orders,
            self.pop.in_flight,
            tables.statistics,
            self.pulls.holds.woken,
            self._compiling,
            clock,
            call_later,
        )
        self.notifications = NotificationProcessor(
            config,
            store,
            access,
            self.pop.offset,
            self.pop.orders,
            self.pulls.holds.woken,
            self._compiling,
            clock,
            call_later,
        )
        self._order_locks = OrderLocks(self.pop.orders, self._order_free, clock, call_later)
        self._processors = (
            *self._for_clients(),
            *self._for_pop_clients(),
            *self._for_admins(),
        )

    def _for_clients(self) -> Sequence[Processor]:
        """Make the processors that applications need, except for pulls."""
        config, tables, store, clock = self._config, self._tables, self._store, self._clock
        return (
            self.sends,
            self._replies,
            EndTransactionProcessor(
                config,
                store,
                self._put_hooks,
                self.transactions.ops,
                tables.statistics,
                self.unwritten,
                self._safety,
                clock,
            ),
            SendBackProcessor(
                config,
                store,
                self._put_hooks,
                tables.topics,
                tables.groups,
                tables.statistics,
                self.unwritten,
            ),
            RecallProcessor(
                config, tables.topics, self._put_hooks, tables.statistics, self.unwritten, clock
            ),
            OffsetProcessor(
                config,
                store,
                tables.topics,
                tables.groups,
                tables.offsets,
                self._delayed.delay_offsets,
                self._long,
            ),
            QueueLockProcessor(tables.locks, tables.client_ids, self._call_later, self._long),
            MessageQueryProcessor(config, store, tables.topics, tables.consumers, tables.filters),
            ClientProcessor(
                config,
                tables.topics,
                tables.groups,
                tables.consumers,
                tables.producers,
                tables.client_ids,
                self._compiling,
                self._monotonic,
                self._long,
            ),
        )

    def _for_pop_clients(self) -> Sequence[Processor]:
        """Make the processors of POP consumption that never wait for messages."""
        config, tables, store, pop = self._config, self._tables, self._store, self.pop
        return (
            AckProcessor(
                config,
                store,
                self._pop_access,
                tables.offsets,
                pop.deliveries,
                pop.orders,
                pop.in_flight,
                self.pops.polling,
                self.unwritten,
                self._long,
            ),
            ChangeInvisibleTimeProcessor(
                store,
                self._pop_access,
                tables.offsets,
                pop.deliveries,
                pop.orders,
                self.unwritten,
                self._clock,
            ),
            AssignmentProcessor(
                config,
                tables.topics,
                tables.groups,
                tables.consumers,
                TopicRoutes(config, tables.topics, self._ask),
                pop.modes,
            ),
        )

    def _for_admins(self) -> Sequence[Processor]:
        """Make the processors that operators and their tools need."""
        config, tables, store, clock = self._config, self._tables, self._store, self._clock
        runtime_info = RuntimeInfo(
            config,
            store,
            tables.statistics,
            self.sends,
            self.pulls,
            self.put_times,
            self._delayed,
            self.replication,
            self.health,
            clock,
            self._monotonic,
        )
        wake_topic = self._wake_topic
        return (
            AdminProcessor(runtime_info, tables.statistics),
            ReplicationProcessor(
                store,
                self.replication,
                self._delayed.timer,
                tables.topics,
                tables.statistics.timers,
                self._address,
            ),
            ControllerModeProcessor(self.group),
            SettingsProcessor(self._live, self._announced),
            TopicProcessor(
                config,
                store,
                tables.topics,
                tables.groups,
                tables.offsets,
                tables.statistics,
                self._announced,
                wake_topic,
                self._long,
            ),
            GroupProcessor(
                config,
                tables.groups,
                tables.offsets,
                tables.statistics,
                self.pop.forget_group,
                self._long,
            ),
            ConnectionsProcessor(tables.consumers, tables.producers, clock, self._monotonic),
            ConsumeStatsProcessor(
                config,
                store,
                tables.topics,
                tables.groups,
                tables.consumers,
                tables.offsets,
                tables.statistics,
                self._address,
                clock,
                self._long,
            ),
            OffsetAdminProcessor(
                config,
                store,
                tables.topics,
                tables.groups,
                tables.consumers,
                tables.offsets,
                wake_topic,
                self._long,
            ),
            ForwardProcessor(config, store, tables.topics, tables.groups, tables.consumers),
            CleaningProcessor(store, tables.topics),
            AuthProcessor(self._auth.tables if self._auth is not None else None),
        )

    def dispatcher(self, *, pulls: bool = True, guarded: bool = True) -> Dispatcher:
        """Return a table of all request codes that are served, alone and as children of batches.

        The VIP channel does not serve pulls, which would delay sends. Without `guarded`, requests
        are not authenticated: this is for a proxy in this process, which checks its clients itself.
        """
        dispatcher = Dispatcher()
        if pulls:
            for waiting in (self.pulls, self.pops, self.notifications):
                waiting.register(dispatcher)
            PeekProcessor(
                self._config, self._store, self._pop_access, self.pop.offset, self._long
            ).register(dispatcher)
        for processor in self._processors:
            processor.register(dispatcher)
        # It looks up its children's processors, so it is registered last.
        BatchProcessor(self._config, dispatcher, self.pulls.holds, self._long).register(dispatcher)
        if self._config.is_slave:  # a member of a controller group starts as a slave
            group = self.group
            slave_gate.guard(
                dispatcher, self._config, lambda: group is not None and group.shows_unconfirmed
            )
        self._allowed_replicas.watch(dispatcher)
        audit(dispatcher)
        if self._auth is not None and guarded:
            self._auth.protect(dispatcher, self._config.broker_cluster_name)
        limit_bodies(dispatcher)
        if self._tracing is not None:
            self._tracing.trace(dispatcher)
        if self._measuring:
            dispatcher.measure(self._latency)
        return dispatcher

    def metrics(
        self,
        *,
        connections: Callable[[], int],
        name_servers: Callable[[], int],
        expires_at: Callable[[], float | None],
    ) -> BrokerMetrics:
        """Return the broker's metrics; see `BrokerMetrics` for the arguments."""
        return BrokerMetrics(
            self._config,
            self._store,
            self._tables,
            self.sends,
            self.pulls,
            self._delayed,
            self.pop,
            self.replication.figures,
            self.health,
            self._latency,
            self._creations,
            self._clock,
            connections=connections,
            name_servers=name_servers,
            expires_at=expires_at,
        )

    def start(
        self,
        stack: StopSteps,
        on_role: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """Start the background work, which ends when `stack` is closed.

        `on_role(broker_id)` is called when a controller gives this broker a role.
        The store must have been started. Raises StoreError.
        """
        stack.callback(self.pulls.holds.close)
        if isinstance(self.replication, GroupReplication):
            assert on_role is not None, "a member of a controller group registers with its role"
            self._delayed.follow(stack)
            self.pop.follow(stack)
            services = RoleServices(
                self._config,
                self._store,
                self._tables.topics,
                self.transactions,
                self._delayed,
                self._take_over_consumption,
                on_role,
            )
            stack.push_step(services.stop)
            self.replication.join(stack, services)
        elif self._config.is_slave:
            self._delayed.follow(stack)
            self.pop.follow(stack)
            self.replication.follow(stack)
        else:
            self._lead(stack)
        for polling in self._pollings:
            stack.callback(polling.close)

    def _lead(self, stack: StopSteps) -> None:
        """Start the background work of a master."""
        self.transactions.start()
        stack.callback(self.transactions.stop)
        self._delayed.start(stack)
        self.pop.start(stack)
        self._order_locks.start()
        stack.callback(self._order_locks.stop)

    def _take_over_consumption(self, stack: StopSteps) -> None:
        """After `PopConsumption.follow`: start a master's work for consumers, which ends when
        `stack` is closed."""
        stack.callback(self._tables.offsets.forget_resets)
        self.pop.take_over(stack)
        self._order_locks.start()
        stack.callback(self._order_locks.stop)
        for polling in self._pollings:
            # No message will arrive here; the clients look for the new master.
            stack.callback(polling.end_waiting)

    def end_waiting(self) -> None:
        """Answer all waiting pulls and pops now, as if they had timed out."""
        for polling in self._pollings:
            polling.end_all()
        self.pulls.holds.end_all()

    @property
    def _pollings(self) -> tuple[PopLongPolling, PopLongPolling]:
        return self.pops.polling, self.notifications.polling

    def _wake_topic(self, topic: str) -> None:
        """Execute all waiting pulls and pops of a topic again: it was deleted or changed."""
        if self._tables.topics.get(topic) is None:
            self.pop.forget_topic(topic)
        self.pulls.holds.wake_topic(topic)
        for polling in self._pollings:
            polling.wake_topic(topic)

    def _order_free(self, topic: str, group: str, queue_id: int) -> None:
        for polling in self._pollings:
            polling.wake_group(topic, group, queue_id)
