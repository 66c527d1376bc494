"""Stores change hands: the official broker opens ours, ours opens the official's.

On the way each broker registers with the other make's name server.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.record_layout import HEAD_SIZE
from pocketmq.store.check.store_check import check_store, sized
from pocketmq.store.config import StoreConfig
from pocketmq.store.log.checkpoint import read_flushed
from pocketmq.store.repair.store_repair import repair_store
from pocketmq.store.snapshot.store_snapshot import write_snapshot
from tests.interop.harness import official, ours
from tests.interop.harness.official import PROJECT, JavaPeer, Server
from tests.interop.harness.wire import until
from tests.unpacking import unpack

GOLDEN = PROJECT / "tests" / "data" / "golden"

# Small files, so that both brokers must follow the log and the queues over many of them.
SMALL_FILES = {"mappedFileSizeCommitLog": 131072, "mappedFileSizeConsumeQueue": 4000}
# Each record ends with a checksum of all its bytes, and one without is an error.
CHECKSUMS = {"enabledAppendPropCRC": True, "forceVerifyPropCRC": True}

Message = dict[str, Any]


def pull(java: JavaPeer, namesrv: Server, queues: list[dict[str, Any]]) -> Any:
    return java("pull", namesrv=namesrv.address, group="exchange", queues=queues)


def by_queue(messages: list[Message]) -> dict[tuple[str, int], list[Message]]:
    """Messages per (topic, queue id) in queue order, without what a client adds on the way."""
    queues: dict[tuple[str, int], list[Message]] = defaultdict(list)
    for message in messages:
        plain = {key: value for key, value in message.items() if key not in ("body", "msgId")}
        plain["properties"] = {
            name: value
            for name, value in message["properties"].items()
            if name not in ("MIN_OFFSET", "MAX_OFFSET")
        }
        queues[message["storedTopic"], message["queueId"]].append(plain)
    for queue in queues.values():
        queue.sort(key=lambda message: int(message["queueOffset"]))
    return dict(queues)


def fill(java: JavaPeer, namesrv: Server) -> list[dict[str, Any]]:
    """Send every shape of message; gives the queues that now hold some."""
    shapes: dict[str, list[dict[str, Any]]] = {
        "plain": [{"body": f"plain {i} " * (i + 1)} for i in range(80)],
        "tagged": [
            {
                "body": f"tagged {i}",
                "tags": ("TagA", "标签", "AaAa", "BBBB")[i % 4],
                "keys": f"k{i} shared",
                "properties": {"n": str(i), "名": "值 with blanks"},
            }
            for i in range(120)
        ],
        "big": [{"body": "0123456789abcdef", "size": 3_000 + 977 * i} for i in range(40)],
    }
    for topic, messages in shapes.items():
        send(java, namesrv, topic, "sync" if topic == "plain" else "async", messages)
    for _ in range(20):
        send(java, namesrv, "batches", "batch", shapes["tagged"][:40])
    return [
        {"topic": topic, "queueId": queue} for topic in (*shapes, "batches") for queue in range(4)
    ]


def has_sealed_file(store: Path) -> bool:
    """Return whether the first file of the log is wholly flushed: a snapshot links only those."""
    flushed = read_flushed(store / "checkpoint")
    if flushed is None or flushed.offset is None:
        return False
    return flushed.offset >= SMALL_FILES["mappedFileSizeCommitLog"]


def send(java: JavaPeer, namesrv: Server, topic: str, mode: str, messages: list[Any]) -> None:
    java(
        "send",
        namesrv=namesrv.address,
        group="filler",
        topic=topic,
        mode=mode,
        messages=messages,
    )


@pytest.mark.long("cleanly", "not at all")  # test_index_exchange.py has a store of a clean stop
@pytest.mark.parametrize("stop", ["cleanly", "by SIGKILL", "not at all"])
def test_official_broker_serves_a_store_of_ours(java: JavaPeer, tmp_path: Path, stop: str) -> None:
    store = tmp_path / "store"
    settings = SMALL_FILES | (CHECKSUMS if stop == "by SIGKILL" else {})
    # A name server of its own: another broker's route would take some of the messages.
    our_namesrv = ours.start_name_server(tmp_path)
    broker = ours.start_broker(
        tmp_path, our_namesrv.address, name="exchanged", store=store, settings=settings
    )
    queues = [{**queue, "brokerName": "exchanged"} for queue in fill(java, our_namesrv)]
    before = pull(java, our_namesrv, queues)
    assert len(before["messages"]) == 80 + 120 + 40 + 20 * 40
    if stop == "not at all":  # it opens a snapshot
        until(lambda: has_sealed_file(store), "a file of the log that is wholly flushed")
        config = StoreConfig(store_path_root_dir=str(store))
        store = tmp_path / "snapshot"
        assert write_snapshot(config, store).linked
    if stop == "cleanly":
        assert broker.process.terminate() == 0
    else:
        broker.process.kill()
    assert len(list((store / "commitlog").iterdir())) > 3

    successor = official.start_broker(
        tmp_path, our_namesrv.address, name="exchanged", store=store, settings=settings
    )
    try:
        after = pull(java, our_namesrv, queues)
        assert after["queues"] == before["queues"]
        assert by_queue(after["messages"]) == by_queue(before["messages"])

        # It goes on where ours stopped: the next message takes the next queue offset.
        send(java, our_namesrv, "plain", "sync", [{"body": f"next {i}"} for i in range(4)])
        grown = pull(java, our_namesrv, queues)
        assert len(grown["messages"]) == len(before["messages"]) + 4
        for queue, messages in by_queue(grown["messages"]).items():
            assert [message["queueOffset"] for message in messages] == list(range(len(messages))), (
                queue
            )
    finally:
        successor.process.kill()
        our_namesrv.process.kill()
    if settings != SMALL_FILES:
        for found in (before, grown):
            assert all("__CRC32#" in message["properties"] for message in found["messages"])
        report = check_store(sized(StoreConfig(store_path_root_dir=str(store))))
        assert not [each for each in report.problems if each.part == "commitlog"]


def test_official_broker_serves_a_store_that_we_repaired(java: JavaPeer, tmp_path: Path) -> None:
    """It steps over the padding, and builds no entries for it."""
    store = tmp_path / "store"
    our_namesrv = ours.start_name_server(tmp_path)
    broker = ours.start_broker(
        tmp_path, our_namesrv.address, name="exchanged", store=store, settings=SMALL_FILES
    )
    queues = [{**queue, "brokerName": "exchanged"} for queue in fill(java, our_namesrv)]
    before = pull(java, our_namesrv, queues)["messages"]
    broker.process.kill()
    # One body, and a whole stretch up to the end of a file; not in the first file, of whose
    # messages the official broker skips some behind a filler.
    file_size = SMALL_FILES["mappedFileSizeCommitLog"]
    damaged = next(m for m in before if file_size < m["physicalOffset"] < 1.5 * file_size)
    with (store / "commitlog" / f"{file_size:020d}").open("r+b") as file:
        file.seek(damaged["physicalOffset"] - file_size + HEAD_SIZE)
        file.write(b"\xff" * 4)
    begin = min(m["physicalOffset"] for m in before if m["physicalOffset"] > 2.8 * file_size)
    with (store / "commitlog" / f"{2 * file_size:020d}").open("r+b") as file:
        file.seek(begin - 2 * file_size)
        file.write(bytes(3 * file_size - begin))
    repair = repair_store(StoreConfig(store_path_root_dir=str(store)))
    gone = {
        (lost.topic, lost.queue_id, offset)
        for lost in repair.lost
        for offset in range(lost.begin, lost.end)
    }
    expected = [
        m for m in before if m is not damaged and not begin <= m["physicalOffset"] < 3 * file_size
    ]
    assert len(gone) == len(before) - len(expected) > 2

    successor = official.start_broker(
        tmp_path, our_namesrv.address, name="exchanged", store=store, settings=SMALL_FILES
    )
    try:
        after = pull(java, our_namesrv, queues)["messages"]
        assert by_queue(after) == by_queue(expected)
        send(java, our_namesrv, "plain", "sync", [{"body": f"next {i}"} for i in range(4)])
        assert len(pull(java, our_namesrv, queues)["messages"]) == len(expected) + 4
    finally:
        successor.process.kill()
        our_namesrv.process.kill()


@pytest.fixture(params=["store-5.3.3-clean", "store-5.3.3-killed"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[Message]]:
    """A copy of a store that the official broker wrote, and the list of its messages."""
    store = tmp_path / "golden"
    unpack(GOLDEN / f"{request.param}.tar.gz", store)
    return store, json.loads((GOLDEN / f"{request.param}.json").read_text())


def test_our_broker_serves_an_official_store(
    java: JavaPeer,
    official_namesrv: Server,
    tmp_path: Path,
    golden: tuple[Path, list[Message]],
) -> None:
    store, messages = golden
    expected = by_queue(messages)
    broker = ours.start_broker(
        tmp_path, official_namesrv.address, name="golden", store=store, settings=SMALL_FILES
    )
    try:
        answer = pull(
            java,
            official_namesrv,
            [
                {"topic": topic, "brokerName": "golden", "queueId": queue}
                for topic, queue in expected
            ],
        )
        served = by_queue(answer["messages"])
        for queue, wanted in expected.items():
            # What a broker appended after opening (its own checks and deliveries) lies behind.
            assert served[queue][: len(wanted)] == wanted, queue
    finally:
        broker.process.terminate()
