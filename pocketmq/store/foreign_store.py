"""Official stores of other kinds, recognised by the content of their directory.

RocketMQ can keep its log in DLedger, and its queues, tables and timers in RocksDB. Nothing of that
is read here: such a store would open with its groups, offsets or messages gone. So it is refused by
name. `config/users` and `config/acls` (ACL 2.0) and `rocksdbstore`, which every broker from 5.4 on
makes, are no such marks.
Reference: DLedgerConfig, RocksDBConfigManager, ConfigStorage, RocksDBConsumeQueueStore,
PopConsumerRocksdbStore, TimerMessageStore.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pocketmq.store.errors import ForeignStore

_ROCKSDB_FILE: Final = "CURRENT"
"""Every RocksDB directory has it."""
_HOLDS: Final = {
    "topics": "the topics",
    "subscriptionGroups": "the consumer groups",
    "consumerOffsets": "the offsets of consumer groups",
    "metadata": "topics, groups and offsets",
    "rdb": "topics, groups and offsets",
}
_TABLES_REMEDY: Final = (
    "Export them with `mqadmin rocksDBConfigToJson`, put the files into config/, and move the "
    "directory away. If the .json files in config/ are newer, as after storeType was changed to "
    "default, only move it away"
)
_QUEUES_REMEDY: Final = (
    "Start the official broker once with storeType=default, which builds the queues as files, and "
    "move the RocksDB files away when it has stopped. If it already ran with storeType=default, "
    "only move them away"
)
_TRANSACTIONS: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
_WHEEL_SNAPSHOT: Final = re.compile(r"timerwheel\.[0-9]+")


def check_kind(root: Path) -> None:
    """Check that the store at `root`, if it exists, is of a supported kind.

    Raises:
        ForeignStore: it is of another kind; the text says of which, and what to do.
        OSError: it cannot be read.
    """
    # The tables before the queues: they have to be exported before anything else is done.
    for find in (_logs, _tables, _queues, _progress):
        for found in find(root):
            raise found


def check_readable(root: Path) -> None:
    """Check that a scan finds the messages of the store at `root`, whichever broker wrote it.

    Raises:
        ForeignStore: its log or its queues are of another kind.
    """
    for find in (_logs, _queues):
        for found in find(root):
            raise found


def _logs(root: Path) -> Iterator[ForeignStore]:
    for path in sorted(root.glob("dledger-*/")):
        if (path / "data").is_dir():
            yield ForeignStore(
                path,
                "a log of DLedger (enableDLegerCommitLog=true), whose records nothing here reads, "
                "and which `pocketmq store repair` would not mend. Keep the official brokers "
                "until its consumers have read everything, and send to a new group meanwhile: a "
                "controller group (enableControllerMode=true, docs/replication.md) replaces it",
            )


def _queues(root: Path) -> Iterator[ForeignStore]:
    for name in ("consumequeue", "consumequeue_rocksdb"):
        path = root / name
        # Beside complete queues as files, the second one is a copy of them.
        if (path / _ROCKSDB_FILE).exists() and (
            name == "consumequeue" or not (root / "consumequeue").is_dir()
        ):
            yield ForeignStore(
                path, f"consume queues in RocksDB (storeType=defaultRocksDB). {_QUEUES_REMEDY}"
            )


def _tables(root: Path) -> Iterator[ForeignStore]:
    for name, holds in _HOLDS.items():
        path = root / "config" / name
        if (path / _ROCKSDB_FILE).exists():
            yield ForeignStore(
                path,
                f"a RocksDB directory with {holds} (storeType=defaultRocksDB, or "
                f"configManagerVersion=v2). {_TABLES_REMEDY}",
            )


def _progress(root: Path) -> Iterator[ForeignStore]:
    path = root / "kvStore"
    if _has_records(path):
        yield ForeignStore(
            path,
            "a RocksDB directory with messages that were popped (popConsumerKVServiceEnable=true), "
            "which would not come back. Let the official broker run until consumers have "
            "acknowledged all of them, stop it, and move the directory away",
        )
    path = root / "consumequeue" / _TRANSACTIONS
    if next(path.glob("*/*"), None) is not None:
        yield ForeignStore(
            path,
            "the queue of transactions whose progress lies in RocksDB (transRocksDBEnable=true). "
            "Run the official broker with transRocksDBEnable=false until no transaction is open, "
            "stop it, and move the directory away",
        )
    for path in sorted(root.glob("timerwheel.*")):
        if _WHEEL_SNAPSHOT.fullmatch(path.name):
            yield ForeignStore(
                path,
                "a snapshot of the timer wheel (timerWheelSnapshotFlush=true), which is newer than "
                "the file timerwheel. Start the official broker with "
                "timerWheelSnapshotFlush=false, stop it cleanly, and move the snapshots away",
            )


def _has_records(path: Path) -> bool:
    """Return whether a RocksDB directory was ever written to."""
    if not (path / _ROCKSDB_FILE).exists():
        return False
    return next(path.glob("*.sst"), None) is not None or any(
        log.stat().st_size for log in path.glob("*.log")
    )
