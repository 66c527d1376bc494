"""The tables of a store change hands: official, ours, official again, nothing lost on the way.

The first owner is the official broker that wrote the golden store. Whatever ours does not know is
put into the files by hand, as a later release would.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from tests.interop.harness import official, ours, tables, wire
from tests.interop.harness.official import PROJECT, JavaPeer, Server
from tests.unpacking import unpack

QUERY_OFFSET, UPDATE_OFFSET, UPDATE_TOPIC, UPDATE_GROUP, FORBIDDEN = 14, 15, 17, 200, 353
ALL_TOPICS, ALL_GROUPS, ALL_OFFSETS = 21, 201, 43
GROUP = "Golden_group"
SMALL_FILES = {"mappedFileSizeCommitLog": 131072, "mappedFileSizeConsumeQueue": 4000}
FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The golden store with unknown keys, in the documents and in their entries."""
    directory = tmp_path / "store"
    archive_path = PROJECT / "tests" / "data" / "golden" / "store-5.3.3-clean.tar.gz"
    unpack(archive_path, directory)
    for name, table, key in (
        ("topics.json", "topicConfigTable", "Golden_plain"),
        ("subscriptionGroup.json", "subscriptionGroupTable", GROUP),
        ("consumerOffset.json", None, None),
    ):
        document = read(directory, name)
        document["ofTomorrow"] = {"a": [1, None]}
        if table is not None:
            document[table][key]["ofTomorrow"] = "kept"
        (directory / "config" / name).write_text(json.dumps(document))
    return directory


def read(store: Path, name: str) -> Any:
    return tables.fastjson((store / "config" / name).read_text())


def call(broker: Server, code: int, body: bytes = b"", /, **fields: str) -> Any:
    answer = wire.call(broker.address, code, fields, body)
    assert answer.code == 0, answer.remark
    return tables.fastjson(answer.body.decode()) if answer.body else answer.ext_fields


def shown(broker: Server) -> tuple[Any, Any, Any]:
    """Topics, groups and offsets as the broker answers them."""
    return (
        call(broker, ALL_TOPICS)["topicConfigTable"],
        call(broker, ALL_GROUPS)["subscriptionGroupTable"],
        call(broker, ALL_OFFSETS)["offsetTable"],
    )


def covers(new: Any, old: Any) -> bool:
    """Everything of `old` is in `new` as it was, at any depth."""
    if isinstance(old, Mapping):
        return isinstance(new, Mapping) and all(
            key in new and covers(new[key], value) for key, value in old.items()
        )
    if isinstance(old, list):  # Java's sets
        return isinstance(new, list) and all(item in new for item in old)
    return bool(new == old)


def test_tables_survive_both_makes(
    java: JavaPeer, official_namesrv: Server, store: Path, tmp_path: Path
) -> None:
    before = {name: read(store, name) for name in FILES}
    broker = ours.start_broker(
        tmp_path, official_namesrv.address, name="tables", store=store, settings=SMALL_FILES
    )
    topics, groups, offsets = shown(broker)
    assert covers(topics, without_unknown(before["topics.json"]["topicConfigTable"]))
    assert covers(
        groups, without_unknown(before["subscriptionGroup.json"]["subscriptionGroupTable"])
    )
    assert covers(offsets, before["consumerOffset.json"]["offsetTable"])

    change(broker)
    ours_last = shown(broker)
    assert broker.process.terminate() == 0
    after = {name: read(store, name) for name in FILES}
    for name in FILES:
        del before[name]["dataVersion"]
        assert covers(after[name], before[name]), name
        assert after[name]["ofTomorrow"] == {"a": [1, None]}
        assert (store / "config" / f"{name}.bak").exists()
    assert after["topics.json"]["dataVersion"]["counter"] > 10

    successor = official.start_broker(
        tmp_path, official_namesrv.address, name="tables", store=store, settings=SMALL_FILES
    )
    try:
        official_first = shown(successor)
        for theirs, mine in zip(official_first, ours_last, strict=True):
            # The official broker adds topics and groups of its own, and its reput adds offsets.
            assert covers(theirs, {key: mine[key] for key in mine if "TRANS" not in key})
        text = call(successor, FORBIDDEN, group=GROUP, topic="Golden_plain")
        assert text["readable"] is False
        fields = {"consumerGroup": "Later_group", "topic": "Later_topic", "queueId": "1"}
        assert call(successor, QUERY_OFFSET, **fields)["offset"] == "7"
    finally:
        successor.process.kill()


def without_unknown(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {key: value for key, value in fields.items() if key != "ofTomorrow"}
        for name, fields in table.items()
    }


def change(broker: Server) -> None:
    """A new topic and group with everything that can be set, an offset, something forbidden."""
    call(
        broker, UPDATE_TOPIC, topic="Later_topic", defaultTopic="TBW102", readQueueNums="5",
        writeQueueNums="3", perm="6", topicFilterType="MULTI_TAG", topicSysFlag="1", order="true",
        attributes="+message.type=DELAY",
    )  # fmt: skip
    group = SubscriptionGroupConfig(
        group_name="Later_group",
        consume_broadcast_enable=False,
        consume_message_orderly=True,
        retry_max_times=3,
        retry_queue_nums=2,
        consume_timeout_minute=1,
    )
    group.group_retry_policy.type = "EXPONENTIAL"
    call(broker, UPDATE_GROUP, group.encode())
    call(broker, FORBIDDEN, group=GROUP, topic="Golden_plain", readable="false")
    fields = {"consumerGroup": "Later_group", "topic": "Later_topic", "queueId": "1"}
    call(broker, UPDATE_OFFSET, **fields, commitOffset="7")
