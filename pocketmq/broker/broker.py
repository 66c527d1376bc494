"""One broker: it starts and stops everything in this package.

Start: open (and recover) the store, load the tables, listen on the port, register with the name
servers; then `start` returns. Stop does the same in reverse order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from pocketmq._extras import require
from pocketmq.auth.service import Auth
from pocketmq.auth.store import AUTH_FILE
from pocketmq.broker.address import reserve_port, resolve_advertised
from pocketmq.broker.background import CallLater, call_later, every
from pocketmq.broker.components import Components
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.member_notices import MemberNotices
from pocketmq.broker.registration import BrokerIdentity, Registration
from pocketmq.broker.tables.tables import Tables
from pocketmq.message.identity import pack_host
from pocketmq.message.sql_filter import load_parser
from pocketmq.monitoring.exporter import Monitoring
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.monotonic import MonotonicClock, monotonic_ms
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.listening import CannotListen, PortInUse
from pocketmq.remoting.serving.server import RemotingServer
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.remoting.settings.exposure import warn_if_exposed
from pocketmq.remoting.tls.tls_config import TlsConfig
from pocketmq.remoting.tls.tls_context import ServerTls, client_context, server_tls
from pocketmq.store.message_store import MessageStore

if TYPE_CHECKING:
    from pocketmq.broker.tracing import Tracing

log = logging.getLogger(__name__)

HOUSEKEEPING_SECONDS: Final = 10.0
ANNOUNCE_SECONDS: Final = 1.0  # how long an admin's answer waits for the name servers


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Broker:
    """A broker in this process.

    `clock` gives the wall clock in milliseconds, `monotonic` the clock that measures leases,
    `work_clock` the one that measures how long a request works, in seconds, and `call_later` waits
    for deliveries. Clients that have been silent for too long are removed every
    `housekeeping_seconds`. `auth` is already started and shared with other servers of this process;
    without it, the broker makes its own if authentication is configured.

    The constructor uses neither files nor the network. All attributes except `config` exist after
    `start`, which raises ConfigError for unusable settings in `tls`.

    Attributes:
        tables: topics, groups, offsets and clients.
        components: the parts that store, deliver and answer.
        dispatcher: serves its request codes.
        monitoring: its metrics and its health.
        auth: users and permissions; None if requests need no signature.
    """

    monitoring: Monitoring
    store: MessageStore
    tables: Tables
    components: Components
    dispatcher: Dispatcher
    auth: Auth | None

    def __init__(
        self,
        config: BrokerConfig,
        *,
        tls: TlsConfig | None = None,
        clock: Callable[[], int] = now_ms,
        monotonic: MonotonicClock = monotonic_ms,
        work_clock: Callable[[], float] = time.perf_counter,
        call_later: CallLater = call_later,
        housekeeping_seconds: float = HOUSEKEEPING_SECONDS,
        auth: Auth | None = None,
    ) -> None:
        self._housekeeping_seconds = housekeeping_seconds
        self.config = config
        self._tls = tls or TlsConfig()
        self.port = config.listen_port
        self._clock = clock
        self._monotonic = monotonic
        self._work_clock = work_clock
        self._call_later = call_later
        self._shared_auth = auth
        self._stack: StopSteps | None = None

    @property
    def address(self) -> str:
        """`host:port` that clients get."""
        return f"{self.config.advertised_host}:{self.port}"

    async def start(self) -> None:
        """Start, and return when the broker listens and is registered with every reachable name
        server.

        Raises StoreLocked, StoreCorrupt, PortInUse, after stopping what was started before.
        """
        async with StopSteps() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        """Unregister, answer pending requests, close connections, and write everything to disk.

        Requests in progress have a second; a step that hangs is abandoned after `STEP_SECONDS`.
        Idempotent.
        """
        stack, self._stack = self._stack, None
        if stack is not None:
            self.monitoring.health.stopping()
            await stack.aclose()

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    async def _start(self, stack: StopSteps) -> None:
        config, clock = self.config, self._clock
        reservation = None
        if self.port == 0:
            # Message ids, the registration and the metrics contain the port.
            reservation = stack.enter_context(reserve_port(config.bind_address))
            self.port = reservation.getsockname()[1]
        store_host = pack_host(await resolve_advertised(config), self.port)
        # Before the store, and so stopped last: probes are answered while the store recovers.
        monitoring = self.monitoring = Monitoring(
            config,
            labels={
                "cluster": config.broker_cluster_name,
                "node_type": "broker",
                "node_id": config.broker_name,
                "address": self.address,
            },
            scope="broker-meter",
        )
        monitoring.start(stack)
        tls = server_tls(self._tls)
        links = client_context(self._tls)
        if not config.authentication_enabled:
            warn_if_exposed(log, "broker", config.bind_address)
        store = self.store = MessageStore(config, store_host=store_host, clock=clock)
        monitoring.health.starting(lambda: store.recovery_progress.text)
        store.open()
        stack.push_async_callback(store.close)
        notices = MemberNotices(lambda: config.notify_consumer_ids_changed_enable, self._call_later)
        stack.callback(notices.stop)
        self.tables = Tables(
            config,
            clock,
            self._topics_changed,
            notices.changed,
            lambda: store.commit_log.end,
            monotonic=self._monotonic,
        )
        self.tables.load(in_use=store.commit_log.end > 0)
        for _ in store.delete_deleted_queues(self.tables.topics.deleted):
            pass
        topics = self.tables.topics
        topics.adopt(store.queues, store.commit_log.min_offset, store.commit_log.end)
        self.tables.keep(stack)
        auth = self.auth = await self._start_auth(stack)
        with contextlib.suppress(RemotingError):  # it keeps trying
            # Before any message is stored that the tables on the disk would treat as deleted.
            await topics.saved()
        self._registration = Registration(
            config, self._identity(), topics, topics.mark_ordered, tls=links
        )
        self.components = Components(
            config,
            self.tables,
            store,
            address=self.address,
            store_host=store_host,
            clock=clock,
            monotonic=self._monotonic,
            work_clock=self._work_clock,
            call_later=self._call_later,
            on_settings=self._settings_changed,
            announced=self._announced,
            unregistered=self._unregistered,
            ask=self._registration.ask,
            links=links,
            auth=auth,
            measuring=monitoring.is_measuring,
            tracing=self._start_tracing(stack),
        )
        self.dispatcher = self.components.dispatcher()
        store.start()
        replication = self.components.replication
        await replication.listen(stack)
        self._registration.ha_address = replication.ha_address
        self._registration.on_master = replication.master_is
        self._registration.lacks_master = lambda: replication.lacks_master
        self.components.start(stack, self._registration.role_changed)

        server = RemotingServer(
            self.dispatcher,
            host=config.bind_address,
            port=self.port,
            idle_timeout=float(config.server_channel_max_idle_time_seconds),
            max_connections_per_address=config.max_connections_per_address,
            tls=tls,
            before_answers=self.components.unwritten.settle,
            light=self.components.light,
        )
        holds = self.components.pulls.holds
        holds.woken.after_turn = holds.parents.after_turn = server.flush
        server.after_answers = holds.woken.run
        await server.start()
        if config.enable_property_filter:
            load_parser()
        if reservation is not None:
            reservation.close()
        stack.push_step(monitoring.finish)  # when all requests have their answers
        stack.push_step(server.stop)
        stack.callback(self.components.end_waiting)
        await self._start_vip_server(stack, tls)
        stack.push_step(self._registration.stop)
        if not config.enable_controller_mode:  # else with the first role
            await self._registration.start()
        every(stack, 1.0, self.tables.statistics.tick)
        every(stack, 1.0, self.components.put_times.tick)
        every(stack, self._housekeeping_seconds, self.tables.expire)
        registration = self._registration
        monitoring.collect = self.components.metrics(
            connections=lambda: len(server.connections),
            name_servers=lambda: registration.registered,
            expires_at=lambda: tls.expires_at if tls is not None else None,
        ).families
        health = self.components.health
        monitoring.health.started(broker=lambda: health.now().problems)

    def _start_tracing(self, stack: StopSteps) -> Tracing | None:
        """Connect to the trace collector; None if none is configured."""
        config = self.config
        target = config.trace_grpc_exporter_target
        if not target:
            return None
        require("otlp", f"traceGrpcExporterTarget={target}")
        from pocketmq.broker.tracing import Tracing

        tracing = Tracing(
            target, cluster=config.broker_cluster_name, broker_name=config.broker_name
        )
        stack.push_step(asyncio.to_thread, tracing.close)
        return tracing

    def _unregistered(self) -> str:
        """Return why no client can find the broker; empty if clients can."""
        if self._registration.registered or not self.config.name_servers:
            return ""
        return f"registered at none of {self.config.namesrv_addr}"

    async def _start_auth(self, stack: StopSteps) -> Auth | None:
        """Read the users; None if requests need no signature."""
        if self._shared_auth is not None or not self.config.authentication_enabled:
            return self._shared_auth
        auth = Auth(self.config, self.config.root / "config" / AUTH_FILE)
        stack.push_step(auth.stop)
        await auth.start()
        return auth

    def _identity(self) -> BrokerIdentity:
        config = self.config
        return BrokerIdentity(
            config.broker_cluster_name,
            config.broker_name,
            config.broker_id,
            self.address,
        )

    async def _start_vip_server(self, stack: StopSteps, tls: ServerTls | None) -> None:
        """Serve everything but pulls at listenPort-2, so that sends need not queue behind pulls.

        Clients use it only when configured to, so the broker also starts when the port is taken.
        """
        config = self.config
        if not config.vip_channel_enable or config.listen_port <= 2:
            return
        vip = RemotingServer(
            self.components.dispatcher(pulls=False),
            host=config.bind_address,
            port=config.listen_port - 2,
            idle_timeout=float(config.server_channel_max_idle_time_seconds),
            max_connections_per_address=config.max_connections_per_address,
            tls=tls,
            name="broker's VIP channel",
            before_answers=self.components.unwritten.settle,
            light=self.components.light,
        )
        try:
            await vip.start()
        except (PortInUse, CannotListen) as error:
            log.info("the VIP channel is off: %s", error)
        else:
            stack.push_step(vip.stop)

    # --- callbacks between components ---------------------------------------------------------

    def _topics_changed(self, names: Collection[str]) -> None:
        for name in names:
            self.components.sends.forget_target(name)
        self._registration.topics_changed(names)

    def _settings_changed(self, keys: frozenset[str]) -> None:
        self.components.sends.forget_targets()
        if "brokerPermission" in keys:
            self.tables.topics.tell_all()
        if not keys.isdisjoint(("autoCreateTopicEnable", "defaultTopicQueueNums")):
            self.tables.topics.refresh_template()

    async def _announced(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANNOUNCE_SECONDS):
                await self._registration.settled()
