"""mqadmin on a broker and a name server as a whole: settings, exports, trial sends, cleaning."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pocketmq.auth.settings import PROPERTIES as AUTH_SETTINGS
from pocketmq.message.incarnation import CREATED_OFFSET, CREATED_TIME
from pocketmq.monitoring.settings import PROPERTIES as MONITORING_SETTINGS
from tests.interop.harness import tables, wire
from tests.interop.harness.cluster import BROKER_NAME, Cluster
from tests.interop.harness.mqadmin import Both, failure, normal
from tests.interop.harness.official import JavaPeer

CLUSTER = "DefaultCluster"

# What the harness sets on one make only, where a broker is, and the one default that is our own
# (pocketmq/broker/config.py).
OWN_SETTINGS = {
    "bindAddress", "brokerConfigPath", "brokerIP1", "listenPort", "namesrvAddr",
    "storePathCommitLog", "storePathRootDir", "diskMaxUsedSpaceRatio", "enablePropertyFilter",
    "maxTransferCountOnMessageInMemory",
}  # fmt: skip


def settings(text: str) -> dict[str, str]:
    """`name = value` lines."""
    pairs = (line.split(" = ", 1) for line in text.splitlines() if " = " in line)
    return {name.strip(): value.strip() for name, value in pairs}


def without_birth(config: dict[str, Any]) -> dict[str, Any]:
    """A topic or a group without what only this broker notes of a topic."""
    notes = (CREATED_OFFSET, CREATED_TIME)
    attributes = config.get("attributes") or {}
    kept = {key: value for key, value in attributes.items() if key not in notes}
    return {**config, "attributes": kept} if "attributes" in config else config


def exported(directory: Path, make: str, name: str) -> Any:
    return tables.fastjson((directory / make / name).read_text())


#: docs/pop.md says why; what an official broker fills in when it starts; and what has another
#: default since 5.4.
DIFFERENT = {
    "appendTopicForTimerDeleteKey", "brokerIP2", "enablePopBufferMerge", "haListenPort",
    "metricsOtelCardinalityLimit",
}  # fmt: skip


def test_broker_config(both: Both) -> None:
    """Every setting that both makes have has the same value: our defaults are the official ones,
    but a few."""
    for where in (("-b", "BROKER"), ("-c", CLUSTER)):
        official, ours = (settings(text) for text in both("getBrokerConfig", *where))
        shared = ours.keys() & official.keys() - OWN_SETTINGS - DIFFERENT
        assert {name: ours[name] for name in shared} == {name: official[name] for name in shared}
        assert {"brokerName", "brokerRole", "maxMessageSize", "messageDelayLevel"} <= shared


def test_update_broker_config(
    both: Both, official_cluster: Cluster, our_cluster: Cluster, topic: str
) -> None:
    def reset(setting: bytes) -> None:
        """Whatever went wrong: the tests that follow use the same brokers."""
        for cluster in (official_cluster, our_cluster):
            wire.call(cluster.broker.address, wire.UPDATE_BROKER_CONFIG, body=setting)

    def change(key: str, value: str, *where: str) -> None:
        official, ours = both(
            "updateBrokerConfig", *(where or ("-b", "BROKER")), "-k", key, "-v", value
        )
        assert normal(ours) == normal(official)
        assert "success" in ours
        for text in both("getBrokerConfig", "-b", "BROKER"):
            assert settings(text)[key] == value

    # Nothing that the official broker does not take back: with autoCreateTopicEnable=false its next
    # send makes the default topic unfit to create topics from, for good.
    change("recallMessageEnable", "true")
    try:
        change("recallMessageEnable", "false", "-c", CLUSTER)
    finally:
        reset(b"recallMessageEnable=false")
    change("brokerPermission", "4")
    try:
        for text in both("topicRoute", "-t", "SELF_TEST_TOPIC"):
            assert tables.fastjson(text)["queueDatas"][0]["perm"] == 4
    finally:
        reset(b"brokerPermission=6")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("listenPort", "listenPort cannot change while the broker runs"),
        ("nonsense", "nonsense is not a property of a broker"),
    ],
)
def test_what_can_not_change_says_so(
    java: JavaPeer, our_cluster: Cluster, key: str, reason: str
) -> None:
    """The official broker says success to each, and then sends its clients to another port."""
    text = java.mqadmin(
        "updateBrokerConfig", "-b", our_cluster.broker.address, "-k", key, "-v", "12345",
        "-n", our_cluster.address,
    )  # fmt: skip

    assert reason in (failure(text) or "")


def test_an_official_setting_without_effect_is_accepted(both: Both) -> None:
    command = ("updateBrokerConfig", "-b", "BROKER", "-k", "transferMsgByHeap", "-v", "false")
    official, ours = both(*command)
    assert failure(ours) is failure(official) is None
    for text in both("getBrokerConfig", "-b", "BROKER"):
        assert settings(text)["transferMsgByHeap"] == "false"


def test_closed_settings(both: Both) -> None:
    for command in (
        ("updateBrokerConfig", "-b", "BROKER", "-k", "brokerConfigPath", "-v", "/x"),
        ("updateNamesrvConfig", "-k", "configStorePath", "-v", "/x"),
    ):
        official, ours = both(*command)
        assert failure(ours) == failure(official)
        assert "CODE: 16" in (failure(ours) or "")


def test_name_server_config(both: Both) -> None:
    paths = {"bindAddress", "configStorePath", "kvConfigPath", "listenPort", "rocketmqHome"}
    own = {"maxConnectionsPerAddress", *AUTH_SETTINGS, *MONITORING_SETTINGS}

    def shown() -> dict[str, str]:
        official, ours = (settings(text) for text in both("getNamesrvConfig"))
        for name in own:
            del ours[name]
        assert ours.keys() <= official.keys()
        for name in ours.keys() - paths:
            assert ours[name] == official[name], name
        return ours

    assert shown()["orderMessageEnable"] == "false"
    for value in ("true", "false"):
        official, ours = both("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", value)
        assert normal(ours) == normal(official)
        assert shown()["orderMessageEnable"] == value


def test_exports(
    java: JavaPeer, official_cluster: Cluster, our_cluster: Cluster, both: Both, new_topic: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    clusters = (official_cluster, our_cluster)
    group = f"G_{new_topic}"
    both("updateSubGroup", "-c", CLUSTER, "-g", group, "-r", "3")

    def export(file: str, *command: str) -> tuple[Any, Any]:
        for cluster in clusters:
            target = tmp_path / cluster.make
            text = java.mqadmin(*command, "-f", str(target), "-n", cluster.address)
            assert text.strip().endswith(f"{target}/{file} success"), text
        return exported(tmp_path, "official", file), exported(tmp_path, "ours", file)

    official, ours = export("metadata.json", "exportMetadata", "-c", CLUSTER)
    # Both list only what is not the broker's own.
    assert (
        without_birth(ours["topicConfigTable"][new_topic])
        == (official["topicConfigTable"][new_topic])
    )
    assert "SELF_TEST_TOPIC" not in ours["topicConfigTable"]
    assert ours["subscriptionGroupTable"][group] == official["subscriptionGroupTable"][group]
    assert "TOOLS_CONSUMER" not in ours["subscriptionGroupTable"]
    assert ours.keys() == official.keys()

    official, ours = export("configs.json", "exportConfigs", "-c", CLUSTER)
    assert ours["clusterScale"] == official["clusterScale"]
    [official_config] = official["brokerConfigs"].values()
    [our_config] = ours["brokerConfigs"].values()
    for name in our_config.keys() & official_config.keys() - OWN_SETTINGS:
        assert our_config[name] == official_config[name], name
    assert official_config.keys() - our_config.keys() <= {"useTLS"}

    for cluster in clusters:
        target = tmp_path / cluster.make
        for kind, file in (("-t", "topic.json"), ("-g", "subscriptionGroup.json")):
            text = java.mqadmin(
                "exportMetadata", "-b", cluster.broker.address, kind, "-f", str(target),
                "-n", cluster.address,
            )  # fmt: skip
            assert file in text, text
    for file, table, name in (
        ("topic.json", "topicConfigTable", new_topic),
        ("subscriptionGroup.json", "subscriptionGroupTable", group),
    ):
        official, ours = (exported(tmp_path, make, file) for make in ("official", "ours"))
        assert ours.keys() == official.keys()
        assert without_birth(ours[table][name]) == official[table][name]


def test_trial_sends(both: Both, new_topic: str) -> None:
    for text in both("checkMsgSendRT", "-t", new_topic, "-a", "4", "-s", "10"):
        rows = tables.columns(text)
        assert [row["Send Result"] for row in rows] == ["true"] * 4
        assert {row["Broker Name"] for row in rows} == {BROKER_NAME}
        assert {row["QID"] for row in rows} == {"0", "1"}
    for text in both("sendMsgStatus", "-b", BROKER_NAME, "-s", "10", "-c", "2"):
        assert text.count("SEND_OK") == 2


def test_cluster_round_trip(both: Both) -> None:
    # The command never ends by itself; an interval that no thread can sleep ends it.
    for text in both("clusterRT", "-a", "3", "-s", "10", "-c", CLUSTER, "-i", "-1"):
        row = text.splitlines()[1].split()
        assert row[:2] == [CLUSTER, BROKER_NAME], text
        assert row[3:] == ["3", "0"]
        assert failure(text) == "timeout value is negative"


def test_cleaning(both: Both) -> None:
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        official, ours = both(command, "-b", "BROKER")
        assert normal(ours) == normal(official)
        assert ours.strip() == "success"


def test_ha_status(both: Both) -> None:
    for where in (("-b", "BROKER"), ("-c", CLUSTER)):
        official, ours = (
            re.sub(r"(Offset\t)\d+", r"\1N", normal(text)) for text in both("haStatus", *where)
        )
        assert ours == official
        assert "#SlaveNum\t0" in ours


def test_unknown_requests(official_cluster: Cluster, our_cluster: Cluster) -> None:
    official, ours = (
        [wire.call(address, 999)[:2] for address in (c.address, c.broker.address)]
        for c in (official_cluster, our_cluster)
    )

    assert ours == official == [(3, " request type 999 not supported")] * 2


def test_our_own_answer_to_what_is_not_served(our_cluster: Cluster) -> None:
    for code in (13, 1001, 2001):
        answer = wire.call(our_cluster.broker.address, code)
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")
        assert json.loads(answer.body or b"null") is None
