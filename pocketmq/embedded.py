"""A name server and a broker in this process: what `pocketmq serve` runs, and what tests use.

    async with EmbeddedServer() as server:
        async with Producer("tests", namesrv=server.namesrv) as producer:
            ...

By default, both listen on free loopback ports, and the store is in a temporary directory. When
`start` returns, the broker is registered, so a client finds it at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import ssl
import tempfile
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from pocketmq._extras import require
from pocketmq.auth.service import Auth
from pocketmq.auth.store import AUTH_FILE
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import WILDCARDS, load_broker_config
from pocketmq.namesrv.config import NamesrvConfig, take_kept
from pocketmq.namesrv.server import NameServer
from pocketmq.proxy.config import load_local_config, without_proxy
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.remoting.settings.properties_file import ConfigError, format_properties
from pocketmq.remoting.tls.tls_config import TlsConfig, TlsMode, load_tls_config
from pocketmq.remoting.tls.tls_context import loopback_context

if TYPE_CHECKING:
    from pocketmq.local_proxy import LocalProxy

__all__ = ["EmbeddedServer"]

require("server", __name__)

log = logging.getLogger(__name__)

#: Size of a commit-log file of a temporary store, bytes. Each file is allocated whole.
EPHEMERAL_FILE_SIZE = 64 * 1024 * 1024


INNER_USER = "pocketmq-inner"
"""Signs the broker's requests to the name server, unless the settings name another user."""


class EmbeddedServer:
    """One name server and one broker.

    - `store`: the broker's store directory, which is kept; None for a temporary one, which is
      removed at the end.
    - `bind`: the address that both listen on; `namesrv_port`, `listen_port`: 0 takes a free port.
    - `advertise`: the host that clients connect to (brokerIP1).
    - `grpc_port`: the port for RocketMQ 5 (gRPC) clients (extra `proxy`); 0 takes a free port, None
      disables it. With `or_any_grpc_port`, a free port is taken if this one is in use.
    - `properties`: settings of the broker and its proxy by their official names. They override the
      arguments above, except that storePathRootDir and namesrvAddr are set here. TLS settings apply
      to both servers.

    The constructor touches neither files nor the network, but raises ConfigError for a property
    with a value that is not allowed, and TypeError for a value that is not a string. `start` raises
    what the two servers raise: PortInUse, StoreLocked, StoreCorrupt. `async with` calls `start` and
    `stop`; a stopped server may be started again. `name_server` and `broker` are set after `start`,
    and so is `proxy` if `grpc_port` is given.
    """

    name_server: NameServer
    broker: Broker
    proxy: LocalProxy | None = None

    def __init__(
        self,
        *,
        store: str | Path | None = None,
        bind: str = "127.0.0.1",
        namesrv_port: int = 0,
        listen_port: int = 0,
        advertise: str = "",
        grpc_port: int | None = None,
        or_any_grpc_port: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        for key in ("storePathRootDir", "namesrvAddr"):
            if properties is not None and key in properties:
                raise ConfigError(key, properties[key], "left to the server (`store` is the first)")
        for key, value in (properties or {}).items():
            if not isinstance(value, str):
                text = str(value).lower() if isinstance(value, bool) else str(value)
                raise TypeError(
                    f"properties[{key!r}] is {value!r}; write it as broker.conf does: {text!r}"
                )
        settings = {
            "brokerName": "broker-a",
            "bindAddress": bind,
            "listenPort": str(listen_port),
            "brokerIP1": advertise,
            **({} if store else {"mappedFileSizeCommitLog": str(EPHEMERAL_FILE_SIZE)}),
            **(properties or {}),
        }
        given = format_properties(settings)
        self._broker_config, warnings = load_broker_config(without_proxy(given))
        self._proxy_config = load_local_config(given)
        tls, more = load_tls_config(given)
        self._tls = _linked(tls)
        for warning in warnings + more:
            log.warning("%s", warning)
        self._grpc_port = grpc_port
        self._or_any_grpc_port = or_any_grpc_port
        self._namesrv_config = NamesrvConfig()  # its files will be in the store directory
        self._namesrv_config.bind_address = bind
        self._namesrv_config.listen_port = namesrv_port
        self._store = None if store is None else Path(store).expanduser()
        self._stack: StopSteps | None = None
        #: Held while the servers are started, restarted or stopped.
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()
        self._auth: Auth | None = None
        config = self._broker_config
        if config.authentication_enabled and not config.inner_client_authentication_credentials:
            # The broker registers at the name server with a password that is never stored.
            inner = {"accessKey": INNER_USER, "secretKey": secrets.token_urlsafe(32)}
            config.inner_client_authentication_credentials = json.dumps(inner)

    @property
    def namesrv(self) -> str:
        """The name server's address, for clients on this machine."""
        bind = self._namesrv_config.bind_address
        host = "127.0.0.1" if bind in WILDCARDS else bind
        return f"{host}:{self.name_server.port}"

    @property
    def client_tls(self) -> ssl.SSLContext | None:
        """The TLS settings for clients in this process; None if the servers accept plain
        connections."""
        return loopback_context(self._tls)

    @property
    def store(self) -> Path:
        """The store directory."""
        return self.broker.config.root

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Return when both listen and the name server has the broker's route. A second call has no
        effect. A call that fails or is cancelled leaves nothing running."""
        async with self._changing, StopSteps() as stack:
            if self._stack is not None:
                return
            root = self._store
            if root is None:
                root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pocketmq-")))
            self._namesrv_config.kv_config_path = str(root / "namesrv" / "kvConfig.json")
            self._namesrv_config.config_store_path = str(root / "namesrv" / "namesrv.properties")
            take_kept(self._namesrv_config)
            self._auth = await self._start_auth(root, stack)
            self.name_server = NameServer(self._namesrv_config, tls=self._tls, auth=self._auth)
            await stack.enter_async_context(self.name_server)
            self._broker_config.store_path_root_dir = str(root)
            self._broker_config.namesrv_addr = self.namesrv
            self.broker = self._make_broker()
            await stack.enter_async_context(self.broker)
            await self._start_proxy(stack, self._grpc_port, self._or_any_grpc_port)
            self._stack = stack.pop_all()

    async def restart_broker(self) -> None:
        """Stop the broker and start it again with the same port and the same store.

        If the caller is cancelled, the restart continues. Raises RuntimeError before `start`.
        """
        await self._to_the_end(self._restart_broker())

    async def _restart_broker(self) -> None:
        if self._stack is None:
            raise RuntimeError("the server is not running")
        grpc_port = self.proxy.port if self.proxy is not None else None
        if self.proxy is not None:
            await self.proxy.stop()
        await self.broker.stop()
        self._broker_config.listen_port, asked = self.broker.port, self._broker_config.listen_port
        try:
            self.broker = self._make_broker()
        finally:
            self._broker_config.listen_port = asked
        await self._stack.enter_async_context(self.broker)
        await self._start_proxy(self._stack, grpc_port)

    async def _start_proxy(
        self, stack: StopSteps, port: int | None, or_any_port: bool = False
    ) -> None:
        if port is None:
            return
        from pocketmq.local_proxy import LocalProxy

        self.proxy = LocalProxy(
            self.broker,
            port=port,
            or_any_port=or_any_port,
            tls=self._tls,
            config=self._proxy_config,
        )
        await stack.enter_async_context(self.proxy)

    def _make_broker(self) -> Broker:
        return Broker(self._broker_config, tls=self._tls, auth=self._auth)

    async def _start_auth(self, root: Path, stack: StopSteps) -> Auth | None:
        """Load the users, which both servers share; return None if requests need no signature."""
        if not self._broker_config.authentication_enabled:
            return None
        auth = Auth(self._broker_config, root / "config" / AUTH_FILE)
        stack.push_step(auth.stop)
        await auth.start()
        return auth

    async def stop(self) -> None:
        """Stop the broker, then the name server, and remove a temporary store. Does nothing if they
        are stopped. If the caller is cancelled, the stop continues."""
        await self._to_the_end(self._stop())

    async def _stop(self) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    async def _to_the_end(self, change: Coroutine[Any, Any, None]) -> None:
        """Make a change that must not be left half done, after the changes in progress."""

        async def make() -> None:
            async with self._changing:
                await change

        making = asyncio.get_running_loop().create_task(make())
        self._changes.add(making)
        making.add_done_callback(self._changes.discard)
        await asyncio.shield(making)


def _linked(tls: TlsConfig) -> TlsConfig:
    """Let the broker connect to a name server that accepts only TLS.

    The name server is in this process, so its certificate need not be verified, and the broker uses
    the server's certificate as its client certificate.
    """
    if tls.enable or tls.mode is not TlsMode.ENFORCING:
        return tls
    return msgspec.structs.replace(
        tls,
        enable=True,
        client_auth_server=False,
        client_cert_path=tls.cert_path,
        client_key_path=tls.key_path,
        client_key_password=tls.key_password,
    )
