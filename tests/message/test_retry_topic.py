from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.retry_topic import (
    TopicKind,
    kind_of,
    normal_topic,
    pop_retry_topic,
    stored_topic,
)

names = st.text("ab_-|%", min_size=1, max_size=8)


@given(names.filter(lambda name: not name.startswith("%RETRY%")), names, st.sampled_from(TopicKind))
def test_a_topic_is_found_again_from_its_retry_topic(
    topic: str, group: str, kind: TopicKind
) -> None:
    stored = stored_topic(topic, group, kind)
    assert kind_of(stored) is kind
    assert normal_topic(stored, group) == topic


def test_the_names() -> None:
    assert pop_retry_topic("T", "G", v2=False) == "%RETRY%G_T"
    assert pop_retry_topic("T", "G", v2=True) == "%RETRY%G+T"
    assert normal_topic("%RETRY%G", "G") == "%RETRY%G"
    assert normal_topic("%RETRY%H_T", "G") == "%RETRY%H_T"
