"""Clusters and broker groups as a name server knows them."""

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


class HARuntimeInfo(Body):
    """GET_BROKER_HA_STATUS of a master, which here has no slaves. Offsets are physical."""

    in_sync_slave_nums: int = 0
    master: bool = True
    master_commit_log_max_offset: int = 0
