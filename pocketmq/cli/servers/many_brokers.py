"""`pocketmq serve --brokers N`: a name server here, and N brokers, each in its own process."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

from pocketmq.broker.address import reserve_port
from pocketmq.broker.config import WILDCARDS
from pocketmq.cli.servers.broker_process import BrokerProcess, Restarts
from pocketmq.cli.servers.server_command import announce, print_line
from pocketmq.cli.servers.store_layout import broker_directory
from pocketmq.namesrv.config import NamesrvConfig, load_namesrv_config, take_kept
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.settings.properties_file import ConfigError, format_properties
from pocketmq.remoting.tls.tls_config import TlsMode, load_tls_config
from pocketmq.remoting.tls.tls_context import loopback_context

#: Brokers also use the ports two below (VIP channel) and one above (replication, in routes).
PORT_STEP = 10
#: A broker's process that still runs this many seconds after its own deadline is killed.
KILL_SECONDS = 1.0
#: Time that this process needs after that deadline, for such kills and for its name server.
OWN_STOP_SECONDS = 4.0

_INNER = "innerClientAuthenticationCredentials"


class RunningDashboard(Protocol):
    """Runs the dashboard, if enabled, for the name server at an address; yields the text to print
    about it."""

    def __call__(
        self, namesrv: str, *, tls: ssl.SSLContext | None, inner_credentials: str
    ) -> AbstractAsyncContextManager[str]: ...


class ManyBrokers:
    """A name server and several brokers of one cluster.

    Args:
        count: how many brokers.
        root: the directory of all stores; `None` for a temporary one.
        bind: the address that all listen on.
        namesrv_port: port of the name server.
        listen_port: port of the first broker; the others follow in steps of ten. 0: free ones.
        name: the brokers are called `NAME-0`, `NAME-1`, ...
        arguments: of `pocketmq broker`, for all of them.
        stop_seconds: the deadline for their stop, which `arguments` contain too.
        shared: settings of TLS, authentication, metrics and health, by their official names, from
            `arguments`, which apply to the name server too. It gets the given ports for metrics and
            health; those of the brokers follow.
        dashboard: what runs beside them.

    Raises ConfigError for a port, or for settings with which the brokers could not register.
    """

    def __init__(
        self,
        count: int,
        *,
        root: Path | None,
        bind: str,
        namesrv_port: int,
        listen_port: int,
        name: str,
        arguments: list[str],
        stop_seconds: float,
        shared: Mapping[str, str],
        dashboard: RunningDashboard,
        restarts: Restarts = Restarts(),  # noqa: B008 - immutable
    ) -> None:
        last = listen_port + PORT_STEP * (count - 1)
        if last > 65535:
            text = f"listenPort = {listen_port}: {count} brokers need ports up to {last}"
            raise ConfigError("listenPort", str(listen_port), "lower", text=text)
        self._count = count
        self._root = root
        self._bind = bind
        self._namesrv_port = namesrv_port
        self._listen_port = listen_port
        self._name = name
        self._arguments = arguments
        self._stop_seconds = stop_seconds
        self._shared = shared
        self._dashboard = dashboard
        self._tls = load_tls_config(format_properties(shared))[0]
        self._restarts = restarts
        self._check_links()

    def _check_links(self) -> None:
        key, text = _INNER, ""
        if self._namesrv_config(Path()).authentication_enabled and not self._shared.get(key):
            text = f"--brokers with authenticationEnabled needs {key}: brokers sign with it"
        elif self._tls.mode is TlsMode.ENFORCING and not self._tls.enable:
            key = "tls.enable"
            text = f"--brokers with tls.server.mode = enforcing needs {key} = true, for brokers too"
        if text:
            raise ConfigError(key, "", "set", text=text)

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Raises BrokerFailed if a broker does not start at the first attempt, and the errors of the
        name server.
        """
        async with contextlib.AsyncExitStack() as stack:
            root = self._root
            if root is None:
                root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pocketmq-")))
            brokers: list[BrokerProcess] = []
            name_server = NameServer(
                self._namesrv_config(root),
                tls=self._tls,
                conditions={"brokers": lambda: _missing(brokers)},
            )
            await stack.enter_async_context(name_server)
            host = "127.0.0.1" if self._bind in WILDCARDS else self._bind
            namesrv = f"{host}:{name_server.port}"
            brokers += [
                BrokerProcess(
                    f"{self._name}-{number}",
                    self._broker_arguments(number, root, namesrv, stack),
                    print_line,
                    restarts=self._restarts,
                    stop_seconds=self._stop_seconds + KILL_SECONDS,
                )
                for number in range(self._count)
            ]
            stack.push_async_callback(self._stop, brokers)
            starting = asyncio.ensure_future(self._start(brokers))
            if not await _done_before(stop, starting):
                return
            dashboard = await stack.enter_async_context(
                self._dashboard(
                    namesrv,
                    tls=loopback_context(self._tls),
                    inner_credentials=self._shared.get(_INNER, ""),
                )
            )
            kept = "temporary store" if self._root is None else "store"
            announce(
                f"name server listening on {namesrv}, {self._count} brokers, {dashboard}"
                f"{kept} {root}"
            )
            await self._supervise(brokers, stop)

    def _namesrv_config(self, root: Path) -> NamesrvConfig:
        config, _ = load_namesrv_config(format_properties(self._shared))
        directory = root / "namesrv"
        config.bind_address = self._bind
        config.listen_port = self._namesrv_port
        config.kv_config_path = str(directory / "kvConfig.json")
        config.config_store_path = str(directory / "namesrv.properties")
        take_kept(config)
        config.auth_file_path = str(directory / "auth.json")
        return config

    def _broker_arguments(
        self, number: int, root: Path, namesrv: str, stack: contextlib.AsyncExitStack
    ) -> list[str]:
        port = self._listen_port + PORT_STEP * number
        if self._listen_port == 0:
            # Reserved here, so that after a restart the broker has the same port and clients find
            # it.
            reserved = stack.enter_context(reserve_port(self._bind))
            port = reserved.getsockname()[1]
        own: Mapping[str, object] = {
            "--namesrv": namesrv,
            "--store": broker_directory(root, number),
            "--listen-port": port,
            "--bind": self._bind,
            "--set": f"brokerName={self._name}-{number}",
        }
        return [
            *self._arguments,
            *(f"{option}={value}" for option, value in own.items()),
            *(f"--set={key}={port}" for key, port in self._monitoring_ports(number).items()),
        ]

    def _monitoring_ports(self, number: int) -> dict[str, int]:
        """Return the ports of one broker's metrics and health, if they are set."""
        config = self._namesrv_config(Path())
        first = {
            "metricsPromExporterPort": config.metrics_prom_exporter_port,
            "healthPort": config.health_port,
        }
        return {key: port + 1 + number for key, port in first.items() if port > 0}

    async def _start(self, brokers: list[BrokerProcess]) -> None:
        starting = [asyncio.ensure_future(broker.start()) for broker in brokers]
        try:
            await asyncio.gather(*starting)
        finally:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)

    async def _supervise(self, brokers: list[BrokerProcess], stop: asyncio.Event) -> None:
        async def supervise() -> None:
            async with asyncio.TaskGroup() as group:
                for broker in brokers:
                    group.create_task(broker.supervise())

        await _done_before(stop, asyncio.ensure_future(supervise()))

    async def _stop(self, brokers: list[BrokerProcess]) -> None:
        await asyncio.gather(*(broker.stop() for broker in brokers))


def _missing(brokers: list[BrokerProcess]) -> str:
    """Return the brokers that do not listen."""
    missing = [broker.name for broker in brokers if not broker.is_listening]
    return f"{', '.join(missing)}: not listening" if missing else ""


async def _done_before(stop: asyncio.Event, task: asyncio.Future[None]) -> bool:
    """Wait for a task, or for `stop`, which cancels it; return whether the task completed."""
    stopping = asyncio.ensure_future(stop.wait())
    waiting: list[asyncio.Future[Any]] = [stopping, task]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        stopping.cancel()
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
