from __future__ import annotations

import pytest

from pocketmq.message.limits import (
    IllegalName,
    check_group,
    check_new_group,
    check_topic,
    is_system_topic,
)

LONG_RETRY, LONG_DLQ = "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 250


@pytest.mark.parametrize(
    "name",
    ["TopicTest", "%RETRY%group", "a-b_c|d", "T" * 127, "TBW102", LONG_RETRY, LONG_DLQ],
)
def test_topics_that_may_be(name: str) -> None:
    check_topic(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "blank"),
        (" \t", "blank"),
        ("T" * 128, "128 characters, 127 are allowed"),
        (f"{LONG_RETRY}g", "256 characters, 255 are allowed"),
        (f"{LONG_DLQ}g", "256 characters, 255 are allowed"),
        (f"x{LONG_RETRY[:-1]}", "255 characters, 127 are allowed"),
        ("a b", "characters outside"),
        ("a.b", "characters outside"),
        ("标签", "characters outside"),
        ("a\n", "characters outside"),
    ],
)
def test_topics_that_may_not_be(name: str, reason: str) -> None:
    with pytest.raises(IllegalName, match=reason):
        check_topic(name)


def test_groups_may_be_longer() -> None:
    check_group("g" * 255)
    with pytest.raises(IllegalName, match="group name has 256 characters"):
        check_group("g" * 256)


def test_new_groups_leave_room_for_a_topic() -> None:
    check_new_group("g" * 120)
    with pytest.raises(IllegalName, match="group name has 121 characters, 120 are allowed"):
        check_new_group("g" * 121)


def test_system_topics() -> None:
    assert is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert is_system_topic("rmq_sys_SYNC_BROKER_MEMBER_x")
    assert not is_system_topic("%RETRY%group")
    assert not is_system_topic("TopicTest")
