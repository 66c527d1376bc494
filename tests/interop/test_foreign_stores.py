"""Stores of other kinds, as the official broker writes them: refused by name, and left alone.

tests/store/test_foreign_store.py has every kind, as made directories. With enableLmq only one file
differs, and both brokers use the same offsets.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pocketmq import open_store
from pocketmq.cli import main
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.store.errors import ForeignStore
from tests.interop.harness import official, ours, sending, wire
from tests.interop.harness.official import Server
from tests.interop.harness.ports import free_port
from tests.interop.harness.reading import bodies_in
from tests.interop.test_store_exchange import SMALL_FILES

COUNT = 5


def rocksdb() -> dict[str, Any]:
    return {"storeType": "defaultRocksDB"}


def dledger() -> dict[str, Any]:
    return {
        "enableDLegerCommitLog": True,
        "dLegerGroup": "g",
        "dLegerPeers": f"n0-127.0.0.1:{free_port()}",
        "dLegerSelfId": "n0",
    }


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def accepts(broker: Server, body: bytes) -> bool:
    return sending.send(broker.address, "orders", body).code == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "says", "remedy"),
    [
        (rocksdb, "storeType=defaultRocksDB", "mqadmin rocksDBConfigToJson"),
        (dledger, "enableDLegerCommitLog=true", "until its consumers have read everything"),
    ],
)
def test_another_kind_of_store_is_refused_by_name(
    official_namesrv: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: Callable[[], dict[str, Any]],
    says: str,
    remedy: str,
) -> None:
    root = tmp_path / "store"
    broker = official.start_broker(
        tmp_path,
        official_namesrv.address,
        name=kind.__name__,
        store=root,
        settings=SMALL_FILES | kind(),
    )
    try:
        sent = [b"%d" % number for number in range(COUNT)]
        for body in sent:
            wire.until(partial(accepts, broker, body), "the broker accepts a message", 60, 0.5)
        wire.until(lambda: bodies_in(broker.address, "orders") == sent, "all readable", 60)
    finally:
        broker.process.terminate()
    before = contents(root)

    ended = ours.spawn_broker(tmp_path, official_namesrv.address, name=kind.__name__, store=root)
    assert ended.process.wait(60) == ExitCode.UNAVAILABLE
    assert says in ended.process.tail()
    assert remedy in ended.process.tail()
    copy = tmp_path / "copy"
    for command in (
        ("store", "check", root),
        ("store", "repair", root),
        ("store", "dump", root),
        ("store", "snapshot", root, copy),
        ("sync", root, tmp_path / "archive"),
        ("export", tmp_path / "orders.parquet", "--store", root),
    ):
        code = main([str(word) for word in command])
        said = capsys.readouterr().err
        assert (code, says in said) == (ExitCode.UNAVAILABLE, True), (command, said)
    with pytest.raises(ForeignStore, match=says):
        open_store(root)
    assert contents(root) == before
    assert not copy.exists()
    assert not (tmp_path / "archive").exists()


def create_group(broker: Server, group: str) -> None:
    body = json.dumps({"groupName": group}).encode()
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert wire.call(broker.address, code, body=body).code == 0


def commit(broker: Server, topic: str, group: str, offset: int) -> None:
    place = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    assert wire.call(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, place).code == 0


def committed(broker: Server, topic: str, group: str) -> int:
    place = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    answer = wire.call(broker.address, RequestCode.QUERY_CONSUMER_OFFSET, place)
    return int(answer.ext_fields["offset"]) if answer.code == 0 else -1


@pytest.mark.long
def test_offsets_of_enable_lmq_are_shared(official_namesrv: Server, tmp_path: Path) -> None:
    root = tmp_path / "store"
    light = "%LMQ%light"
    groups = ("old", "moved", "new")

    def start_official(run: str) -> Server:
        return official.start_broker(
            tmp_path / run, official_namesrv.address, name="lmq", store=root,
            settings=SMALL_FILES | {"enableLmq": True, "enableMultiDispatch": True},
        )  # fmt: skip

    broker = start_official("first")
    try:
        for number in range(COUNT):
            body = b"%d" % number
            answer = sending.send(broker.address, "orders", body, INNER_MULTI_DISPATCH=light)
            assert answer.code == 0
        for group in groups:
            create_group(broker, group)
        commit(broker, "orders", "old", 1)
        commit(broker, "orders", "moved", 2)
        commit(broker, light, light, 3)
        assert committed(broker, light, light) == 3
    finally:
        broker.process.terminate()
    assert (root / "config" / "lmqConsumerOffset.json").exists()

    broker = ours.start_broker(
        tmp_path / "ours", official_namesrv.address, name="lmq", store=root, settings=SMALL_FILES
    )
    try:
        assert [committed(broker, "orders", group) for group in ("old", "moved")] == [1, 2]
        commit(broker, "orders", "moved", 4)
        commit(broker, "orders", "new", 5)
    finally:
        assert broker.process.terminate() == 0

    broker = start_official("second")
    try:
        assert [committed(broker, "orders", group) for group in groups] == [1, 4, 5]
        assert committed(broker, light, light) == 3
    finally:
        broker.process.kill()
