"""The name server: wires the tables, the processors and the listening socket together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, Self

from pocketmq.auth.admin import AuthProcessor
from pocketmq.auth.audit import audit
from pocketmq.auth.service import Auth
from pocketmq.monitoring.exporter import Monitoring
from pocketmq.monitoring.health import Condition
from pocketmq.monitoring.settings import ExporterType, exporter_type
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.kv_config import KVConfig
from pocketmq.namesrv.metrics import NamesrvMetrics
from pocketmq.namesrv.processors.broker import BrokerProcessor
from pocketmq.namesrv.processors.config import ConfigProcessor
from pocketmq.namesrv.processors.kv_config import KVConfigProcessor
from pocketmq.namesrv.processors.route import RouteProcessor
from pocketmq.namesrv.processors.topic import TopicProcessor
from pocketmq.namesrv.route_table import RouteTable
from pocketmq.namesrv.text_file import TextFile
from pocketmq.remoting.monotonic import MonotonicClock, monotonic_ms
from pocketmq.remoting.serving.body_limits import limit_bodies
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.long_requests import LongRequests
from pocketmq.remoting.serving.rpc_latency import RpcLatency
from pocketmq.remoting.serving.server import RemotingServer, ServerConnection
from pocketmq.remoting.serving.stop_steps import StopSteps, end_in_time
from pocketmq.remoting.settings.exposure import warn_if_exposed
from pocketmq.remoting.tls.tls_config import TlsConfig
from pocketmq.remoting.tls.tls_context import server_tls

log = logging.getLogger("pocketmq.namesrv")

KV_LOG_PERIOD = 600.0
"""Seconds between two writings of the key-value table to the log; the first comes after 60."""


class Timer(Protocol):
    """What `CallLater` returns."""

    def cancel(self) -> None:
        """Do not call the callback."""


#: Seconds from now, callback.
CallLater = Callable[[float, Callable[[], None]], Timer]


def call_later(seconds: float, callback: Callable[[], None]) -> Timer:
    """Call `callback` by a timer of the running event loop."""
    return asyncio.get_running_loop().call_later(seconds, callback)


class NameServer:
    """One name server; `async with NameServer(config)` starts and stops it.

    The constructor raises ConfigError for unusable TLS settings.

    Args:
        config: read while running; UPDATE_NAMESRV_CONFIG changes it.
        tls: which connections are encrypted, and how.
        clock: for liveness, so that a wrong date expires no broker.
        call_later: waits for the next round of periodic work.
        auth: one that its owner starts and stops, shared with a broker of this process; without it
            the name server makes its own if that is configured.
        conditions: of being ready, besides that it listens; by name.

    Attributes:
        routes, kv_config: its tables.
        dispatcher: the request codes that it serves.
        monitoring: its metrics and its health, after `start`.
    """

    monitoring: Monitoring

    def __init__(
        self,
        config: NamesrvConfig | None = None,
        *,
        tls: TlsConfig | None = None,
        clock: MonotonicClock = monotonic_ms,
        call_later: CallLater = call_later,
        auth: Auth | None = None,
        conditions: Mapping[str, Condition] | None = None,
    ) -> None:
        self.config = config or NamesrvConfig()
        self._conditions = conditions or {}
        self.routes = RouteTable(self.config, clock=clock)
        self.kv_config = KVConfig(TextFile(Path(self.config.kv_config_path)))
        self._own_auth: Auth | None = None
        if auth is None and self.config.authentication_enabled:
            auth = self._own_auth = Auth(self.config, Path(self.config.auth_file_path))
        self.dispatcher = Dispatcher()
        self._settings = ConfigProcessor(self.config, self._settings_changed)
        light = LightClients()
        long = LongRequests(light)
        for processor in (
            RouteProcessor(self.config, self.routes, self.kv_config, clock=clock),
            BrokerProcessor(self.config, self.routes, self.kv_config, long),
            TopicProcessor(self.config, self.routes, long),
            KVConfigProcessor(self.kv_config, long),
            self._settings,
            AuthProcessor(auth.tables if auth is not None else None),
        ):
            processor.register(self.dispatcher)
        audit(self.dispatcher)
        self._has_users = auth is not None
        if auth is not None:
            auth.protect(self.dispatcher)
        limit_bodies(self.dispatcher)
        latency = RpcLatency()
        if exporter_type(self.config.metrics_exporter_type) is not ExporterType.DISABLE:
            self.dispatcher.measure(latency)
        certificate = server_tls(tls or TlsConfig())
        self._server = RemotingServer(
            self.dispatcher,
            tls=certificate,
            host=self.config.bind_address,
            port=self.config.listen_port,
            idle_timeout=self.config.server_channel_max_idle_time_seconds,
            max_connections_per_address=self.config.max_connections_per_address,
            name="name server",
            light=light,
        )
        self._server.on_connection_lost.append(self._connection_lost)
        self._metrics = NamesrvMetrics(
            self.routes,
            latency,
            lambda: len(self._server.connections),
            lambda: certificate.expires_at if certificate is not None else None,
        )
        self._monitored: StopSteps | None = None
        self._later = call_later
        self._timers: dict[str, Timer] = {}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The port listened on."""
        return self._server.port

    @property
    def address(self) -> str:
        """`host:port` as bound."""
        return f"{self.config.bind_address}:{self.port}"

    async def start(self) -> None:
        """Read the key-value file and listen.

        Raises:
            KVConfigError: the file cannot be read.
            AuthFileError: the file of the users cannot be read.
            PortInUse, CannotListen: of the address.
        """
        config = self.config
        if not self._has_users:
            warn_if_exposed(log, "name server", config.bind_address)
        for path in {Path(config.kv_config_path), Path(config.config_store_path)}:
            if not TextFile(path).writable:
                log.warning(
                    "file %s cannot be written: changes of the KV config or of settings will be "
                    "refused. Set kvConfigPath or configStorePath to another file", path,
                )  # fmt: skip
        self.kv_config.load()
        if self._own_auth is not None:
            await self._own_auth.start()
        try:
            await self._server.start()
            await self._start_monitoring()
        except BaseException:  # it may be cancelled
            await self.stop()
            raise
        self._scan_not_active_brokers()
        self._call_later("kv", 60.0, self._log_kv_config)
        log.info("name server listens on %s", self.address)

    async def _start_monitoring(self) -> None:
        monitoring = self.monitoring = Monitoring(
            self.config,
            labels={"node_type": "namesrv", "node_id": self.address},
            scope="namesrv-meter",
        )
        async with StopSteps() as stack:
            monitoring.start(stack)
            self._monitored = stack.pop_all()
        monitoring.collect = self._metrics.families
        monitoring.health.started(**self._conditions)

    async def stop(self) -> None:
        """Stop listening and close every connection. Idempotent."""
        monitored, self._monitored = self._monitored, None
        if monitored is not None:
            self.monitoring.health.stopping()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self._server.stop()
        await end_in_time(self.kv_config.stop)
        await end_in_time(self._settings.stop)
        if self._own_auth is not None:
            await end_in_time(self._own_auth.stop)
        if monitored is not None:
            await self.monitoring.finish()
            await monitored.aclose()

    def _call_later(self, name: str, delay: float, callback: Callable[[], None]) -> None:
        self._timers[name] = self._later(delay, callback)

    def _scan_not_active_brokers(self) -> None:
        try:
            for channel in self.routes.expire():
                if isinstance(channel, ServerConnection):
                    channel.close()
        finally:
            interval = self.config.scan_not_active_broker_interval / 1000
            self._call_later("scan", interval, self._scan_not_active_brokers)

    def _log_kv_config(self) -> None:
        try:
            self.kv_config.log_table()
        finally:
            self._call_later("kv", KV_LOG_PERIOD, self._log_kv_config)

    def _settings_changed(self) -> None:
        self._server.idle_timeout = self.config.server_channel_max_idle_time_seconds

    def _connection_lost(self, connection: ServerConnection) -> None:
        self.routes.channel_lost(connection)
