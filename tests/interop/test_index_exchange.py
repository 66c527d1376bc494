"""The index on the wire and on the disk: requests 12 and 321 on both makes, stores that change
hands, and a store whose oldest files have expired."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from pocketmq.message.record import iter_records
from tests.interop.harness import official, ours, tables, wire
from tests.interop.harness.cluster import Cluster
from tests.interop.harness.official import PROJECT, JavaPeer, Server
from tests.unpacking import unpack

QUERY_MESSAGE, GET_MAX_OFFSET, QUERY_CONSUME_QUEUE = 12, 30, 321
GOLDEN = PROJECT / "tests" / "data" / "golden"
#: 5.5 looks for a unique key 36 hours back, if it is not told.
EVER = () if official.VERSION < "5.5" else ("-s", "0", "-e", str(1 << 60))
SMALL_FILES = {
    "mappedFileSizeCommitLog": 131072,
    "mappedFileSizeConsumeQueue": 4000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 200,
}


def send(java: JavaPeer, namesrv: str, topic: str, messages: list[dict[str, Any]]) -> Any:
    return java(
        "send", namesrv=namesrv, group="indexed", topic=topic, mode="sync", messages=messages
    )


def query(address: str, topic: str, key: str, **more: object) -> wire.Answer:
    fields = {"maxNum": 64, "beginTimestamp": 0, "endTimestamp": 2**63 - 1, **more}
    texts = {name: str(value) for name, value in fields.items()}
    return wire.call(address, QUERY_MESSAGE, {"topic": topic, "key": key, **texts})


def test_answers_to_queries_are_alike(
    java: JavaPeer, official_cluster: Cluster, our_cluster: Cluster, topic: str
) -> None:
    seen = []
    for cluster in (official_cluster, our_cluster):
        address = cluster.broker.address
        begin = int(time.time() * 1000)
        messages = [{"body": f"m{n}", "keys": f"all k{n} schlüssel"} for n in range(5)]
        sent = send(java, cluster.address, topic, messages)

        # The official index follows the log within moments.
        def indexed(address: str = address) -> bool:
            answer = query(address, topic, "all")
            return answer.code == 0 and len(list(iter_records(answer.body))) == 5

        wire.until(indexed, "indexed")

        def bodies(address: str, key: str, **more: object) -> tuple[object, ...]:
            answer = query(address, topic, key, **more)
            records = list(iter_records(answer.body)) if answer.code == 0 else []
            known = {name: int(value) > 0 for name, value in sorted(answer.ext_fields.items())}
            return answer.code, answer.remark, known, [bytes(record.body) for record in records]

        seen.append(
            [
                bodies(address, "all"),
                bodies(address, "all", maxNum=2),
                bodies(address, "k3"),
                bodies(address, "schlüssel"),
                bodies(address, sent[2]["msgId"], _UNIQUE_KEY_QUERY="true", maxNum=0),
                bodies(address, sent[2]["msgId"]),
                bodies(address, "none"),
                bodies(address, "all", endTimestamp=begin - 600_000),
                bodies(address, "all", beginTimestamp=begin + 600_000),
            ]
        )
    official_answers, our_answers = seen
    assert our_answers == official_answers
    assert our_answers[0][3] == [b"m0", b"m1", b"m2", b"m3", b"m4"]
    assert our_answers[4][3] == [b"m2"]


def test_entries_of_consume_queues_are_alike(
    java: JavaPeer, official_cluster: Cluster, our_cluster: Cluster, topic: str
) -> None:
    seen = []
    for cluster in (official_cluster, our_cluster):
        address = cluster.broker.address
        # One queue: a client begins anew somewhere else whenever it learns of a change of route.
        java.mqadmin(
            "updateTopic", "-b", address, "-t", topic, "-r", "1", "-w", "1", "-n", cluster.address
        )
        messages = [{"body": "m", "tags": tag} for tag in ("TagA", "标签", "TagA") * 8]
        send(java, cluster.address, topic, messages)
        # The official broker fills its consume queues a moment later.

        def filled(address: str = address) -> bool:
            where = {"topic": topic, "queueId": "0"}
            return wire.call(address, GET_MAX_OFFSET, where).ext_fields["offset"] == "24"

        wire.until(filled, "the consume queue's entries")
        answers: list[tuple[int, str | None, Any]] = []
        for number, index, count, group in (
            (0, 0, 2, ""),
            (0, 1, 99, "nobody"),
            (0, 99, 1, ""),
            (77, 0, 1, ""),
        ):
            fields = {"topic": topic, "queueId": number, "index": index, "count": count}
            texts = {name: str(value) for name, value in fields.items()}
            if group:
                texts["consumerGroup"] = group
            answer = wire.call(address, QUERY_CONSUME_QUEUE, texts)
            body = tables.fastjson(answer.body.decode()) if answer.body else None
            for entry in (body or {}).get("queueData", ()):
                # Where a record lies depends on what else was sent.
                assert entry.pop("physicOffset") >= 0
                assert entry.pop("physicSize") > 100
            answers.append((answer.code, answer.remark, body))
        unknown = wire.call(
            address,
            QUERY_CONSUME_QUEUE,
            {"topic": "Unknown_321", "queueId": "0", "index": "0", "count": "1"},
        )
        answers.append((unknown.code, unknown.remark, None))
        seen.append(answers)
    official_answers, our_answers = seen
    assert our_answers == official_answers
    assert len(our_answers[0][2]["queueData"]) == 2


def found(address: str, topic: str, key: str) -> list[bytes]:
    """The bodies that QUERY_MESSAGE finds."""
    answer = query(address, topic, key)
    return [bytes(record.body) for record in iter_records(answer.body)] if not answer.code else []


def found_by_key(java: JavaPeer, namesrv: str, topic: str, key: str) -> set[str]:
    text = java.mqadmin("queryMsgByKey", "-t", topic, "-k", key, "-n", namesrv)
    return {row["Message ID"] for row in tables.columns(text)} if "#Message ID" in text else set()


def test_the_official_broker_finds_by_our_index(java: JavaPeer, tmp_path: Path) -> None:
    """The log is not read for it: after a clean stop the official broker enters nothing anew."""
    namesrv = ours.start_name_server(tmp_path)
    broker = ours.start_broker(tmp_path, namesrv.address, name="indexed", settings=SMALL_FILES)
    messages = [{"body": f"m{n}", "keys": f"k{n} all"} for n in range(150)]
    sent = send(java, namesrv.address, "Indexed", messages)
    assert broker.store is not None
    assert broker.process.terminate() == 0
    files = {path: path.read_bytes() for path in sorted((broker.store / "index").iterdir())}
    assert len(files) == 3  # of 199 entries

    successor = official.start_broker(
        tmp_path, namesrv.address, name="indexed", store=broker.store, settings=SMALL_FILES
    )
    try:
        for n in range(0, 150, 10):
            assert found(successor.address, "Indexed", f"k{n}") == [b"m%d" % n]
            assert found(successor.address, "Indexed", sent[n]["msgId"]) == [b"m%d" % n]
        assert len(found(successor.address, "Indexed", "all")) == 64
        assert found_by_key(java, namesrv.address, "Indexed", "k149") == {sent[149]["msgId"]}
        # It goes on in our last file.
        send(java, namesrv.address, "Indexed", [{"body": "more", "keys": "more"}])
        wire.until(lambda: found(successor.address, "Indexed", "more") == [b"more"], "indexed")
        assert found(successor.address, "Indexed", "k149") == [b"m149"]
        for path, content in list(files.items())[:-1]:
            assert path.read_bytes() == content
        assert sorted((broker.store / "index").iterdir()) == sorted(files)
    finally:
        successor.process.kill()
        namesrv.process.kill()


def test_our_broker_finds_by_the_official_index(
    java: JavaPeer, official_namesrv: Server, tmp_path: Path
) -> None:
    store = tmp_path / "golden"
    unpack(GOLDEN / "store-5.3.3-clean.tar.gz", store)
    keyed = [
        message
        for message in json.loads((GOLDEN / "store-5.3.3-clean.json").read_text())
        if "KEYS" in message["properties"] and not message["topic"].startswith("%")
    ]
    assert len(keyed) > 10
    broker = ours.start_broker(
        tmp_path, official_namesrv.address, name="golden_index", store=store,
        settings={**SMALL_FILES, "maxIndexNum": 2000},
    )  # fmt: skip
    try:
        for message in keyed[::5]:
            for key in message["properties"]["KEYS"].split():
                answer = query(broker.address, message["storedTopic"], key)
                offsets = [record.physical_offset for record in iter_records(answer.body)]
                assert message["physicalOffset"] in offsets
        first = keyed[0]
        text = java.mqadmin(
            "queryMsgByUniqueKey", "-t", first["topic"], "-n", official_namesrv.address,
            "-i", first["properties"]["UNIQ_KEY"], *EVER,
        )  # fmt: skip
        assert tables.fields(text)["CommitLog Offset"] == str(first["physicalOffset"])
    finally:
        assert broker.process.terminate() == 0


def test_expired_files_are_gone_for_both_makes(java: JavaPeer, tmp_path: Path) -> None:
    namesrv = ours.start_name_server(tmp_path)
    broker = ours.start_broker(
        tmp_path, namesrv.address, name="expiring", settings={**SMALL_FILES, "maxIndexNum": 100}
    )
    assert broker.store is not None
    log = broker.store / "commitlog"
    send(java, namesrv.address, "Old", [{"body": "old", "keys": "old"}])
    messages = [{"body": "0123456789abcdef", "size": 2000, "keys": f"k{n}"} for n in range(200)]
    sent = send(java, namesrv.address, "New", messages)
    first, second, *_ = sorted(log.iterdir())
    for path in (first, second):
        os.utime(path, (1e9, 1e9))
    assert found(broker.address, "Old", "old") == [b"old"]

    def mqadmin(command: str, *arguments: str) -> str:
        return java.mqadmin(command, *arguments, "-n", namesrv.address)

    assert "success" in mqadmin("deleteExpiredCommitLog", "-b", broker.address)
    wire.until(lambda: not second.exists() and not first.exists(), "removed")
    assert "success" in mqadmin("cleanExpiredCQ", "-b", broker.address)
    assert not (broker.store / "consumequeue" / "Old").exists()
    status = tables.fields(mqadmin("brokerStatus", "-b", broker.address))
    assert status["commitLogMinOffset"] == str(2 * 131072)
    bounds = mqadmin("topicStatus", "-t", "New").splitlines()[1:5]
    assert all(int(line.split()[2]) > 0 for line in bounds), bounds
    assert found_by_key(java, namesrv.address, "Old", "old") == set()
    assert len(found(broker.address, "New", "k199")) == 1
    assert broker.process.terminate() == 0

    successor = official.start_broker(
        tmp_path, namesrv.address, name="expiring", store=broker.store,
        settings={**SMALL_FILES, "maxIndexNum": 100},
    )  # fmt: skip
    try:

        def min_offset() -> str | None:
            status = tables.fields(mqadmin("brokerStatus", "-b", successor.address))
            return status.get("commitLogMinOffset")

        wire.until(lambda: min_offset() == str(2 * 131072), "the official broker's figures")
        again = mqadmin("topicStatus", "-t", "New").splitlines()[1:5]
        assert [line.split()[:4] for line in again] == [line.split()[:4] for line in bounds]
        assert found_by_key(java, namesrv.address, "New", "k199") == {sent[199]["msgId"]}
    finally:
        successor.process.kill()
        namesrv.process.kill()
