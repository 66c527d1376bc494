"""Names and sizes that RocketMQ allows, and the names that it reserves.

Reference: TopicValidator, Validators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MAX_TOPIC_LENGTH: Final = 127
"""Characters of a topic a client may create, other than retry and dead-letter topics. These and the
internal topics of 5.x may be longer (record v2)."""
MAX_STORED_TOPIC: Final = 255
"""Characters of any topic: a directory with its name holds its queues."""
MAX_GROUP_LENGTH: Final = 255
MAX_NEW_GROUP: Final = 120
"""Characters of a group that a broker creates, from 5.4 on: the names of its retry topics contain
also that of a topic."""
MAX_BODY: Final = 4 * 1024 * 1024
"""Default maxMessageSize, bytes of a body before compression."""
MAX_PROPERTIES: Final = 32_767
"""Bytes of a message's properties text; the record has a signed 16-bit length for it."""
MOST_IN_BATCH: Final = 65_536
"""Messages of one batch. Those of official clients, which have a unique id each, are fewer within
4 MiB."""
MOST_IN_UNUSUAL_BATCH: Final = 8_192
"""The same for a batch that has to be looked at message by message."""
MOST_ATTEMPTS: Final = 2**31 - 1
"""The largest reconsumeTimes: the field has 32 bits, and producers can set it to any of them."""
DELAY_LEVELS: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
"""Seconds of the levels from 1 on, of the default messageDelayLevel."""
MAX_DELAY_LEVEL: Final = len(DELAY_LEVELS)
"""The highest level: 18, which is 2 h."""

TOPIC_PATTERN: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
"""Use it with `fullmatch`; topics and groups share it."""

STORED_TOPIC_PATTERN: Final = re.compile(r"[%|a-zA-Z0-9_+-]+")
"""The names that brokers store: retry topics of POP (v2) contain a `+`."""

AUTO_CREATE_TOPIC: Final = "TBW102"
TBW102: Final = AUTO_CREATE_TOPIC
"""The template topic of auto-creation."""
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Messages with a delivery time wait here; queue 0."""
BENCHMARK_TOPIC: Final = "BenchmarkTest"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
"""Every official broker from 5.4 on has these two."""
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
ROCKSDB_CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"

REPLY_SUFFIX: Final = "_REPLY_TOPIC"
"""Suffix after a cluster's name: its topic for replies to requests."""
DEFAULT_CLUSTER: Final = "DefaultCluster"

DEFAULT_REGION: Final = "DefaultRegion"
"""The default name of a broker's region (regionId)."""

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
REVIVE_LOG_PREFIX: Final = SYSTEM_TOPIC_PREFIX + "REVIVE_LOG_"  # and the name of the cluster
SYNC_BROKER_MEMBER_PREFIX: Final = SYSTEM_TOPIC_PREFIX + "SYNC_BROKER_MEMBER_"  # of the broker
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"  # queues of MQTT, without a topic config
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        ROCKSDB_CHECKPOINT_TOPIC,
    }
)
NO_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""Topics a client may not send to (answer 16, NO_PERMISSION). The official broker takes sends to
rmq_sys_wheel_timer and to the revive log of POP; clients could forge a broker's records there."""


def one_more(attempts: int) -> int:
    """Return the reconsumeTimes of the next delivery after one with `attempts`."""
    return min(attempts + 1, MOST_ATTEMPTS)


class IllegalName(ValueError):
    """A topic or group name RocketMQ does not allow; the text says which rule it breaks."""


def check_topic(name: str) -> None:
    """Raise `IllegalName` unless `name` may name a topic. From 5.4 on, retry and dead-letter topics
    may have the longest name that can be stored.

    System topics pass: the caller decides whether one may be sent to or created.
    """
    internal = isinstance(name, str) and name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    _check("topic", name, MAX_STORED_TOPIC if internal else MAX_TOPIC_LENGTH)


def check_group(name: str) -> None:
    """Raise `IllegalName` unless `name` may name a producer or consumer group."""
    _check("group", name, MAX_GROUP_LENGTH)


def check_new_group(name: str) -> None:
    """Do as `check_group`, for a group that a broker is to create."""
    _check("group", name, MAX_NEW_GROUP)


def is_system_topic(name: str) -> bool:
    """True for topics reserved for the broker (not retry and dead-letter topics)."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX)


def takes_sends(name: str) -> bool:
    """True for topics that a client may send to."""
    return name not in NO_SEND_TOPICS and not name.startswith(REVIVE_LOG_PREFIX)


def is_internal_topic(name: str, clusters: Iterable[str] = (DEFAULT_CLUSTER,)) -> bool:
    """True for topics that brokers create: system, retry and dead-letter topics, and the topics of
    `clusters` for replies to requests. Topics named after a broker or a cluster are not
    recognised."""
    if is_system_topic(name) or name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return True
    return name.endswith(REPLY_SUFFIX) and name.removesuffix(REPLY_SUFFIX) in clusters


def clusters_of(topics: Iterable[str]) -> frozenset[str]:
    """Return the names of the clusters of some brokers, from `topics`, all topics of these. Brokers
    of 5.x have a topic with the name of their cluster in it; without any it is the default name."""
    found = {
        topic.removeprefix(REVIVE_LOG_PREFIX)
        for topic in topics
        if topic.startswith(REVIVE_LOG_PREFIX)
    }
    return frozenset(found or {DEFAULT_CLUSTER})


def _check(kind: str, name: str, limit: int) -> None:
    if not isinstance(name, str):
        raise IllegalName(f"the {kind} must be a text (str), not {name!r}")
    if not name or name.isspace():
        raise IllegalName(f"the {kind} name is blank")
    if len(name) > limit:
        raise IllegalName(
            f"the {kind} name has {len(name)} characters, {limit} are allowed: {name[:40]!r}…"
        )
    if TOPIC_PATTERN.fullmatch(name) is None:
        raise IllegalName(f"the {kind} name {name!r} has characters outside [%|a-zA-Z0-9_-]")
