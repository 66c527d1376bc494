"""One proxy: a broker port, the service on top of it, and the port for clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from pocketmq.auth.settings import AuthSettings
from pocketmq.auth.store import AuthTables
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.lifetime import Lifetime
from pocketmq.proxy.port.broker_port import BrokerPort
from pocketmq.proxy.rpc import Method
from pocketmq.proxy.service.access import Access
from pocketmq.proxy.service.messaging import SERVICE, Messaging
from pocketmq.proxy.transport.health import health_methods
from pocketmq.proxy.transport.server import GrpcServer
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.remoting.settings.exposure import warn_if_exposed
from pocketmq.remoting.settings.properties_file import ConfigError
from pocketmq.remoting.tls.tls_config import TlsConfig, TlsMode
from pocketmq.remoting.tls.tls_context import ServerTls, server_tls

log = logging.getLogger("pocketmq.proxy")


class Proxy(Lifetime):
    """A proxy on top of a broker port that has been started.

    `stop` closes the listener, lets running calls finish, and makes renewed messages visible.

    `access` checks permissions. The constructor touches neither files nor the network; `start`
    raises PortInUse, CannotListen, and ConfigError for invalid TLS settings. Clients with much work
    give way to `light`, those of a broker in the same process too.
    """

    def __init__(
        self,
        config: ProxyConfig,
        port: BrokerPort,
        *,
        tls: TlsConfig | None = None,
        access: Access | None = None,
        light: LightClients | None = None,
    ) -> None:
        self.config = config
        self._broker_port = port
        self._tls = tls or TlsConfig()
        self._access = access
        self._light = light
        self._server: GrpcServer | None = None

    @property
    def port(self) -> int:
        """The listening port."""
        return self.config.grpc_server_port if self._server is None else self._server.port

    async def start(self) -> None:
        """Listen."""
        config = self.config
        async with StopSteps() as stack:
            tls = await asyncio.to_thread(grpc_tls, self._tls)
            if self._access is None:
                warn_if_exposed(log, "proxy", config.bind_address)
            service = Messaging(config, self._broker_port, self._access or Access(), self._light)
            stack.push_step(service.stop)
            service.start()
            methods: Mapping[bytes, Method] = {**service.methods(), **health_methods(SERVICE)}
            if config.enable_grpc_reflection:
                from pocketmq.proxy.service.reflection import reflection_methods

                methods = {**methods, **reflection_methods()}
            server = self._server = GrpcServer(
                methods,
                host=config.bind_address,
                port=config.grpc_server_port,
                tls=tls,
                idle_timeout=config.grpc_client_idle_time_mills / 1000,
                max_message=config.grpc_max_inbound_message_size,
                light=self._light,
            )
            await server.start()
            stack.push_step(server.stop)
            service.routes.port = server.port
            self._stack = stack.pop_all()


def grpc_tls(config: TlsConfig) -> ServerTls | None:
    """Return the TLS settings of the gRPC port; None if TLS is disabled or unavailable.

    Without a certificate, a self-signed one is used, as in the official proxy: by default, the
    clients for Java and Go use TLS and do not verify certificates. Raises ConfigError.
    """
    if config.mode is TlsMode.DISABLED:
        return None
    if not config.cert_path and not config.key_path and not config.test_mode:
        self_signed = msgspec.structs.replace(config, test_mode=True)
        try:
            return server_tls(self_signed, protocols=("h2",))
        except ConfigError as error:
            if config.mode is TlsMode.ENFORCING:
                raise
            log.warning("the gRPC port serves no TLS: %s", error)
            return None
    return server_tls(config, protocols=("h2",))


def access_of(settings: AuthSettings, tables: AuthTables | None) -> Access | None:
    """Return the access checks for these settings; None without authentication."""
    if tables is None or not settings.authentication_enabled:
        return None
    return Access(
        tables,
        authorize=settings.authorization_enabled,
        unsigned=_names(settings.authentication_whitelist),
        unchecked=_names(settings.authorization_whitelist),
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(word.strip() for word in text.split(",") if "." in word)
