"""Kinds of topics that only the official broker serves: ours refuses them and harms nothing.

The official broker writes a store with such topics, ours serves what else is in it, and the
official broker then finds everything as it was.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pocketmq.message import properties as names
from pocketmq.message.record import iter_records
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.interop.harness import official, ours, wire
from tests.interop.harness.official import Server
from tests.interop.test_store_exchange import SMALL_FILES

#: The attributes of each topic.
TOPICS = {
    "Plain": "",
    "Batch": "+queue.type=BatchCQ",
    "Compact": "+cleanup.policy=COMPACTION",
}
LIGHT = "%LMQ%light"
COUNT = 20
SETTINGS = {**SMALL_FILES, "enableLmq": "true", "enableMultiDispatch": "true"}


def create_topics(broker: Server) -> None:
    for topic, attributes in TOPICS.items():
        answer = wire.call(
            broker.address,
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {
                "topic": topic,
                "defaultTopic": "TBW102",
                "readQueueNums": "1",
                "writeQueueNums": "1",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
                "attributes": attributes,
            },
        )
        assert answer.code == 0, answer.remark


def send(broker: Server, topic: str, number: int, **properties: str) -> wire.Answer:
    values = {names.KEYS: f"k{number}", names.UNIQ_KEY: f"{topic}{number}", **properties}
    return wire.call(
        broker.address,
        RequestCode.SEND_MESSAGE,
        {
            "producerGroup": "P",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "1",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": str(int(time.time() * 1000)),
            "flag": "0",
            "properties": names.encode(values),
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        },
        f"{topic} {number}".encode(),
    )


def pull(broker: Server, topic: str) -> wire.Answer:
    return wire.call(
        broker.address,
        RequestCode.PULL_MESSAGE,
        {
            "consumerGroup": "G",
            "topic": topic,
            "queueId": "0",
            "queueOffset": "0",
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        },
    )


def bodies(broker: Server, topic: str) -> list[bytes]:
    answer = pull(broker, topic)
    return [bytes(record.body) for record in iter_records(answer.body)] if not answer.code else []


def all_readable(broker: Server, wanted: dict[str, list[bytes]]) -> bool:
    return all(bodies(broker, topic) == expected for topic, expected in wanted.items())


def files(store: Path) -> dict[str, bytes]:
    """The files of the foreign queues."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for folder in ("batchconsumequeue", "compaction", f"consumequeue/{LIGHT}")
        for path in (store / folder).rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("stop", ["cleanly", "by SIGKILL"])
def test_foreign_topics_are_refused_and_left_alone(
    official_namesrv: Server, tmp_path: Path, stop: str
) -> None:
    store = tmp_path / "store"
    name = f"foreign-{stop.split()[-1]}"

    def start_official(run: str) -> Server:
        return official.start_broker(
            tmp_path / run, official_namesrv.address, name=name, store=store, settings=SETTINGS
        )

    broker = start_official("first")
    try:
        create_topics(broker)
        for number in range(COUNT):
            for topic in TOPICS:
                more = {"INNER_MULTI_DISPATCH": LIGHT} if topic == "Plain" else {}
                answer = send(broker, topic, number, **more)
                assert answer.code == 0, answer.remark
        wanted = {topic: [f"{topic} {n}".encode() for n in range(COUNT)] for topic in TOPICS}
        wire.until(lambda: all_readable(broker, wanted), "all readable", 30)
        assert (store / "batchconsumequeue" / "Batch").is_dir()
        assert (store / "consumequeue" / LIGHT).is_dir()
    finally:
        if stop == "cleanly":
            broker.process.terminate()
        else:
            broker.process.kill()

    before = files(store)
    broker = ours.start_broker(
        tmp_path / "ours", official_namesrv.address, name=name, store=store, settings=SMALL_FILES
    )
    try:
        for topic, attribute in TOPICS.items():
            if not attribute:
                continue
            for answer in (send(broker, topic, COUNT), pull(broker, topic)):
                assert answer.code == ResponseCode.INVALID_PARAMETER
                assert f"is not served by this broker: {attribute[1:]}" in (answer.remark or "")
        assert send(broker, LIGHT, COUNT).code != 0
        assert bodies(broker, LIGHT) == []
        assert send(broker, "Plain", COUNT).code == 0
        wanted["Plain"].append(f"Plain {COUNT}".encode())
        assert bodies(broker, "Plain") == wanted["Plain"]
    finally:
        assert broker.process.terminate() == 0
    assert files(store) == before

    broker = start_official("second")
    try:
        wire.until(lambda: all_readable(broker, wanted), "all readable", 30)
        assert send(broker, "Batch", COUNT).code == 0
        wanted["Batch"].append(f"Batch {COUNT}".encode())
        wire.until(lambda: bodies(broker, "Batch") == wanted["Batch"], "Batch goes on", 30)
    finally:
        broker.process.kill()
