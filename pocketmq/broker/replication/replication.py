"""Replication of one broker: the port for its slaves, and, on a slave, the copy of its master."""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl

from pocketmq.broker.acknowledge.put_safety import PutSafety
from pocketmq.broker.background import every
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.delivery import DelayedDelivery
from pocketmq.broker.health import MasterLink, MemberRole
from pocketmq.broker.pop.request_mode import MessageRequestModes
from pocketmq.broker.replication.allowed_replicas import AllowedReplicas
from pocketmq.broker.replication.ha_client import HaClient
from pocketmq.broker.replication.ha_service import HaService
from pocketmq.broker.replication.metadata_sync import MetadataSync
from pocketmq.broker.tables.tables import Tables
from pocketmq.remoting.bodies.cluster import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.listening import CannotListen, PortInUse
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)


class Replication:
    """The replication of one broker. Create and use it on the event loop, with an open store.

    Attributes:
        ha_address: host:port of the HA port, as slaves connect to it.
        service: this broker's slaves.
        client, metadata: copy the log and the tables of the master; None on a master.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        tables: Tables,
        delayed: DelayedDelivery,
        modes: MessageRequestModes,
        safety: PutSafety,
        allowed: AllowedReplicas,
        *,
        address: str,
        tls: ssl.SSLContext | None = None,
        light: LightClients | None = None,
    ) -> None:
        """`address` is the broker's address for clients; `tls` encrypts requests to a master, but
        never the log. Slaves that copy much give way to `light`."""
        self._config = config
        self._store = store
        self._safety = safety
        port = int(address.rpartition(":")[2])
        self._port = config.ha_listen_port or port + 1
        self.ha_address = f"{config.ha_host}:{self._port}"
        self.service = HaService(config, store, allowed, light)
        self.client: HaClient | None = None
        self.metadata: MetadataSync | None = None
        if config.is_slave:
            self.client = HaClient(config, store)
            self.metadata = MetadataSync(config, tables, delayed, modes, store, tls=tls)
            self.client.on_connected = self.metadata.ask_now
            self.client.before_connecting = self.metadata.introduce

    async def listen(self, stack: StopSteps) -> None:
        """Serve slaves until `stack` is closed; puts wait for them if the role requires it.

        Raises PortInUse, CannotListen if haListenPort is set; otherwise the broker starts without
        the port.
        """
        stack.push_step(self.service.stop)
        if self.service.needed > 1 or self.service.degrades:
            self._safety.wait_for(self.service)
        if self.service.degrades:
            self.service.review()
            every(stack, 1.0, self.service.review)
        config = self._config
        if config.authentication_enabled and not config.ha_listen_port:
            log.info(
                "slaves cannot copy this broker: the HA port is closed, because any host that "
                "reaches it gets the whole log without a password. Set haListenPort to open it"
            )
            return
        server = self.service.server
        try:
            try:
                await server.start(config.bind_address, self._port)
            except OSError:
                if config.ha_listen_port or config.listen_port:
                    raise
                await server.start(config.bind_address, 0)  # like the broker's port
        except OSError as error:
            if config.ha_listen_port:
                kind = PortInUse if error.errno == errno.EADDRINUSE else CannotListen
                raise kind(f"haListenPort {self._port}: {error}") from error
            log.warning("slaves cannot copy this broker: port %d: %s", self._port, error)
        else:
            self.ha_address = f"{config.ha_host}:{server.port}"

    def follow(self, stack: StopSteps) -> None:
        """Copy the master until `stack` is closed; do nothing on a master. Raises OSError."""
        client, metadata = self.client, self.metadata
        if client is None or metadata is None:
            return
        self._store.follow()
        stack.push_step(metadata.stop)
        stack.push_step(client.stop)
        client.use(self._config.ha_master_address)
        client.start()
        metadata.start()

    @property
    def lacks_master(self) -> bool:
        """Whether this is a slave without a connection to its master."""
        return self.client is not None and self.client.connection is None

    # --- the health of this member (`health_check.Membership`) ---------------------------------

    @property
    def member_role(self) -> MemberRole:
        """The role of this broker, from its settings."""
        return MemberRole.MASTER if self.client is None else MemberRole.SLAVE

    @property
    def epoch(self) -> None:
        """None: there are no master epochs without a controller."""

    @property
    def why_fenced(self) -> str:
        """Empty: the role comes from the settings."""
        return ""

    @property
    def copies(self) -> int:
        """The number of members in sync, including this one."""
        return 1 if self.client is not None else self.service.server.in_sync() + 1

    @property
    def copies_needed(self) -> int:
        """The number of copies that a send waits for, including this one."""
        return 1 if self.client is not None else self.service.needed

    def master_link(self) -> MasterLink | None:
        """Return the connection to the master; None on a master."""
        client, metadata = self.client, self.metadata
        if client is None or metadata is None:
            return None
        connection = client.connection
        lag = None
        if connection is not None and metadata.log_end is not None:
            end = max(metadata.log_end, connection.intake.master_end)
            lag = max(end - self._store.commit_log.end, 0)
        return MasterLink(
            client.address,
            connection is not None,
            asyncio.get_running_loop().time() - client.changed_at,
            lag,
            self._config.ha_max_gap_not_in_sync,
            trouble=client.trouble,
        )

    def master_is(self, ha_address: str, address: str) -> None:
        """Use the master's addresses from a name server; they are empty while there is no master.
        In that case, the last HA address is kept. A configured HA address takes precedence."""
        if self.client is None or self.metadata is None:
            return
        if not self._config.ha_master_address:
            self.client.use(ha_address)
        self.metadata.use(address)

    # --- state for admin requests and metrics -------------------------------------------------

    def status(self, now: float) -> HARuntimeInfo:
        """Return the answer to GET_BROKER_HA_STATUS; `now` is in Unix seconds."""
        commit_log = self._store.commit_log
        end = commit_log.written
        info = HARuntimeInfo(
            master=self.client is None, master_commit_log_max_offset=end, ha_connection_info=[]
        )
        if self.client is not None:
            info.ha_client_runtime_info = self._client_status(now)
            info.master_commit_log_max_offset = 0
            return info
        most_gap = self._config.ha_max_gap_not_in_sync
        info.in_sync_slave_nums = self.service.server.in_sync()
        info.ha_connection_info = [
            HAConnectionRuntimeInfo(
                addr=connection.peer,
                slave_ack_offset=connection.feed.acked,
                diff=end - connection.feed.acked,
                in_sync=connection.feed.in_sync(end, most_gap),
                transferred_byte_in_second=connection.sender.rate,
                transfer_from_where=connection.feed.next,
            )
            for connection in self.service.server.connections
        ]
        return info

    def _client_status(self, now: float) -> HAClientRuntimeInfo:
        client = self.client
        assert client is not None
        info = HAClientRuntimeInfo(
            master_addr=client.address,
            max_offset=self._store.commit_log.end,
            activated=client.failure is None,
        )
        connection = client.connection
        if connection is not None:
            since = now - asyncio.get_running_loop().time()
            info.last_read_timestamp = int((since + connection.intake.last_heard) * 1000)
            info.last_write_timestamp = int((since + connection.intake.last_reported) * 1000)
            info.transferred_byte_in_second = connection.rate
            info.master_flush_offset = connection.intake.master_end
        return info

    def figures(self) -> dict[str, object]:
        """Return the figures for brokerStatus and metrics. Lags are in bytes: of a master, the lag
        of its slave that lags most; of a slave, the lag of its queues behind its own log."""
        commit_log = self._store.commit_log
        figures: dict[str, object] = {"brokerRole": self._config.broker_role.value}
        if self.client is not None:
            connection = self.client.connection
            figures["haMasterConnected"] = connection is not None
            figures["haCopyFailed"] = self.client.failure is not None
            figures["haReceivedUnchecked"] = commit_log.end - commit_log.whole
            return figures
        acks = [ack for ack in self.service.server.acks() if ack >= 0]
        figures["haSlaves"] = len(acks)
        figures["haSlavesInSync"] = self.service.server.in_sync()
        figures["haLargestLag"] = commit_log.written - min(acks, default=commit_log.written)
        figures["haSendsWaiting"] = len(self.service)
        return figures
