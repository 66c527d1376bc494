"""Kinds of topics that only the official broker serves: ours refuses them and harms nothing.

The official broker writes a store with such topics, ours serves what else is in it, and the
official broker then finds everything as it was.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

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
    "Static": "",
}
#: Why this broker does not serve them.
REASONS = {
    "Batch": "queue.type=BatchCQ",
    "Compact": "cleanup.policy=COMPACTION",
    "Static": "it is a static topic",
    "%LMQ%light": "it is a light queue",
}
LIGHT = "%LMQ%light"
COUNT = 20
SETTINGS = {**SMALL_FILES, "enableLmq": "true", "enableMultiDispatch": "true"}


def create_topics(broker: Server) -> None:
    for topic, attributes in TOPICS.items():
        static = topic == "Static"
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        if static:
            code = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC
        queues = "2" if static else "1"
        answer = wire.call(
            broker.address,
            code,
            {
                "topic": topic,
                "defaultTopic": "TBW102",
                "readQueueNums": queues,
                "writeQueueNums": queues,
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
                "attributes": attributes,
            },
            static_mapping(broker) if static else b"",
        )
        assert answer.code == 0, answer.remark


def static_mapping(broker: Server) -> bytes:
    """Two queues whose numbers on the disk are crossed: clients know 0 where the files say 1."""
    queues = {
        number: [{"gen": 0, "queueId": 1 - number, "bname": broker.broker_name, "logicOffset": 0}]
        for number in (0, 1)
    }
    mapping = {
        "topic": "Static",
        "scope": "__global__",
        "totalQueues": 2,
        "bname": broker.broker_name,
        "epoch": int(time.time() * 1000),
        "hostedQueues": queues,
    }
    return json.dumps(mapping).encode()


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


def max_offset(broker: Server, topic: str) -> wire.Answer:
    return wire.call(broker.address, RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})


FOREIGN = (
    "batchconsumequeue",
    "compaction",
    "config/topicQueueMapping.json",
    "consumequeue/Static",
    f"consumequeue/{LIGHT}",
)


def files(store: Path) -> dict[str, bytes]:
    """The files of the foreign queues."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for name in FOREIGN
        for path in (store / name, *(store / name).rglob("*"))
        if path.is_file()
    }


def settings_of_topics(store: Path) -> dict[str, Any]:
    """What topics.json says about the topics of this test."""
    table = json.loads((store / "config" / "topics.json").read_text())["topicConfigTable"]
    return {topic: table[topic] for topic in TOPICS}


@pytest.mark.long("by SIGKILL")
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
        assert (store / "consumequeue" / "Static" / "1").is_dir()
        assert not (store / "consumequeue" / "Static" / "0").exists()
    finally:
        if stop == "cleanly":
            broker.process.terminate()
        else:
            broker.process.kill()

    if stop == "by SIGKILL":
        # As if it had ended before it made the first file: the messages are in the log only.
        shutil.rmtree(store / "batchconsumequeue")
    before, settings = files(store), settings_of_topics(store)
    broker = ours.start_broker(
        tmp_path / "ours", official_namesrv.address, name=name, store=store, settings=SMALL_FILES
    )
    try:
        for topic, reason in REASONS.items():
            for answer in (
                send(broker, topic, COUNT),
                pull(broker, topic),
                max_offset(broker, topic),
            ):
                assert answer.code == ResponseCode.INVALID_PARAMETER
                assert f"topic[{topic}] is not served by this broker: {reason}" in str(
                    answer.remark
                )
        assert send(broker, "Plain", COUNT).code == 0
        wanted["Plain"].append(f"Plain {COUNT}".encode())
        assert bodies(broker, "Plain") == wanted["Plain"]
    finally:
        assert broker.process.terminate() == 0
    assert files(store) == before
    assert settings_of_topics(store) == settings

    broker = start_official("second")
    try:
        wire.until(lambda: all_readable(broker, wanted), "all readable", 30)
        for topic in REASONS:
            if topic != LIGHT:
                answer = send(broker, topic, COUNT)
                assert (answer.code, answer.ext_fields["queueOffset"]) == (0, str(COUNT))
                wanted[topic].append(f"{topic} {COUNT}".encode())
        wire.until(lambda: all_readable(broker, wanted), "the topics go on", 30)
    finally:
        broker.process.kill()
