"""Assembles a proxy in front of the brokers of a cluster."""

from __future__ import annotations

import logging

from pocketmq._extras import require
from pocketmq.auth.settings import inner_user
from pocketmq.client.credentials import Credentials
from pocketmq.client.instance import ROUTE_POLL_PERIOD, ClientInstance
from pocketmq.client.selector.pipeline import QueueSelector
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.remoting.settings.exposure import is_loopback
from pocketmq.remoting.settings.properties_file import ConfigError
from pocketmq.remoting.tls.tls_config import ClientAuth, TlsConfig, TlsMode
from pocketmq.remoting.tls.tls_context import client_context

require("proxy", __name__)

from pocketmq.proxy.config import ProxyConfig  # noqa: E402
from pocketmq.proxy.lifetime import Lifetime  # noqa: E402
from pocketmq.proxy.port.cluster_users import INTERVAL as USERS_PERIOD  # noqa: E402
from pocketmq.proxy.port.cluster_users import ClusterUsers  # noqa: E402
from pocketmq.proxy.port.remote import RemotePort, selector_for  # noqa: E402
from pocketmq.proxy.server import Proxy, access_of  # noqa: E402

log = logging.getLogger("pocketmq.proxy")


class ClusterProxy(Lifetime):
    """Serves RocketMQ 5 (gRPC) clients through the brokers registered at the name servers in
    `config`.

    `tls`: for the gRPC port, and for connections to brokers and name servers (`tls.enable`). With
    `authenticationEnabled`, the proxy uses the users and access lists of the brokers, which it
    reads with `innerClientAuthenticationCredentials`. `selector` chooses the queues of sends, by
    default as `config` says; `route_interval`: seconds between two checks of routes and switches.

    The constructor raises ConfigError; `start` raises PortInUse, CannotListen and ConfigError.
    """

    def __init__(
        self,
        config: ProxyConfig,
        *,
        tls: TlsConfig | None = None,
        selector: QueueSelector | None = None,
        route_interval: float = ROUTE_POLL_PERIOD,
        users_interval: float = USERS_PERIOD,
    ) -> None:
        self._config = config
        self._users_interval = users_interval
        self._route_interval = route_interval
        self._selector = selector or selector_for(config)
        self._tls = tls or TlsConfig()
        inner = inner_user(config.inner_client_authentication_credentials)
        if config.authentication_enabled and inner is None:
            raise ConfigError(
                "innerClientAuthenticationCredentials",
                "",
                "",
                text="authenticationEnabled needs innerClientAuthenticationCredentials: the proxy "
                "reads the users of the brokers with it",
            )
        if inner is not None and not config.authentication_enabled:
            _check_strangers(config, self._tls)
        self._credentials = None if inner is None else Credentials(inner.username, inner.password)
        self._proxy: Proxy | None = None
        self.port: RemotePort

    @property
    def name_servers(self) -> str:
        """The configured name servers."""
        return self._config.namesrv_addr or "$NAMESRV_ADDR"

    @property
    def grpc_port(self) -> int:
        """The listening port."""
        return self._config.grpc_server_port if self._proxy is None else self._proxy.port

    @property
    def address(self) -> str:
        """`host:port` as bound."""
        return f"{self._config.bind_address}:{self.grpc_port}"

    async def start(self) -> None:
        """Listen."""
        config = self._config
        async with StopSteps() as stack:
            instance = ClientInstance(
                config.namesrv_addr or None,
                owner="proxy",
                tls=client_context(self._tls) or False,
                credentials=self._credentials,
                route_interval=self._route_interval,
            )
            port = self.port = RemotePort(instance, self._selector)
            await port.start()
            stack.push_step(port.stop)
            access = None
            if config.authentication_enabled:
                users = ClusterUsers(
                    instance,
                    config.inner_client_authentication_credentials,
                    interval=self._users_interval,
                )
                await users.start()
                stack.push_step(users.stop)
                access = access_of(config, users.tables)
            proxy = self._proxy = Proxy(config, port, tls=self._tls, access=access)
            await proxy.start()
            stack.push_async_callback(proxy.stop)  # in steps of its own
            self._stack = stack.pop_all()


def _check_strangers(config: ProxyConfig, tls: TlsConfig) -> None:
    """Warn that unauthenticated requests are signed as the inner user; raise ConfigError if the
    port is reachable from other machines."""
    if tls.mode is TlsMode.ENFORCING and tls.need_client_auth is ClientAuth.REQUIRE:
        return
    text = (
        "innerClientAuthenticationCredentials without authenticationEnabled: the proxy signs the "
        "requests of everybody who reaches its port as a super user of the brokers"
    )
    if not is_loopback(config.bind_address):
        raise ConfigError(
            "innerClientAuthenticationCredentials",
            "",
            "",
            text=f"{text}; set authenticationEnabled and authorizationEnabled, bind to 127.0.0.1, "
            "or set tls.server.mode=enforcing and tls.server.need.client.auth=require",
        )
    log.warning("%s; set authenticationEnabled and authorizationEnabled (docs/proxy.md)", text)
