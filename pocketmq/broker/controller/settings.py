"""The settings that the rules of replication go by."""

from __future__ import annotations

from typing import NamedTuple


class ReplicaSettings(NamedTuple):
    """Times are milliseconds, sizes bytes; the defaults are 5.3.3's.

    Attributes:
        all_ack: allAckInSyncStateSet: sends wait for every member of the SyncStateSet.
        min_in_sync: minInSyncReplicas: sends are refused while the set is smaller.
        in_sync_replicas: inSyncReplicas: how many copies sends wait for without `all_ack`, the
            master's among them.
        ack_flushed: a slave reports what it has on the disk, not what it has written.
        from_last_file: syncFromLastFile: when empty, begin with the master's newest file.
        learner: asyncLearner: never become a member of the SyncStateSet.
        batch_size: haTransferBatchSize: the largest body.
        heartbeat_interval: haSendHeartbeatInterval: an idle end sends after so long.
        housekeeping_interval: haHousekeepingInterval: a silent peer is lost after so long.
        most_behind: haMaxTimeSlaveNotCatchup: a member that has not had everything for so long
            leaves the set.
        first_check: a member that has not connected to a new master leaves the set after so long.
    """

    all_ack: bool = False
    min_in_sync: int = 1
    in_sync_replicas: int = 1
    ack_flushed: bool = False
    from_last_file: bool = False
    learner: bool = False
    batch_size: int = 32 * 1024
    heartbeat_interval: int = 5_000
    housekeeping_interval: int = 20_000
    most_behind: int = 15_000
    first_check: int = 3_000
