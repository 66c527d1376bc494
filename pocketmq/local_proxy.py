"""Assembles a proxy in the process of its broker."""

from __future__ import annotations

import logging

import msgspec

from pocketmq._extras import require
from pocketmq.auth.settings import inner_user
from pocketmq.broker.broker import Broker
from pocketmq.client.credentials import Credentials
from pocketmq.client.instance import ClientInstance
from pocketmq.remoting.serving.listening import PortInUse
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.remoting.tls.tls_config import TlsConfig
from pocketmq.remoting.tls.tls_context import client_context

require("proxy", __name__)

from pocketmq.proxy.config import ProxyConfig  # noqa: E402
from pocketmq.proxy.lifetime import Lifetime  # noqa: E402
from pocketmq.proxy.port.joint import JointPort  # noqa: E402
from pocketmq.proxy.port.local import LocalBroker, LocalPort  # noqa: E402
from pocketmq.proxy.port.remote import RemotePort, selector_for  # noqa: E402
from pocketmq.proxy.server import Proxy, access_of  # noqa: E402

log = logging.getLogger("pocketmq.proxy")


class LocalProxy(Lifetime):
    """Serves RocketMQ 5 (gRPC) clients through a started broker in this process, and through the
    other brokers of its name servers.

    `port`: 0 takes a free one; with `or_any_port`, so does a port in use. `config`: the proxy
    settings among the broker's (`load_local_config`). Users, access lists and TLS are those of the
    broker. `start` raises PortInUse, CannotListen and ConfigError. Stop it before the broker.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        port: int = 8081,
        or_any_port: bool = False,
        tls: TlsConfig | None = None,
        config: ProxyConfig | None = None,
    ) -> None:
        settings = broker.config
        self._broker = broker
        self._config = msgspec.structs.replace(
            config or ProxyConfig(),
            bind_address=settings.bind_address,
            grpc_server_port=port,
            max_message_size=settings.max_message_size,
        )
        self._or_any_port = or_any_port
        self._tls = tls
        self._proxy: Proxy | None = None

    @property
    def port(self) -> int:
        """The listening port."""
        return self._config.grpc_server_port if self._proxy is None else self._proxy.port

    async def start(self) -> None:
        """Listen."""
        broker = self._broker
        components = broker.components
        async with StopSteps() as stack:
            local = LocalPort(
                LocalBroker(
                    name=broker.config.broker_name,
                    cluster=broker.config.broker_cluster_name,
                    address=broker.address,
                    dispatcher=components.dispatcher(guarded=False),
                    before_answers=components.unwritten.settle,
                    after_answers=components.pulls.holds.woken.run,
                    withdraw=components.pops.polling.cancel,
                )
            )
            port: LocalPort | JointPort = local
            config = broker.config
            if config.name_servers and not self._lends_signature():
                port = JointPort(local, RemotePort(self._instance(), selector_for(self._config)))
                await port.start()
            stack.push_step(port.stop)
            tables = broker.auth.tables if broker.auth is not None else None
            access = access_of(broker.config, tables)
            proxy = Proxy(self._config, port, tls=self._tls, access=access, light=components.light)
            try:
                await proxy.start()
            except PortInUse:
                if not self._or_any_port:
                    raise
                self._config.grpc_server_port = 0
                proxy = Proxy(
                    self._config, port, tls=self._tls, access=access, light=components.light
                )
                await proxy.start()
            self._proxy = proxy
            stack.push_async_callback(proxy.stop)  # in steps of its own
            self._stack = stack.pop_all()

    def _lends_signature(self) -> bool:
        """Return whether unauthenticated requests would be signed as a super user, whom all other
        brokers trust."""
        config = self._broker.config
        if config.authentication_enabled or not config.inner_client_authentication_credentials:
            return False
        log.warning(
            "gRPC port serves only broker %s: with authenticationEnabled=false, anybody's "
            "requests to other brokers would be signed by innerClientAuthenticationCredentials",
            config.broker_name,
        )
        return True

    def _instance(self) -> ClientInstance:
        """Return how this proxy presents itself to the other brokers."""
        config = self._broker.config
        inner = inner_user(config.inner_client_authentication_credentials)
        return ClientInstance(
            config.namesrv_addr,
            owner="proxy",
            tls=(self._tls is not None and client_context(self._tls)) or False,
            credentials=None if inner is None else Credentials(inner.username, inner.password),
        )
