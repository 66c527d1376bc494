"""The settings that the rules of replication use."""

from __future__ import annotations

from typing import NamedTuple


class ReplicaSettings(NamedTuple):
    """Times are in milliseconds, sizes in bytes; the defaults are those of 5.3.3.

    Attributes:
        all_ack: allAckInSyncStateSet: sends wait for every member of the SyncStateSet.
        min_in_sync: minInSyncReplicas: sends are refused while the set is smaller.
        in_sync_replicas: inSyncReplicas: the number of copies, including the master's, that sends
            wait for without `all_ack`.
        ack_flushed: a slave reports what is on its disk, not what it has written.
        from_last_file: syncFromLastFile: an empty slave starts with the master's newest file.
        learner: asyncLearner: never become a member of the SyncStateSet.
        batch_size: haTransferBatchSize: the largest body.
        heartbeat_interval: haSendHeartbeatInterval: an idle end sends a heartbeat after this time.
        housekeeping_interval: haHousekeepingInterval: the connection to a silent peer is closed
            after this time.
        most_behind: haMaxTimeSlaveNotCatchup: a member that has not caught up for this time is
            removed from the set.
        first_check: a member that has not connected to a new master within this time is removed
            from the set.
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
