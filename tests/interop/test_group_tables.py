"""What a slave asks its master for besides the log, with a member of either make on each side:
topics, groups, consumer offsets, delay levels, request modes and timers. An official slave asks for
topics and timers at the VIP port."""

from __future__ import annotations

import json
import struct
import time
from typing import Any

import pytest

from pocketmq.message.fastjson import decode
from pocketmq.remoting.codes import RequestCode as Code

from .harness import wire
from .harness.controller_group import Group
from .harness.official import Server
from .harness.sending import send


def table(server: Server, code: Code, name: str) -> dict[str, Any]:
    answer = wire.call(server.address, code)
    assert answer.code == 0, answer.remark
    body = decode(answer.body)
    assert isinstance(body, dict)
    found = body.get(name) or {}
    assert isinstance(found, dict)
    return found


def timer_checkpoint(server: Server) -> tuple[int, ...]:
    """readTimeMs, timer log position, queue offset, and the master's queue offset."""
    answer = wire.call(server.address, Code.GET_TIMER_CHECK_POINT)
    return struct.unpack_from(">4q", answer.body) if answer.code == 0 else (0, 0, 0, 0)


def change_everything(master: Server) -> None:
    """Change each table of the master."""
    topic = {
        "topic": "Extra", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "2",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    assert wire.call(master.address, Code.UPDATE_AND_CREATE_TOPIC, topic).code == 0
    readers = {"groupName": "Readers", "retryMaxTimes": 3, "retryQueueNums": 1}
    body = json.dumps(readers).encode()
    assert wire.call(master.address, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == 0
    assert send(master.address, "Extra", b"x").code == 0
    offset = {"consumerGroup": "Readers", "topic": "Extra", "queueId": "0", "commitOffset": "1"}
    assert wire.call(master.address, Code.UPDATE_CONSUMER_OFFSET, offset).code == 0
    mode = {"topic": "Extra", "consumerGroup": "Readers", "mode": "POP", "popShareQueueNum": 2}
    body = json.dumps(mode).encode()
    assert wire.call(master.address, Code.SET_MESSAGE_REQUEST_MODE, body=body).code == 0
    assert send(master.address, "Extra", b"late", DELAY="1").code == 0
    for at in (2_000, 3_600_000):
        due = str(time.time_ns() // 1_000_000 + at)
        sent = send(master.address, "Extra", b"timed", TIMER_DELIVER_MS=due)
        assert sent.code == 0, sent.remark


@pytest.mark.long
@pytest.mark.parametrize("makes", [("ours", "official"), ("official", "ours")])
def test_a_slave_has_the_tables_of_a_master_of_the_other_make(
    group: Group, makes: tuple[str, str]
) -> None:
    a = group.start("a", makes[0], timerWheelEnable=True)
    group.controllers.wait_for_master(group.name)
    group.leads("a")
    b = group.start("b", makes[1], timerWheelEnable=True)
    group.wait(1, 2)
    change_everything(a)

    def copied(slave: Server) -> None:
        def is_equal(code: Code, name: str, key: str) -> bool:
            wanted = table(a, code, name)[key]
            return bool(table(slave, code, name).get(key) == wanted)

        for code, name, key in (
            (Code.GET_ALL_TOPIC_CONFIG, "topicConfigTable", "Extra"),
            (Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable", "Readers"),
            (Code.GET_ALL_CONSUMER_OFFSET, "offsetTable", "Extra@Readers"),
            (Code.GET_ALL_MESSAGE_REQUEST_MODE, "messageRequestModeMap", "Extra"),
        ):
            wire.until(
                lambda code=code, name=name, key=key: is_equal(code, name, key),  # type: ignore[misc]
                f"the slave has {key} of {name}",
                60,
                0.5,
            )

    copied(b)
    # The progress of delay level 1: one message is delivered.
    wire.until(
        lambda: table(b, Code.GET_ALL_DELAY_OFFSET, "offsetTable").get("1") == 1,
        "the slave knows that the delayed message is delivered",
        60,
        0.5,
    )
    # Both timed messages are entered at the master, and the slave knows it.
    wire.until(lambda: timer_checkpoint(a)[2] == 2, "the master has entered both timers", 60, 0.5)
    wire.until(lambda: timer_checkpoint(b)[3] == 2, "the slave knows of both", 60, 0.5)
    assert timer_checkpoint(b)[0] > 0
    # Where the master's log is copied, as it says itself; our slave asks for that.
    told = wire.call(a.address, Code.EXCHANGE_BROKER_HA_INFO).ext_fields
    assert told["masterAddress"] == a.address
    port = int(a.address.rpartition(":")[2]) + 1
    assert told["masterHaAddress"] == f"127.0.0.1:{port}"
    assert "masterFlushOffset" in told
    for server in (a, b):
        assert isinstance(table(server, Code.GET_TIMER_METRICS, "timingCount"), dict)
    # What is deleted at the master is deleted at the slave.
    gone = {"topic": "Extra"}
    assert wire.call(a.address, Code.DELETE_TOPIC_IN_BROKER, gone).code == 0
    wire.until(
        lambda: "Extra" not in table(b, Code.GET_ALL_TOPIC_CONFIG, "topicConfigTable"),
        "the slave has deleted the topic",
        60,
        0.5,
    )
