"""Replication of a broker that is a member of a controller group.

It drives the rules in `replica`: it executes their orders, changes the role of the store and of the
broker's services at run time, and answers waiting sends when the group has their messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from pocketmq.auth.service import inner_signer
from pocketmq.broker.acknowledge.put_safety import PutSafety
from pocketmq.broker.background import every
from pocketmq.broker.config import MASTER_ID, BrokerConfig, BrokerRole, check_ha_port
from pocketmq.broker.controller.controller_client import ControllerClient, Standing
from pocketmq.broker.controller.epoch_log import CutRefused
from pocketmq.broker.controller.group_client import GroupClient
from pocketmq.broker.controller.group_member import GroupMember, MemberPeriods
from pocketmq.broker.controller.group_server import GroupServer
from pocketmq.broker.controller.identity_file import GroupIdentity, IdentityFile, explain_copy
from pocketmq.broker.controller.replica import (
    AskForSet,
    Drop,
    Follow,
    Lead,
    Order,
    Replica,
    Role,
    RoleRefused,
    RoleTold,
    StayMaster,
)
from pocketmq.broker.controller.settings import ReplicaSettings
from pocketmq.broker.controller.store_log import StoreLog
from pocketmq.broker.health import MasterLink, MemberRole
from pocketmq.broker.replication.allowed_replicas import AllowedReplicas
from pocketmq.broker.replication.metadata_sync import MetadataSync
from pocketmq.broker.replication.replica_waits import ReplicaWaits
from pocketmq.kept_task import KeptTask
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.bodies.cluster import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from pocketmq.remoting.bodies.controller import NO_END, EpochEntry, EpochEntryCache
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader
from pocketmq.remoting.pool import ConnectionPool
from pocketmq.remoting.serving.light_clients import LightClients
from pocketmq.remoting.serving.listening import CannotListen, PortInUse
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.store.config import FlushDiskType
from pocketmq.store.epochs import EpochFile
from pocketmq.store.errors import StoreError
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

EVERYTHING: Final = 1 << 63
_FENCED: Final = "this broker has no role in its group yet"
_ENTERED_SECONDS: Final = 0.005
_ASK_SECONDS: Final = 0.5  # between two queries of the master's HA address
_SEARCH_SECONDS: Final = 5.0  # the same while the address is known


class Services(Protocol):
    """The services of a broker that depend on its role."""

    async def lead(self, epoch: int) -> None:
        """Run the services of a master, and register. Raises StoreError, OSError."""

    async def follow(self, epoch: int) -> None:
        """Run the services of a slave, and register. Raises StoreError, OSError."""

    def new_reign(self, epoch: int) -> None:
        """Register again: the same master has a new epoch."""

    def was_cut(self) -> None:
        """Continue at the new ends of the log and the queues: they were truncated."""


class GroupReplication:
    """The replication of one member of a group. Create and use it on the event loop, with an open
    store.

    Attributes:
        ha_address: host:port of the HA port, as slaves connect to it.
        metadata: copies the tables of the master.
        needed: the number of copies that a send waits for; 1 while this broker is alone in the set.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        metadata: MetadataSync,
        safety: PutSafety,
        allowed: AllowedReplicas,
        *,
        address: str,
        tls: ssl.SSLContext | None = None,
        light: LightClients | None = None,
    ) -> None:
        """`address` is the broker's address for clients; `tls` encrypts requests to controllers and
        to a master, but never the log. Slaves that copy much give way to `light`.

        Raises:
            ConfigError: haListenPort is not set although requests have to be signed.
            StoreError, OSError: the files of the group cannot be read.
        """
        check_ha_port(config)
        self._config = config
        self._store = store
        self._safety = safety
        self._address = address
        self._lines = LimitedLog(log)
        self._loop = asyncio.get_running_loop()
        port = int(address.rpartition(":")[2])
        self._port = config.ha_listen_port or (port + 1 if config.listen_port else 0)
        self.ha_address = f"{config.ha_host}:{self._port or port + 1}"
        self._epoch_file = EpochFile(config.epoch_file)
        self._epochs = self._epoch_file.load()
        self._found = store.commit_log.whole  # the start has entered it all
        self._replica: Replica | None = None
        self._members: frozenset[int] | None = None  # the last SyncStateSet from a controller
        self._waits = ReplicaWaits(lambda end, _: self._replicated(end))
        self._timer: asyncio.TimerHandle | None = None
        self._hurrying = False
        self._settings = ReplicaSettings(
            all_ack=config.all_ack_in_sync_state_set,
            min_in_sync=config.min_in_sync_replicas,
            in_sync_replicas=config.in_sync_replicas,
            ack_flushed=config.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            from_last_file=config.sync_from_last_file,
            learner=config.async_learner,
            batch_size=config.ha_transfer_batch_size,
            heartbeat_interval=config.ha_send_heartbeat_interval,
            housekeeping_interval=config.ha_housekeeping_interval,
            most_behind=config.ha_max_time_slave_not_catchup,
        )
        self._server = GroupServer(
            store,
            self,
            self._now,
            allowed,
            most_per_second=config.most_ha_bytes_per_second,
            light=light,
        )
        self._client = GroupClient(store, self, self._now)
        self.metadata = metadata
        self._client.on_connected = metadata.ask_now
        self._client.on_cut = self._was_cut
        self._pool = ConnectionPool(tls=tls, sign=inner_signer(config))
        controllers = ControllerClient(
            self._pool,
            config.controllers,
            config.broker_cluster_name,
            config.broker_name,
            address,
            heartbeat_timeout=config.controller_heart_beat_timeout_mills,
            priority=config.broker_election_priority,
        )
        self._member = GroupMember(
            controllers,
            IdentityFile(config.root, config.broker_cluster_name, config.broker_name),
            self,
            lambda: f"{address};{time.time_ns() // 1_000_000}",
            periods=self._periods,
        )
        self._services: Services | None = None
        self._due: Lead | Follow | None = None  # the change of the role that is not finished
        self._searching: KeptTask | None = None

    # --- start and stop -----------------------------------------------------------------------

    def _periods(self) -> MemberPeriods:
        config = self._config
        return MemberPeriods(
            heartbeat=config.broker_heartbeat_interval / 1000,
            role=config.sync_broker_metadata_period / 1000,
            leader=config.sync_controller_metadata_period / 1000,
        )

    async def listen(self, stack: StopSteps) -> None:
        """Serve slaves whenever this broker is master, until `stack` is closed. Before it has a
        role, it stores no messages. Raises PortInUse, CannotListen."""
        config, store = self._config, self._store
        store.refuse(_FENCED)
        store.on_flushed = self._flushed
        self._safety.wait_for(self)
        stack.push_step(self._stop)
        try:
            await self._server.start(config.bind_address, self._port)
        except OSError as error:
            kind = PortInUse if error.errno == errno.EADDRINUSE else CannotListen
            raise kind(f"haListenPort {self._port}: {error}") from error
        self.ha_address = f"{config.ha_host}:{self._server.port}"

    def join(self, stack: StopSteps, services: Services) -> None:
        """Become a member, and take roles until `stack` is closed."""
        self._services = services
        stack.push_step(self._leave)
        every(stack, 1.0, self._tick)
        self.metadata.start()
        self._member.start()

    async def _leave(self) -> None:
        """Take no more roles, and stop copying. The controllers notice at once."""
        await self._member.stop()
        await self._stop_following()
        await self.metadata.stop()
        await self._pool.close()

    async def _stop(self) -> None:
        """Fail waiting sends, and close the port."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._server.stop()
        self._waits.fail_all()

    def _now(self) -> int:
        return int(self._loop.time() * 1000)

    # --- roles (`group_member.RoleTaker`) -----------------------------------------------------

    @property
    def replica(self) -> Replica | None:
        """The rules; None before this broker has an id."""
        return self._replica

    @property
    def identity(self) -> GroupIdentity | None:
        """This broker as a member; None before a controller has assigned an id."""
        return self._member.identity

    @property
    def standing(self) -> Standing | None:
        """The values for elections; None while another member should be elected."""
        if self._store.flush_failed:
            return None
        replica = self._replica
        if replica is None:
            return Standing(-1, self._store.commit_log.written, 0)
        return Standing(
            replica.epochs.last_epoch, self._store.commit_log.written, replica.confirmed
        )

    @property
    def master_epoch(self) -> int:
        """The master epoch of this broker's role; 0 before the first role."""
        master = None if self._replica is None else self._replica.master
        return 0 if master is None else master.master_epoch

    def begin(self, identity: GroupIdentity) -> None:
        """Set the id."""
        self._replica = Replica(
            self._settings,
            StoreLog(self._store, self._epoch_file),
            self._epochs,
            identity.broker_id,
            confirmed=self._store.confirmed_before,
        )

    def told(self, told: RoleTold) -> None:
        """Process a notification of a controller."""
        self._member.told(told)

    async def take_role(self, told: RoleTold) -> None:
        """Take a role, unless it is outdated: then finish the change to the current one. Raises
        RoleRefused, OSError."""
        replica, services = self._replica, self._services
        assert replica is not None
        assert services is not None
        known = replica.master
        identity = self._member.identity
        assert identity is not None
        if told.members is not None:
            self._members = told.members
        leads = told.master_id == identity.broker_id
        elsewhere = leads and told.master_address != self._address
        if known is not None and told.master_epoch <= known.master_epoch:
            if elsewhere and told.master_epoch == known.master_epoch:
                self._lines.error(
                    "controller has another address for this master: %s",
                    explain_copy(identity, told.master_address),
                )
            self.obey(replica.told(told, self._now()))
            await self._finish_role(services)
            return
        if elsewhere:
            raise RoleRefused(explain_copy(identity, told.master_address))
        if leads and self._store.flush_failed:
            raise RoleRefused("this broker cannot be the master: a flush failed")
        try:
            if leads and replica.role is not Role.MASTER:
                await self._stop_following()
                await self.cut_torn()
            orders = replica.told(told, self._now())
        except (StoreError, CutRefused) as error:
            raise RoleRefused(str(error)) from error
        for order in orders:
            if isinstance(order, Lead):
                log.warning(
                    "broker is master of group %s, epoch %d",
                    self._config.broker_name, order.epoch,
                )  # fmt: skip
                self._due = order
            elif isinstance(order, StayMaster):
                log.warning(
                    "broker stays master of group %s, epoch %d",
                    self._config.broker_name, order.epoch,
                )  # fmt: skip
                if self._due is not None:
                    self._due = Lead(order.epoch)
                else:
                    services.new_reign(order.epoch)
            elif isinstance(order, Follow):
                log.warning(
                    "broker is slave: broker %d at %s is master of group %s, epoch %d",
                    order.master_id, order.address, self._config.broker_name, order.epoch,
                )  # fmt: skip
                self._due = order
        try:
            await self._finish_role(services)
        finally:
            self.obey(orders)

    async def _finish_role(self, services: Services) -> None:
        """Finish the change to the current role, also one that an error has interrupted."""
        try:
            if isinstance(self._due, Lead):
                await self._lead(self._due, services)
            elif self._due is not None:
                await self._follow(self._due, services)
        except StoreError as error:
            raise RoleRefused(str(error)) from error
        self._due = None

    # Both can be repeated after an error.

    async def _lead(self, order: Lead, services: Services) -> None:
        store, config = self._store, self._config
        store.confirm(self._readable())
        self._count_members()
        store.lead()
        config.broker_id = MASTER_ID
        config.broker_role = BrokerRole.SYNC_MASTER
        await services.lead(order.epoch)

    async def _follow(self, order: Follow, services: Services) -> None:
        store, config = self._store, self._config
        identity = self._member.identity
        assert identity is not None
        # From here on, no messages are stored.
        config.broker_role = BrokerRole.SLAVE
        config.broker_id = identity.broker_id
        store.follow()
        self._waits.fail_all()
        await self._stop_following()
        self.metadata.use(order.address)
        await services.follow(order.epoch)
        self._client.start()
        self._searching = KeptTask(
            partial(self._search, order.address), "search of the master's HA address"
        )

    async def _stop_following(self) -> None:
        if self._searching is not None:
            await self._searching.stop()
            self._searching = None
        self.metadata.use("")
        await self._client.stop()

    async def cut_torn(self) -> None:
        """Wait until all received records are in their queues; then remove an incomplete record at
        the end, and the epochs that begin after that. Raises StoreError, OSError."""
        store = self._store
        store.settle()
        store.replica.catch_up()
        while store.replica.has_more:  # with SYNC_FLUSH some wait for the disk
            await asyncio.sleep(_ENTERED_SECONDS)
            store.replica.catch_up()
        if store.commit_log.whole < store.commit_log.end:
            await store.cut(store.commit_log.whole)
            self._was_cut()

    def _was_cut(self) -> None:
        if self._services is not None:
            self._services.was_cut()

    async def _search(self, address: str) -> None:
        """Query the HA address of the master, which gives it once it has taken its role."""
        while True:
            with contextlib.suppress(RemotingError):
                answer = await self._pool.request(
                    address,
                    RequestCode.EXCHANGE_BROKER_HA_INFO,
                    ExchangeHAInfoRequestHeader(),
                    timeout=_SEARCH_SECONDS,
                )
                told = ExchangeHAInfoResponseHeader.from_ext(answer.ext_fields)
                if answer.code == 0 and told.master_ha_address:
                    self._client.use(told.master_ha_address)
            known = self._client.connection is not None
            await asyncio.sleep(_SEARCH_SECONDS if known else _ASK_SECONDS)

    def master_is(self, ha_address: str, address: str) -> None:
        """Use the master's addresses from a name server if they match the controller's, so as not
        to follow a former master."""
        replica = self._replica
        master = None if replica is None else replica.master
        if replica is None or replica.role is not Role.SLAVE or master is None:
            return
        if address == master.master_address:
            self._client.use(ha_address)

    @property
    def lacks_master(self) -> bool:
        """Whether this is a slave without a connection to its master."""
        return self._config.is_slave and self._client.connection is None

    @property
    def shows_unconfirmed(self) -> bool:
        """Whether consumers would see messages here that the next master may not have: a start
        enters all that the log has, and these are not confirmed or cut yet."""
        if not self._config.is_slave or self._config.read_un_committed:
            return False
        store, replica = self._store, self._replica
        confirmed = store.confirmed_before if replica is None else replica.confirmed
        return min(self._found, store.commit_log.whole) > confirmed

    # --- the health of this member (`health_check.Membership`) ---------------------------------

    @property
    def member_role(self) -> MemberRole:
        """The current role of this broker."""
        return MemberRole(Role.FENCED.value if self._replica is None else self._replica.role.value)

    @property
    def epoch(self) -> int:
        """The same as `master_epoch`."""
        return self.master_epoch

    @property
    def why_fenced(self) -> str:
        """Why this broker has no role yet; empty if it has one."""
        if self.member_role is not MemberRole.FENCED:
            return ""
        why = self._member.trouble
        return f"{_FENCED}: {why}" if why else _FENCED

    @property
    def copies(self) -> int:
        """The number of members in the SyncStateSet of this master."""
        replica = self._replica
        return 1 if replica is None or replica.role is not Role.MASTER else max(replica.set.size, 1)

    @property
    def copies_needed(self) -> int:
        """The number of copies that a send to this master waits for."""
        return self.needed if self.member_role is MemberRole.MASTER else 1

    def master_link(self) -> MasterLink | None:
        """Return the connection to the master; None unless this broker is a slave."""
        replica, identity, client = self._replica, self._member.identity, self._client
        if replica is None or identity is None or replica.role is not Role.SLAVE:
            return None
        connection = client.connection
        in_set = None
        if not self._config.async_learner and self._members is not None:
            in_set = identity.broker_id in self._members
        lag = None
        if connection is not None and connection.master_end is not None:
            lag = max(connection.master_end - self._store.commit_log.end, 0)
        return MasterLink(
            "" if replica.master is None else replica.master.master_address,
            connection is not None,
            (self._now() - client.changed_at) / 1000,
            lag,
            self._config.ha_max_gap_not_in_sync,
            in_set,
            client.trouble,
        )

    # --- orders of the rules (`group_server.Driver`) ------------------------------------------

    def obey(self, orders: list[Order]) -> None:
        """Execute the orders of the rules, and publish changes."""
        replica = self._replica
        if replica is None:
            return
        for order in orders:
            if isinstance(order, AskForSet):
                assert replica.master is not None
                log.info(
                    "SyncStateSet: requesting %s instead of %s",
                    sorted(order.members), sorted(replica.set.members),
                )  # fmt: skip
                self._member.ask_for_set(replica.master, order)
            elif isinstance(order, Drop):
                self._server.drop(order.link)
        self._count_members()
        self._store.note_confirmed(replica.confirmed)
        try:
            self._store.confirm(self._readable())
        except OSError as error:
            self._lines.error("messages cannot be dispatched to their consume queues: %s", error)
        self._waits.acked(replica.copies_from)

    def _count_members(self) -> None:
        """Refuse sends while the SyncStateSet is too small."""
        replica = self._replica
        if replica is not None and replica.role is Role.MASTER:
            self._store.lack_replicas(replica.set.size < self._settings.min_in_sync)

    def set_answered(self, told: tuple[frozenset[int], int] | None) -> None:
        """Process the controller's answer to a request for another set."""
        if self._replica is not None:
            if told is not None:
                log.warning("SyncStateSet is %s", sorted(told[0]))
            self.obey(self._replica.set_answered(told, self._now()))

    def set_refused(self) -> None:
        """Process a refusal of the request by the controller."""
        if self._replica is not None:
            self.obey(self._replica.set_refused())

    def _readable(self) -> int:
        """The physical offset from which on messages are not readable yet."""
        replica = self._replica
        if replica is None or self._config.read_un_committed:
            return EVERYTHING
        if replica.alone or (replica.role is Role.MASTER and not self._settings.all_ack):
            return EVERYTHING
        return replica.confirmed

    def _flushed(self) -> None:
        replica = self._replica
        if replica is None or not self._settings.ack_flushed:
            return
        replica.flushed()
        if self._client.connection is not None:
            self._client.connection.report()
        self.obey([])

    def _tick(self) -> None:
        replica = self._replica
        if replica is None:
            return
        self.obey(replica.tick(self._now()))
        if self._client.connection is not None:
            self._client.connection.tick()
        for connection in list(self._server.connections):
            connection.sender.count()
            connection.sender.send_soon()

    # --- sends that wait (`put_safety.Replicas`) ----------------------------------------------

    @property
    def needed(self) -> int:
        """The number of copies that a send waits for, including this broker's."""
        if not self._settings.all_ack:
            return self._settings.in_sync_replicas
        members = 2 if self._replica is None else len(self._replica.set.needed)
        return max(members, self._settings.min_in_sync)

    def when_replicated(self, end: int, listener: Callable[[bool], None]) -> None:
        """Call `listener(True)` when enough members have the log up to the physical offset `end`;
        call `listener(False)` after slaveTimeout, or when this broker is no longer master."""
        deadline = self._loop.time() + self._config.slave_timeout / 1000
        self._waits.add(end, self.needed, deadline, listener)
        if not self._waits:
            return
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._expire)
        if not self._hurrying:
            # At the end of the turn, together with all other messages that were put in it.
            self._hurrying = True
            self._loop.call_soon(self._hurry)

    def _hurry(self) -> None:
        self._hurrying = False
        with contextlib.suppress(OSError):
            self._store.settle()
        self._server.hurry()

    def _replicated(self, end: int) -> bool:
        return self._replica is not None and self._replica.replicated(end)

    def _expire(self) -> None:
        self._timer = None
        next_deadline = self._waits.expire(self._loop.time())
        if next_deadline is not None:
            self._timer = self._loop.call_at(next_deadline, self._expire)

    # --- state for admin requests and metrics -------------------------------------------------

    def epoch_cache(self) -> EpochEntryCache:
        """Return the answer to GET_BROKER_EPOCH_CACHE."""
        config = self._config
        epochs = self._epochs if self._replica is None else self._replica.epochs
        return EpochEntryCache(
            broker_id=config.broker_id,
            broker_name=config.broker_name,
            cluster_name=config.broker_cluster_name,
            epoch_list=[
                EpochEntry(epochs.end_of(entry, NO_END), entry.epoch, entry.start)
                for entry in epochs
            ],
            max_offset=self._store.commit_log.written,
        )

    def status(self, now: float) -> HARuntimeInfo:
        """Return the answer to GET_BROKER_HA_STATUS; `now` is in Unix seconds."""
        end = self._store.commit_log.written
        info = HARuntimeInfo(
            master=not self._config.is_slave, master_commit_log_max_offset=end,
            ha_connection_info=[],
        )  # fmt: skip
        if self._config.is_slave:
            info.ha_client_runtime_info = self._client_status(now)
            info.master_commit_log_max_offset = 0
            return info
        members = self._replica.set.members if self._replica is not None else frozenset()
        info.in_sync_slave_nums = max(len(members) - 1, 0)
        info.ha_connection_info = [
            HAConnectionRuntimeInfo(
                addr=connection.peer,
                slave_ack_offset=connection.link.acked,
                diff=end - connection.link.acked,
                in_sync=connection.link.slave_id in members,
                transferred_byte_in_second=connection.sender.rate,
                transfer_from_where=connection.link.next,
            )
            for connection in self._server.connections
            if connection.link is not None
        ]
        return info

    def _client_status(self, now: float) -> HAClientRuntimeInfo:
        client = self._client
        connection = client.connection
        info = HAClientRuntimeInfo(
            master_addr=client.address,
            max_offset=self._store.commit_log.end,
            activated=connection is not None,
        )
        if connection is not None:
            since = int(now * 1000) - self._now()
            info.last_read_timestamp = since + connection.link.last_heard
            info.last_write_timestamp = since + connection.link.last_reported
            info.transferred_byte_in_second = connection.rate
            info.master_flush_offset = connection.master_end or 0
        return info

    def figures(self) -> dict[str, object]:
        """Return the figures for brokerStatus and metrics. Lags are in bytes."""
        commit_log = self._store.commit_log
        replica = self._replica
        figures: dict[str, object] = {"brokerRole": self._config.broker_role.value}
        if replica is None or replica.role is Role.FENCED:
            figures["brokerRole"] = Role.FENCED.value
            return figures
        figures["masterEpoch"] = self.master_epoch
        figures["confirmOffset"] = replica.confirmed
        if replica.role is Role.SLAVE:
            figures["haMasterConnected"] = self._client.connection is not None
            figures["haReceivedUnchecked"] = commit_log.end - commit_log.whole
            return figures
        acks = [link.acked for link in replica.links if link.acked >= 0]
        figures["syncStateSet"] = ",".join(map(str, sorted(replica.set.members)))
        figures["haSlaves"] = len(acks)
        figures["haSlavesInSync"] = max(len(replica.set.members) - 1, 0)
        figures["haLargestLag"] = commit_log.written - min(acks, default=commit_log.written)
        figures["haSendsWaiting"] = len(self._waits)
        return figures
