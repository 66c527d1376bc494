"""Official stores of other kinds are refused by name, and say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from pocketmq import open_store
from pocketmq.cli import main
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.store.config import StoreConfig
from pocketmq.store.errors import ForeignStore
from pocketmq.store.message_store import MessageStore
from tests.store.made_store import BROKER, MadeStore

#: What lies in such a store, and what the error says besides its name.
MARKS = [
    ("dledger-n0/data/00000000000000000000", "enableDLegerCommitLog"),
    ("consumequeue/CURRENT", "storeType=default"),
    ("config/topics/CURRENT", "rocksDBConfigToJson"),
    ("config/subscriptionGroups/CURRENT", "rocksDBConfigToJson"),
    ("config/consumerOffsets/CURRENT", "rocksDBConfigToJson"),
    ("config/metadata/CURRENT", "rocksDBConfigToJson"),
    ("config/rdb/CURRENT", "configManagerVersion"),
    ("kvStore/CURRENT+kvStore/000009.sst", "popConsumerKVServiceEnable"),
    (
        "consumequeue/RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC/0/00000000000000000000",
        "transRocksDBEnable",
    ),
    ("timerwheel.4096", "timerWheelSnapshotFlush"),
]
OF_MESSAGES = MARKS[:2]


def marked(root: Path, mark: str) -> Path:
    """Return the store at `root`, with these files in it."""
    made = MadeStore(root, segment_size=4096)
    made.put("orders", 0, b"x")
    made.write()
    for name in mark.split("+"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"MANIFEST-000005\n")
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("mark", "says"), MARKS)
def test_a_broker_does_not_open_it_nor_change_it(mark: str, says: str, tmp_path: Path) -> None:
    root = marked(tmp_path / "store", mark)
    before = contents(root)
    store = MessageStore(StoreConfig(store_path_root_dir=str(root)), store_host=BROKER)
    with pytest.raises(ForeignStore, match=says) as caught:
        store.open()
    assert str(caught.value).startswith(str(root / mark.split("/")[0]))
    assert contents(root) == before


@pytest.mark.parametrize(("mark", "says"), MARKS)
@pytest.mark.parametrize("command", [["check"], ["repair"], ["dump"]])
def test_commands_say_what_it_is(
    mark: str, says: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = marked(tmp_path / "store", mark)
    before = contents(root)
    assert main(["store", *command, str(root)]) == ExitCode.UNAVAILABLE
    assert says in capsys.readouterr().err
    assert contents(root) == before


def test_a_store_without_a_commit_log_of_its_own_is_named_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    assert main(["store", "check", str(tmp_path)]) == ExitCode.UNAVAILABLE
    assert "a log of DLedger" in capsys.readouterr().err
    with pytest.raises(ForeignStore, match="a log of DLedger"):
        open_store(tmp_path)


@pytest.mark.parametrize(("mark", "says"), OF_MESSAGES)
def test_a_scan_does_not_take_it_for_empty(mark: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ForeignStore, match=says):
        open_store(marked(tmp_path / "store", mark))


@pytest.mark.parametrize(
    "mark",
    [
        "rocksdbstore/CURRENT",  # every broker from 5.4 on makes it
        "config/users/CURRENT+config/acls/CURRENT",
        "kvStore/CURRENT",
        "consumequeue_rocksdb/CURRENT",  # beside complete queues
    ],
)
def test_what_is_no_mark_is_opened(mark: str, tmp_path: Path) -> None:
    root = marked(tmp_path / "store", mark)
    with open_store(root) as stored:
        assert stored.topics == ["orders"]
    assert main(["store", "check", str(root)]) == ExitCode.OK
