"""Headers of the requests between brokers and controllers.

Reference: the package remoting/protocol/header/controller. Epochs are those of masters unless the
name says otherwise. A broker id of 0 never occurs: controllers count from 1.
"""

from __future__ import annotations

from pocketmq.remoting.headers.base import I32, I64, Header


class AlterSyncStateSetRequestHeader(Header):
    """CONTROLLER_ALTER_SYNC_STATE_SET (1001); the new set is in the body, with the epoch of the
    set that it replaces. invoke_time: ms."""

    broker_name: str
    master_broker_id: I64
    master_epoch: I32
    invoke_time: I64 = 0


class AlterSyncStateSetResponseHeader(Header):
    """The epoch of the new set."""

    new_sync_state_set_epoch: I32 | None = None


class ElectMasterRequestHeader(Header):
    """CONTROLLER_ELECT_MASTER (1002).

    Attributes:
        broker_id: who asks, or (`designate_elect`) who has to become master; -1 leaves the choice
            to the controller.
        invoke_time: ms.
    """

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: I64 = -1
    designate_elect: bool = False
    invoke_time: I64 = 0


class ElectMasterResponseHeader(Header):
    """The master, new or not."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None


class RegisterBrokerToControllerRequestHeader(Header):
    """CONTROLLER_REGISTER_BROKER (1003). invoke_time: ms."""

    cluster_name: str
    broker_name: str
    broker_id: I64
    broker_address: str
    invoke_time: I64 = 0


class RegisterBrokerToControllerResponseHeader(Header):
    """The group's master, if it has one that is alive."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None


class GetReplicaInfoRequestHeader(Header):
    """CONTROLLER_GET_REPLICA_INFO (1004)."""

    broker_name: str


class GetReplicaInfoResponseHeader(Header):
    """The group's master; without an id it has none at the moment."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None


class GetMetaDataResponseHeader(Header):
    """CONTROLLER_GET_METADATA_INFO (1005). peers: `id:address`, separated by semicolons."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class GetNextBrokerIdRequestHeader(Header):
    """CONTROLLER_GET_NEXT_BROKER_ID (1012)."""

    cluster_name: str
    broker_name: str


class GetNextBrokerIdResponseHeader(Header):
    """The id that the next new member of the group can apply for."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: I64 | None = None


class ApplyBrokerIdRequestHeader(Header):
    """CONTROLLER_APPLY_BROKER_ID (1013). register_check_code: a member that repeats it gets the
    same id again."""

    cluster_name: str
    broker_name: str
    applied_broker_id: I64
    register_check_code: str


class NotifyBrokerRoleChangedRequestHeader(Header):
    """NOTIFY_BROKER_ROLE_CHANGED (1008), oneway from a controller; the SyncStateSet is in the
    body."""

    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None
    master_broker_id: I64 | None = None
