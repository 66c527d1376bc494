"""mqadmin against both makes: what it prints of ours must mean what it prints of the official."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from tests.interop.harness import tables, wire
from tests.interop.harness.cluster import BROKER_NAME, Cluster
from tests.interop.harness.mqadmin import Both, normal
from tests.interop.harness.official import VERSION_NAME, JavaPeer

GET_KV_CONFIG, GET_KV_LIST, GET_RUNTIME_INFO = 101, 219, 28
QUERY_NOT_FOUND = 22

# What the official clusterList reads of a broker's runtime info.
RUNTIME_KEYS = {
    "brokerActive", "brokerVersion", "brokerVersionDesc", "bootTimestamp", "runtime",
    "putTps", "getTransferredTps", "getFoundTps", "getMissTps", "getTotalTps",
    "sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "ackThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills", "earliestMessageTimeStamp",
    "commitLogDiskRatio", "commitLogMinOffset", "commitLogMaxOffset", "timerReadBehind",
    "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps",
    "msgPutTotalTodayNow", "msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning",
    "msgGetTotalTodayNow", "msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning",
    "putMessageTimesTotal", "putMessageSizeTotal", "putMessageFailedTimes", "dispatchBehindBytes",
    "getMessageEntireTimeMax", "putLatency99", "putLatency999", "putMessageEntireTimeMax",
    "putMessageDistributeTime",
}  # fmt: skip

#: Which 5.3.3 does not show by default; docs/servers.md explains them.
OWN_KEYS = {
    "brokerRole", "damagedEntriesRebuilt", "damagedMessagesPassedOver", "haCopies",
    "haCopiesNeeded", "haLargestLag", "haSendsWaiting", "haSlaves", "haSlavesInSync",
    "heldPullRequests", "isSupportBatchProtocol", "memberAcceptsSends", "memberPermission",
    "memberProblems", "memberReady", "memberRemarks", "remainHowManyDataToCommit",
}  # fmt: skip


def test_cluster_list(both: Both) -> None:
    official, ours = (tables.columns(normal(text)) for text in both("clusterList"))

    stable = ("Cluster Name", "Broker Name", "BID", "Addr", "Version", "ACTIVATED")
    assert [[row[name] for name in stable] for row in ours] == [
        [row[name] for name in stable] for row in official
    ]
    assert [row["Version"] for row in ours] == ["V5_5_0"]
    assert re.fullmatch(r"\d+\.\d\d\(\d+,\d+ms\)", ours[0]["InTPS(LOAD)"])
    assert 0 < float(ours[0]["SPACE"]) < 1


def test_cluster_list_more_statistics(both: Both) -> None:
    official, ours = (tables.columns(text) for text in both("clusterList", "-m"))

    assert [row.keys() for row in ours] == [row.keys() for row in official]
    assert ours[0]["Broker Name"] == BROKER_NAME
    for name in ("InTotalYest", "OutTotalYest", "InTotalToday", "OutTotalToday"):
        assert int(ours[0][name]) >= 0


def test_update_topic_is_routed_and_listed(both: Both, new_topic: str) -> None:
    official, ours = (tables.fastjson(normal(t)) for t in both("topicRoute", "-t", new_topic))

    assert ours == official
    assert ours["queueDatas"] == [
        {
            "brokerName": BROKER_NAME,
            "perm": 6,
            "readQueueNums": 3,
            "writeQueueNums": 2,
            "topicSysFlag": 0,
        }
    ]
    listed_official, listed = (set(text.split()) for text in both("topicList"))
    assert {new_topic, BROKER_NAME, "DefaultCluster", "TBW102", "SELF_TEST_TOPIC"} <= listed
    assert new_topic in listed_official


def test_update_topic_changes_an_existing_one(both: Both, new_topic: str) -> None:
    official, ours = both(
        "updateTopic", "-c", "DefaultCluster", "-t", new_topic, "-r", "8", "-w", "8", "-p", "4",
    )  # fmt: skip
    assert normal(ours) == normal(official)

    routes = [tables.fastjson(normal(t)) for t in both("topicRoute", "-t", new_topic)]
    assert routes[0] == routes[1]
    assert routes[1]["queueDatas"][0] == {
        "brokerName": BROKER_NAME,
        "perm": 4,
        "readQueueNums": 8,
        "writeQueueNums": 8,
        "topicSysFlag": 0,
    }


def test_update_topic_refuses_an_illegal_name(both: Both) -> None:
    for output in both("updateTopic", "-b", "BROKER", "-t", "SCHEDULE_TOPIC_XXXX"):
        assert "success" not in output
        assert "CODE: 29" in output


def test_topic_status_counts_messages(both: Both, new_topic: str) -> None:
    for output in both("sendMessage", "-t", new_topic, "-b", BROKER_NAME, "-i", "1", "-p", "hi"):
        assert "SEND_OK" in output

    for text in both("topicStatus", "-t", new_topic):
        rows = re.findall(rf"^{BROKER_NAME}\s+(\d+)\s+(\d+)\s+(\d+)", text, re.MULTILINE)
        assert rows == [("0", "0", "0"), ("1", "0", "1"), ("2", "0", "0")]
        # Only the queue that holds a message has a time of its last one.
        [updated] = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", text)
        age = time.time() - time.mktime(time.strptime(updated, "%Y-%m-%d %H:%M:%S"))
        assert 0 <= age < 120
        assert "Topic Put TPS: 0.0" in text


def test_delete_topic(
    both: Both, official_cluster: Cluster, our_cluster: Cluster, new_topic: str
) -> None:
    official, ours = both("deleteTopic", "-c", "DefaultCluster", "-t", new_topic)

    assert normal(ours) == normal(official)
    for output in both("topicList"):
        assert new_topic not in output.split()
    for cluster in (official_cluster, our_cluster):
        answer = wire.call(cluster.address, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": new_topic})
        assert answer.code == 17


def test_send_message_goes_to_the_named_queue(both: Both, new_topic: str) -> None:
    outputs = both(
        "sendMessage", "-t", new_topic, "-b", BROKER_NAME, "-i", "0",
        "-p", "hello", "-k", "a key", "-c", "TagA",
    )  # fmt: skip

    official, ours = ([dict(row) for row in tables.columns(text)] for text in outputs)
    assert len(ours) == 1
    for name in ("Broker Name", "QID", "Send Result"):
        assert ours[0][name] == official[0][name]
    assert ours[0]["Send Result"] == "SEND_OK"


def test_query_message_by_id(
    java: JavaPeer, official_cluster: Cluster, our_cluster: Cluster, new_topic: str
) -> None:
    shown: list[dict[str, Any]] = []
    for cluster in (official_cluster, our_cluster):
        [result] = java(
            "send",
            namesrv=cluster.address,
            group="admin_producer",
            topic=new_topic,
            mode="sync",
            messages=[
                {"body": "asked for", "tags": "TagA", "keys": "k1", "properties": {"a": "b"}}
            ],
        )
        text = java.mqadmin(
            "queryMsgById", "-i", result["offsetMsgId"], "-t", new_topic, "-n", cluster.address
        )
        fields = tables.fields(text)
        assert fields["OffsetID"] == result["offsetMsgId"], text
        assert fields["Store Host"] == cluster.broker.address
        shown.append(fields)

    official, ours = shown
    assert ours.keys() == official.keys()
    for name in ("Topic", "Tags", "Keys", "Queue Offset", "Reconsume Times", "System Flag"):
        assert ours[name] == official[name]
    assert "a=b" in ours["Properties"]
    assert "TAGS=TagA" in ours["Properties"]


def test_broker_status(both: Both) -> None:
    official, ours = (tables.fields(text) for text in both("brokerStatus", "-b", "BROKER"))

    assert ours.keys() >= RUNTIME_KEYS
    # Newer releases leave out brokerVersion.
    for name in RUNTIME_KEYS & official.keys():
        assert kind(ours[name]) == kind(official[name]), name
    # What a log's path is part of differs.
    assert {key for key in official.keys() - ours.keys() if "Ratio_" not in key} == set()
    own = {key for key in ours.keys() - official.keys() if "Ratio_" not in key}
    assert own - {"brokerVersion"} == OWN_KEYS
    assert ours["brokerVersionDesc"] == "V5_5_0"
    assert official["brokerVersionDesc"] == VERSION_NAME
    assert ours["brokerActive"] == official["brokerActive"] == "true"


def test_broker_status_counts_timed_messages(
    java: JavaPeer, official_cluster: Cluster, our_cluster: Cluster, new_topic: str
) -> None:
    for cluster in (official_cluster, our_cluster):

        def figures(at: str = cluster.broker.address) -> dict[str, str]:
            table: dict[str, str] = json.loads(wire.call(at, GET_RUNTIME_INFO).body)["table"]
            return table

        wanted = int(figures()["timerCongestNum"]) + 3

        def in_the_wheel(at: str = cluster.broker.address, wanted: int = wanted) -> bool:
            now = figures(at)
            return (
                int(now["timerCongestNum"]) == wanted
                and now["timerOffsetBehind"] == "0"
                and int(now["timerReadBehind"]) <= 2  # s
            )

        java(
            "send", namesrv=cluster.address, group="PG", topic=new_topic, mode="sync",
            messages=[{"body": "later", "delaySec": 3000}] * 3,
        )  # fmt: skip
        wire.until(in_the_wheel, "the timed messages in the wheel")
        assert float(figures()["timerDequeueTps"]) >= 0


def kind(cell: str) -> str:
    """Whether a value reads as numbers, a truth value or a text.

    The official rates are up to three numbers, none in the first seconds, NaN over an empty time.
    """
    if cell in ("true", "false"):
        return "truth"
    numbers = re.fullmatch(r"(\s*(-?\d+(\.\d+(E-?\d+)?)?|NaN))*", cell)
    return "numbers" if numbers else "text"


def test_update_kv_config(both: Both, official_cluster: Cluster, our_cluster: Cluster) -> None:
    official, ours = both("updateKvConfig", "-s", "interop", "-k", "switch", "-v", "on 开")
    assert ours == official
    for cluster in (official_cluster, our_cluster):
        answer = wire.call(
            cluster.address, GET_KV_CONFIG, {"namespace": "interop", "key": "switch"}
        )
        assert (answer.code, answer.ext_fields["value"]) == (0, "on 开")

    official, ours = both("deleteKvConfig", "-s", "interop", "-k", "switch")
    assert ours == official
    for cluster in (official_cluster, our_cluster):
        answer = wire.call(
            cluster.address, GET_KV_CONFIG, {"namespace": "interop", "key": "switch"}
        )
        assert answer.code == QUERY_NOT_FOUND
        assert answer.remark == "No config item, Namespace: interop Key: switch"


def test_a_namespace_of_kv_config(
    both: Both, official_cluster: Cluster, our_cluster: Cluster
) -> None:
    for key, value in (("one", "1"), ("two", "a=b;c")):
        both("updateKvConfig", "-s", "interop-list", "-k", key, "-v", value)

    for namespace in ("interop-list", "nothing here"):
        official, ours = (
            wire.call(cluster.address, GET_KV_LIST, {"namespace": namespace})
            for cluster in (official_cluster, our_cluster)
        )
        assert (ours.code, ours.remark) == (official.code, official.remark)
        assert json.loads(ours.body or b"null") == json.loads(official.body or b"null")
    both("deleteKvConfig", "-s", "interop-list", "-k", "one")
    both("deleteKvConfig", "-s", "interop-list", "-k", "two")
