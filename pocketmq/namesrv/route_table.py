"""The five tables of a name server: live brokers and their topics, and their rules.

| table | key | row |
|---|---|---|
| topic queues | topic, broker name | the queues of the topic at that broker group |
| broker addresses | broker name | the group: cluster, and address by broker id |
| cluster addresses | cluster | names of its broker groups |
| live brokers | cluster, address | when it last gave a sign, its data version, its connection |
| filter servers | cluster, address | filter servers of the broker (brokers of 4.x) |

Only masters write topics, or the slave that acts for a missing one. The rules follow
RouteInfoManager of release 5.3.3; docstrings note where they differ.

No I/O is done here: a connection is an opaque object that is only compared, and time is a clock
that is passed in.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from pocketmq.limited_log import LimitedLog, shown
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.topic_queue_table import (
    PERM_WRITE,
    TopicQueueTable,
    weight_of_mappings,
    weight_of_rows,
)
from pocketmq.remoting.bodies.cluster import BrokerMemberGroup, ClusterInfo
from pocketmq.remoting.bodies.registration import (
    MOST_TOPICS,
    DataVersion,
    RegisterBrokerBody,
)
from pocketmq.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers.namesrv import RegisterBrokerRequestHeader
from pocketmq.remoting.machine_memory import at_most
from pocketmq.remoting.monotonic import MonotonicClock, MonotonicMs
from pocketmq.remoting.serving.budget import text_bytes

log = logging.getLogger("pocketmq.namesrv.route_table")

K = TypeVar("K")
V = TypeVar("V")

MASTER_ID = 0
LIVENESS_WINDOW = 120_000
"""Milliseconds that a broker is kept without a sign of life, unless it asks for another window."""

LONGEST_NAME = 512
"""Characters of the name of a topic, broker or cluster."""

_TOPICS_OF_STEP = 500
_SERVER = 57  # bytes of a text, and of its place in a list

SYNC_BROKER_MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Topics by which brokers find the members of their group; no acting master is shown there."""


class Limits(NamedTuple):
    """The most `topics` of a broker group, `rows` (topics of all groups together; a topic at two
    groups counts twice), `brokers` (and as many groups), and estimated `bytes` of topics, queue
    mappings and filter servers."""

    topics: int = MOST_TOPICS
    rows: int = 1_000_000
    brokers: int = 10_000
    bytes: int = at_most(512 << 20)


class BrokerAddress(NamedTuple):
    """A broker as the live table knows it."""

    cluster: str
    address: str


class BrokerLive(msgspec.Struct):
    """Signs of life of a broker. Times in ms."""

    broker_name: str
    last_update: MonotonicMs
    window: int
    data_version: DataVersion
    channel: object
    ha_server_addr: str


class RegisterBrokerResult(NamedTuple):
    """The answer to a slave: its live master's address, and that for replication."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


class RouteTable:
    """The five tables.

    Args:
        config: read at each use, so that changed settings count at once.
        clock: measures how long brokers are silent.
        limits: of what the tables hold.

    Attributes:
        topics: the table of topic queues. Readers may ask it directly.
    """

    def __init__(
        self, config: NamesrvConfig, *, clock: MonotonicClock, limits: Limits | None = None
    ) -> None:
        self._config = config
        self._limits = limits or Limits()
        self._clock = clock
        self._log = LimitedLog(log)
        self.topics = TopicQueueTable()
        self._changes = 0
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[BrokerAddress, BrokerLive] = {}
        self._filter_servers: dict[BrokerAddress, list[str]] = {}
        self._filter_weight = 0  # estimated bytes of these
        # What a connection that ends takes with it, and the groups that an address is in.
        self._by_channel: dict[object, set[BrokerAddress]] = {}
        self._by_address: dict[str, set[str]] = {}

    @property
    def version(self) -> tuple[int, int]:
        """Differs after each change of what routes show."""
        return self._changes, self.topics.changes

    # Brokers register

    def register_broker(
        self, header: RegisterBrokerRequestHeader, body: RegisterBrokerBody, channel: object
    ) -> Generator[None, None, RegisterBrokerResult | None]:
        """Take a broker's registration, some topics in each step; return None if it is refused.

        It ends early if the broker is removed between two steps. Let the steps of one registration
        end before the next one.

        The first registration of a broker is refused if it lists exactly one topic: it is the
        update of one topic by a broker that this name server has forgotten, and its route would
        lack all the others. The reference keeps such a broker's group as a ghost without address;
        here nothing remains of it. Nor does anything remain of a registration that is older than
        another; in the reference it still sets the group's zone and enableActingMaster. A group
        whose broker names another cluster moves there; the reference lists it in both.

        Raises:
            RemotingError: the tables would become too large.
        """
        self._check_size(header, body)
        self._changes += 1
        at = BrokerAddress(header.cluster_name, header.broker_addr)
        wrapper = body.topic_config_serialize_wrapper
        group = self._brokers.get(header.broker_name)
        addresses = {} if group is None else group.broker_addrs
        if self._conflicts(header, addresses, wrapper.data_version):
            if at in self._live:
                self._remove_address(at)
            return RegisterBrokerResult()
        topics = wrapper.topic_config_table
        first = header.broker_id not in addresses
        self._note_rival(header, group)
        if first and len(topics) == 1:
            self._log.warning(
                "refused topic %s of broker %d of %s at %s: the broker is not registered yet",
                next(iter(topics)),
                header.broker_id,
                header.broker_name,
                at.address,
            )
            return None

        if group is None:
            group = BrokerData(cluster=header.cluster_name, broker_name=header.broker_name)
            self._brokers[header.broker_name] = group
        elif group.cluster != header.cluster_name:
            self._leave_cluster(group)
            group.cluster = header.cluster_name
        self._clusters.setdefault(header.cluster_name, set()).add(header.broker_name)
        group.enable_acting_master = header.enable_acting_master is True
        group.zone_name = header.zone_name
        # An address has one id: a slave that became master loses its old one.
        addresses = {
            broker_id: address
            for broker_id, address in group.broker_addrs.items()
            if address != at.address or broker_id == header.broker_id
        }
        addresses[header.broker_id] = at.address
        self._set_addresses(group, addresses)

        master = header.broker_id == MASTER_ID
        acting = (
            not master
            and header.enable_acting_master is not None
            and header.broker_id == min(group.broker_addrs)
        )
        known = self._live.get(at)
        changed = first or known is None or known.data_version != wrapper.data_version
        window = header.heartbeat_timeout_millis
        if at not in self._live:
            self._log.info("new broker registered, %s HAService: %s", at, header.ha_server_addr)
        self._disconnect(at)
        self._by_channel.setdefault(channel, set()).add(at)
        live = self._live[at] = BrokerLive(
            broker_name=header.broker_name,
            last_update=self._clock(),
            window=LIVENESS_WINDOW if window is None else window,
            data_version=wrapper.data_version,
            channel=channel,
            ha_server_addr=header.ha_server_addr,
        )
        self._set_filter_servers(at, body.filter_server_list)
        if master or acting:
            read_only = acting and group.enable_acting_master
            left = iter(topics.values())
            while some := list(islice(left, _TOPICS_OF_STEP)):
                self.topics.register(header.broker_name, some, changed=changed, read_only=read_only)
                yield
                if self._live.get(at) is not live:
                    return RegisterBrokerResult()
            self.topics.register_mappings(
                header.broker_name, wrapper.topic_queue_mapping_info_map, changed=changed
            )
            if (
                self._config.delete_topic_with_broker_registration
                and not wrapper.topic_queue_mapping_info_map
            ):
                names = [topic.topic_name for topic in topics.values()]
                self.topics.drop_broker(header.broker_name, keep=names)
        return RegisterBrokerResult() if master else self._master_of(group)

    def _check_size(self, header: RegisterBrokerRequestHeader, body: RegisterBrokerBody) -> None:
        """Raise RemotingError if a registration would make the tables too large."""
        wrapper = body.topic_config_serialize_wrapper
        mappings = wrapper.topic_queue_mapping_info_map
        known = self.topics.at(header.broker_name)
        names = {topic.topic_name for topic in wrapper.topic_config_table.values()}
        new = names.difference(known)
        at = BrokerAddress(header.cluster_name, header.broker_addr)
        longest = max(
            map(
                len,
                (*names, *at, header.broker_name, header.ha_server_addr, header.zone_name or ""),
            )
        )
        for count, most, what in (
            (len(known) + len(new), self._limits.topics, "topics of this group"),
            (self.topics.rows + len(new), self._limits.rows, "topics of all brokers"),
            (len(self._live) + (at not in self._live), self._limits.brokers, "brokers"),
            (
                len(self._brokers) + (header.broker_name not in self._brokers),
                self._limits.brokers,
                "broker groups",
            ),
            (longest, LONGEST_NAME, "characters in a name"),
            (
                self._weight
                + weight_of_rows(new)
                + weight_of_mappings(mappings.values())
                - weight_of_mappings(self.topics.mappings_at(header.broker_name, mappings))
                + _weight_of_servers(body.filter_server_list)
                - _weight_of_servers(self._filter_servers.get(at, ())),
                self._limits.bytes,
                "bytes of all brokers",
            ),
        ):
            if count > most:
                raise RemotingError(
                    ResponseCode.SYSTEM_ERROR,
                    f"{shown(header.broker_name)} is not registered: there would be {count} "
                    f"{what}, at most {most}",
                )

    @property
    def _weight(self) -> int:
        return self.topics.weight + self._filter_weight

    def _set_filter_servers(self, at: BrokerAddress, servers: list[str]) -> None:
        self._filter_weight -= _weight_of_servers(self._filter_servers.pop(at, ()))
        if servers:
            self._filter_servers[at] = servers
            self._filter_weight += _weight_of_servers(servers)

    def _conflicts(
        self,
        header: RegisterBrokerRequestHeader,
        addresses: dict[int, str],
        data_version: DataVersion,
    ) -> bool:
        """Tell whether another address holds the broker's id with a newer state version."""
        holder = addresses.get(header.broker_id)
        if holder is None or holder == header.broker_addr:
            return False
        live = self._live.get(BrokerAddress(header.cluster_name, holder))
        if live is None or live.data_version.state_version <= data_version.state_version:
            return False
        self._log.warning(
            "ignored broker %d of %s at %s with state version %d: %s has %d",
            header.broker_id,
            header.broker_name,
            header.broker_addr,
            data_version.state_version,
            holder,
            live.data_version.state_version,
        )
        return True

    def _note_rival(self, header: RegisterBrokerRequestHeader, group: BrokerData | None) -> None:
        """Log that a broker replaces a live one: two may be configured alike."""
        holder = None if group is None else group.broker_addrs.get(header.broker_id)
        if group is None or holder is None:
            return
        live = self._live.get(BrokerAddress(group.cluster, holder))
        if live is None or (holder, group.cluster) == (header.broker_addr, header.cluster_name):
            return
        self._log.warning(
            "broker %d of %s in cluster %s at %s replaces the one in cluster %s at %s, which was "
            "alive %d ms ago: the master changed, or two brokers have the same name and id",
            header.broker_id,
            header.broker_name,
            header.cluster_name,
            header.broker_addr,
            group.cluster,
            holder,
            self._clock() - live.last_update,
        )

    def _master_of(self, group: BrokerData) -> RegisterBrokerResult:
        address = group.broker_addrs.get(MASTER_ID)
        live = None
        if address is not None:
            live = self._live.get(BrokerAddress(group.cluster, address))
        return (
            RegisterBrokerResult(address, live.ha_server_addr) if live else RegisterBrokerResult()
        )

    # Brokers live and go

    def touch(self, cluster: str, address: str) -> None:
        """Note a sign of life; ignore unknown brokers."""
        live = self._live.get(BrokerAddress(cluster, address))
        if live is not None:
            live.last_update = self._clock()

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """Return the version that the broker registered last, or None for an unknown broker."""
        live = self._live.get(BrokerAddress(cluster, address))
        return None if live is None else live.data_version

    def unregister_broker(self, cluster: str, address: str, broker_name: str) -> None:
        """Remove a broker, and topics that no other broker has.

        A group that acts for its missing master loses the write permission on its topics. If
        another broker has registered with the address since, that one stays; the reference takes
        its sign of life away.
        """
        at = BrokerAddress(cluster, address)
        live = self._live.get(at)
        known = live is not None and live.broker_name == broker_name
        self._log.info("unregister broker %s %s: %s", broker_name, at, "OK" if known else "unknown")
        if known:
            self._remove_address(at)
        else:
            self._leave_group(broker_name, address)

    def _leave_group(self, broker_name: str, address: str) -> None:
        group = self._brokers.get(broker_name)
        if group is None:
            return
        self._changes += 1
        self._set_addresses(group, {i: a for i, a in group.broker_addrs.items() if a != address})
        if not group.broker_addrs:
            self._remove_group(broker_name)
        elif group.enable_acting_master and min(group.broker_addrs) > MASTER_ID:
            self.topics.wipe_write_perm(broker_name)

    def _set_addresses(self, group: BrokerData, addresses: dict[int, str]) -> None:
        for address in set(group.broker_addrs.values()).difference(addresses.values()):
            _discard(self._by_address, address, group.broker_name)
        for address in addresses.values():
            self._by_address.setdefault(address, set()).add(group.broker_name)
        group.broker_addrs = addresses

    def _remove_group(self, broker_name: str) -> None:
        self._leave_cluster(self._brokers.pop(broker_name))
        self.topics.drop_broker(broker_name)

    def _leave_cluster(self, group: BrokerData) -> None:
        _discard(self._clusters, group.cluster, group.broker_name)

    def channel_lost(self, channel: object) -> None:
        """Remove the brokers (of a container there may be several) that registered over it."""
        for at in list(self._by_channel.get(channel, ())):
            self._remove_address(at)

    def _disconnect(self, at: BrokerAddress) -> None:
        live = self._live.get(at)
        if live is not None:
            _discard(self._by_channel, live.channel, at)

    def expire(self) -> list[object]:
        """Remove brokers that were silent for longer than their window; return their channels."""
        now = self._clock()
        expired = [
            (at, live) for at, live in self._live.items() if live.last_update + live.window < now
        ]
        for at, live in expired:
            self._log.warning("broker %s has been silent for %d ms", at, now - live.last_update)
            self._remove_address(at)
        return [live.channel for _, live in expired]

    def _remove_address(self, at: BrokerAddress) -> None:
        """Remove an address without a live broker. Under another broker name it may be in a second
        group, which nothing else would remove; the reference removes it from one group only."""
        self._changes += 1
        self._disconnect(at)
        del self._live[at]
        self._set_filter_servers(at, [])
        for name in list(self._by_address.get(at.address, ())):
            group = self._brokers[name]
            if (
                group.cluster == at.cluster
                or BrokerAddress(group.cluster, at.address) not in self._live
            ):
                self._leave_group(group.broker_name, at.address)

    # Topics

    def register_topic(self, topic: str, rows: Collection[QueueData]) -> bool:
        """Add a topic by hand; return False, and do nothing, if a broker in it is unknown. Raises
        RemotingError if there are too many topics."""
        unknown = [row.broker_name for row in rows if row.broker_name not in self._brokers]
        if unknown:
            self._log.warning("topic %s is not registered: unknown brokers %s", topic, unknown)
            return False
        if (
            self.topics.rows + len(rows) > self._limits.rows
            or self._weight + len(rows) * weight_of_rows([topic]) > self._limits.bytes
            or len(topic) > LONGEST_NAME
        ):
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"topic {shown(topic)} is not registered: all brokers together have at most "
                f"{self._limits.rows} topics in {self._limits.bytes} bytes, and names "
                f"{LONGEST_NAME} characters",
            )
        self.topics.add(topic, rows)
        self._log.info("topic %s registered at %s", topic, [row.broker_name for row in rows])
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, or its queues in one cluster, if it is known."""
        if cluster:
            self.topics.drop_at(topic, sorted(self._clusters.get(cluster, ())))
        else:
            self.topics.drop(topic)

    # Answers

    def route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic, or None if no live group has it. Do not change it."""
        rows = self.topics.get(topic)
        names = sorted(name for name in rows if name in self._brokers)
        if not names:
            return None
        groups = [self._brokers[name] for name in names]
        filter_servers = {
            address: self._filter_servers[at]
            for group in groups
            for address in group.broker_addrs.values()
            if (at := BrokerAddress(group.cluster, address)) in self._filter_servers
        }
        if self._config.support_acting_master and not topic.startswith(
            SYNC_BROKER_MEMBER_GROUP_PREFIX
        ):
            groups = [
                _with_acting_master(group)
                if not rows[group.broker_name].perm & PERM_WRITE
                else group
                for group in groups
            ]
        return TopicRouteData(
            broker_datas=groups,
            filter_server_table=filter_servers,
            queue_datas=[rows[name] for name in names],
            topic_queue_mapping_by_broker=self.topics.mappings(topic),
        )

    def cluster_info(self) -> ClusterInfo:
        """Return all groups and clusters. Do not change them."""
        return ClusterInfo(
            broker_addr_table=self._brokers,
            cluster_addr_table={name: sorted(groups) for name, groups in self._clusters.items()},
        )

    def cluster_of(self, broker_name: str) -> str | None:
        """Return the cluster that a broker group is in, None for an unknown one."""
        group = self._brokers.get(broker_name)
        return None if group is None else group.cluster

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """Return the members of a group; an unknown group has none."""
        group = self._brokers.get(broker_name)
        addresses = {} if group is None else group.broker_addrs
        return BrokerMemberGroup(broker_addrs=addresses, broker_name=broker_name, cluster=cluster)

    def topics_by_cluster(self, cluster: str) -> list[str]:
        """Return the topics with queues in a cluster; none for an unknown one."""
        return self.topics.names_at(self._clusters.get(cluster, ()))

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return cluster and group names, which are also topics, and a broker's address."""
        names = list(self._clusters)
        for groups in self._clusters.values():
            names += sorted(groups)
        addresses = (a for group in self._brokers.values() for a in group.broker_addrs.values())
        return list(dict.fromkeys(names)), next(addresses, None)


def _weight_of_servers(servers: Iterable[str]) -> int:
    return sum(_SERVER + text_bytes(server) for server in servers)


def _discard(table: dict[K, set[V]], key: K, value: V) -> None:
    """Remove a value, and the key of the last one."""
    values = table[key]
    values.discard(value)
    if not values:
        del table[key]


def _with_acting_master(group: BrokerData) -> BrokerData:
    """Return the group with its smallest id as master, if it has none and allows for that."""
    addresses = group.broker_addrs
    if not addresses or MASTER_ID in addresses or not group.enable_acting_master:
        return group
    acting = min(addresses)
    shown = {MASTER_ID: addresses[acting]}
    shown.update((i, a) for i, a in addresses.items() if i != acting)
    return msgspec.structs.replace(group, broker_addrs=shown)
