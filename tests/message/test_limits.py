from __future__ import annotations

import pytest

from pocketmq.message.limits import IllegalName, check_group, check_topic, is_system_topic


@pytest.mark.parametrize("name", ["TopicTest", "%RETRY%group", "a-b_c|d", "T" * 127, "TBW102"])
def test_topics_that_may_be(name: str) -> None:
    check_topic(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "blank"),
        (" \t", "blank"),
        ("T" * 128, "128 characters, 127 are allowed"),
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


def test_system_topics() -> None:
    assert is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert is_system_topic("rmq_sys_SYNC_BROKER_MEMBER_x")
    assert not is_system_topic("%RETRY%group")
    assert not is_system_topic("TopicTest")
