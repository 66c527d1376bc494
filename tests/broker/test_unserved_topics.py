"""Topics of an official store that are not served: refused by name, and left as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pocketmq.message.limits import SCHEDULE_TOPIC
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.conftest import Connect, StartBroker


def store_with_topics(root: Path) -> None:
    """Write the tables of an official broker's store."""
    attributes = {
        "Batch": {"queue.type": "BatchCQ"},
        "Compact": {"cleanup.policy": "COMPACTION"},
        "Static": {},
        "%LMQ%light": {},
        "Plain": {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"},
    }
    topics = {
        name: {
            "topicName": name,
            "readQueueNums": 4,
            "writeQueueNums": 4,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": values,
        }
        for name, values in attributes.items()
    }
    mapping = {"topicQueueMappingInfoMap": {"Static": {"topic": "Static", "totalQueues": 4}}}
    config = root / "config"
    config.mkdir(parents=True, exist_ok=True)
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (config / "topicQueueMapping.json").write_text(json.dumps(mapping))


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("Batch", "queue.type=BatchCQ"),
        ("Compact", "cleanup.policy=COMPACTION"),
        ("Static", "it is a static topic"),
        ("%LMQ%light", "it is a light queue"),
    ],
)
async def test_sends_and_pulls_are_refused_by_name(
    start_broker: StartBroker, connect: Connect, tmp_path: Path, topic: str, why: str
) -> None:
    root = tmp_path / "store"
    store_with_topics(root)
    client = await connect(await start_broker())
    refused = (
        ResponseCode.INVALID_PARAMETER,
        f"topic[{topic}] is not served by this broker: {why}; use an official broker for it",
    )

    for answer in (
        await client.send(topic),
        await client.pull(topic),
        await client.pull(topic, code=RequestCode.LITE_PULL_MESSAGE),
    ):
        assert (answer.code, answer.remark) == refused
    # Again, now that the topic is known; and others are served.
    assert (await client.send(topic)).code == ResponseCode.INVALID_PARAMETER
    assert (await client.send("Plain")).code == 0
    assert (await client.pull("Plain")).code == 0
    assert not (root / "consumequeue" / topic).exists()


async def test_delayed_messages_to_them_wait(
    start_broker: StartBroker, connect: Connect, tmp_path: Path
) -> None:
    """An official broker acknowledged them, and will deliver them."""
    broker = await start_broker(message_delay_level="1s 1h")
    client = await connect(broker)
    for topic in ("Batch", "Static"):
        assert (await client.send(topic, properties={"DELAY": "2"})).code == 0
    await broker.stop()
    config = tmp_path / "store" / "config"
    for file in config.glob("topics.json*"):
        file.unlink()
    store_with_topics(tmp_path / "store")

    broker = await start_broker(message_delay_level="1s 1s")
    client = await connect(broker)
    # Sent after them, and due after them.
    assert (await client.send("Plain", properties={"DELAY": "2"})).code == 0
    answer = await client.pull("Plain", sys_flag=6)
    assert answer.code == 0
    for topic in ("Batch", "Static"):
        assert broker.store.max_offset(topic, 0) == 0
    assert broker.store.max_offset(SCHEDULE_TOPIC, 1) > 3, "they are waiting again"
