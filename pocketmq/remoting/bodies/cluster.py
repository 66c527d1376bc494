"""Clusters and broker groups as a name server knows them."""

from __future__ import annotations

from msgspec import field

from pocketmq.remoting.bodies.base import Body
from pocketmq.remoting.bodies.route import BrokerData


class ClusterInfo(Body):
    """GET_BROKER_CLUSTER_INFO: broker groups by name, and their names by cluster."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


class BrokerMemberGroup(Body):
    """The live members of a broker group: address by broker id."""

    broker_addrs: dict[int, str] = field(default_factory=dict)
    broker_name: str = ""
    cluster: str = ""


class GetBrokerMemberGroupResponseBody(Body):
    """GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup | None = None


class HAConnectionRuntimeInfo(Body):
    """One slave of a master. `diff` is how many bytes it lacks; a rate is in bytes per second."""

    addr: str = ""
    diff: int = 0
    in_sync: bool = False
    slave_ack_offset: int = 0
    transfer_from_where: int = 0
    transferred_byte_in_second: int = 0


class HAClientRuntimeInfo(Body):
    """The connection of a slave to its master; times are Unix ms."""

    activated: bool = False
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_addr: str = ""
    master_flush_offset: int = 0
    max_offset: int = 0
    transferred_byte_in_second: int = 0


class HARuntimeInfo(Body):
    """GET_BROKER_HA_STATUS of a master, or of a slave. Offsets are physical."""

    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    in_sync_slave_nums: int = 0
    master: bool = True
    master_commit_log_max_offset: int = 0
