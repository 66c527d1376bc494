"""Bodies of the requests between brokers and controllers."""

from __future__ import annotations

from msgspec import field

from pocketmq.remoting.bodies.base import Body
from pocketmq.remoting.bodies.cluster import BrokerMemberGroup

NO_END = 2**63 - 1
"""`end_offset` of an epoch that goes on."""


class SyncStateSet(Body):
    """The ids of the members that have every acknowledged message, and the set's epoch."""

    sync_state_set: list[int] = field(default_factory=list)
    sync_state_set_epoch: int = 0


class ElectMasterResponseBody(Body):
    """CONTROLLER_ELECT_MASTER."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[int] = field(default_factory=list)


class ReplicaIdentity(Body):
    """A member of a group, as its controller knows it."""

    alive: bool = False
    broker_address: str = ""
    broker_id: int = 0
    broker_name: str = ""


class ReplicasInfo(Body):
    """The members of one group."""

    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    master_address: str | None = None
    master_broker_id: int | None = None
    master_epoch: int = 0
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    sync_state_set_epoch: int = 0


class BrokerReplicasInfo(Body):
    """CONTROLLER_GET_SYNC_STATE_DATA: the groups that were asked for, by brokerName."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)


class EpochEntry(Body):
    """Bytes of a commit log that one master wrote; offsets are physical."""

    end_offset: int = NO_END
    epoch: int = 0
    start_offset: int = 0


class EpochEntryCache(Body):
    """GET_BROKER_EPOCH_CACHE: the epochs of a broker's commit log, which ends at `max_offset`."""

    broker_id: int = 0
    broker_name: str = ""
    cluster_name: str = ""
    epoch_list: list[EpochEntry] = field(default_factory=list)
    max_offset: int = 0
