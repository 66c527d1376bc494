"""What a client tells brokers about itself (HEART_BEAT, CHECK_CLIENT_CONFIG)."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from pocketmq.remoting.bodies.base import Body, enum
from pocketmq.remoting.headers.base import I32, I64

ConsumeFromWhere = Annotated[
    str,
    enum(
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
]
ConsumeType = Annotated[str, enum("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")]
MessageModel = Annotated[str, enum("BROADCASTING", "CLUSTERING", "LITE_SELECTIVE")]


class SubscriptionData(Body):
    """A group's subscription to one topic.

    Attributes:
        code_set: hash codes of the tags; empty with `*` and with SQL92.
        expression_type: TAG or SQL92.
        sub_string: the expression.
        sub_version: time of the subscription's creation, ms (Go: ns).
    """

    class_filter_mode: bool = False
    code_set: list[I32] = field(default_factory=list)
    expression_type: str = "TAG"
    sub_string: str = ""
    sub_version: I64 = 0
    tags_set: list[str] = field(default_factory=list)
    topic: str = ""


class ConsumerData(Body):
    """A consumer group of a client.

    consume_type: CONSUME_ACTIVELY (pull), CONSUME_PASSIVELY (push), CONSUME_POP; message_model:
    CLUSTERING, BROADCASTING, or LITE_SELECTIVE of lite topics, which are not served.
    """

    consume_from_where: ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
    consume_type: ConsumeType = "CONSUME_PASSIVELY"
    group_name: str = ""
    message_model: MessageModel = "CLUSTERING"
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class ProducerData(Body):
    """A producer group of a client."""

    group_name: str = ""


class HeartbeatData(Body):
    """The body of HEART_BEAT. The last two belong to its second version and are 0 and false in the
    first: heartbeat_fingerprint is an opaque hash, without_sub says that subscriptions are left
    out."""

    client_id: str = field(name="clientID", default="")
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: int = 0
    producer_data_set: list[ProducerData] = field(default_factory=list)
    without_sub: bool = False


class CheckClientRequestBody(Body):
    """The body of CHECK_CLIENT_CONFIG."""

    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData = field(default_factory=SubscriptionData)
