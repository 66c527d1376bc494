"""Checks of names, sizes and properties of messages from clients. No I/O.

The checks of a message have the same order as in the official proxy (SendMessageActivity), so a
message with two faults gets the same status from both.
"""

from __future__ import annotations

from typing import Final

from pocketmq.message.limits import IllegalName, check_group, check_topic, is_system_topic
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.service.status import ServiceError

MAX_PROPERTIES: Final = 128
#: The most bytes of names and values of user properties, tag and keys.
MAX_PROPERTY_BYTES: Final = 16 << 10
#: A message group's name must be shorter than this, in bytes.
MAX_MESSAGE_GROUP: Final = 64
#: Seconds of `orphaned_transaction_recovery_duration`.
MAX_RECOVERY: Final = 3_600

#: Seconds of a Timestamp: the years 1 to 9999, as Protocol Buffers define it.
FIRST_SECOND: Final = -62_135_596_800
LAST_SECOND: Final = 253_402_300_799

#: Names that user properties must not have; they are removed from the user properties that clients
#: receive.
REFUSED_USER_PROPERTIES: Final = frozenset(
    {
        "TRACE_ON",
        "MSG_REGION",
        "KEYS",
        "TAGS",
        "WAIT",
        "DELAY",
        "RETRY_TOPIC",
        "ORIGIN_GROUP",
        "REAL_TOPIC",
        "REAL_QID",
        "TRAN_MSG",
        "PGROUP",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "BUYER_ID",
        "ORIGIN_MESSAGE_ID",
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "RECONSUME_TIME",
        "UNIQ_KEY",
        "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME",
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "DUP_INFO",
        "EXTEND_UNIQ_INFO",
        "INSTANCE_ID",
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
        "CLUSTER",
        "MSG_TYPE",
        "INNER_MULTI_QUEUE_OFFSET",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_OUT_MS",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL",
        "__BORNHOST",
        "BORN_TIMESTAMP",
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
        "__CRC32#",
        "_SYS_MSG_PRIORITY_",
        "__LITE_TOPIC",
    }
)


def topic_of(resource: pb.Resource) -> str:
    """Return the topic's name. Raises ServiceError for one that applications may not use."""
    name = resource.name
    try:
        check_topic(name)
    except IllegalName as error:
        raise ServiceError(pb.ILLEGAL_TOPIC, str(error)) from None
    if is_system_topic(name):
        raise ServiceError(pb.ILLEGAL_TOPIC, f"topic {name} is a system topic")
    return name


def group_of(resource: pb.Resource) -> str:
    """Return the consumer group's name. Raises ServiceError."""
    name = resource.name
    try:
        check_group(name)
    except IllegalName as error:
        raise ServiceError(pb.ILLEGAL_CONSUMER_GROUP, str(error)) from None
    return name


def _has_control(text: str) -> bool:
    return not text.isprintable() and any(
        character < " " or "\x7f" <= character < "\xa0" for character in text
    )


def check_message(message: pb.Message, *, max_body: int, max_delay: int, now: int) -> None:
    """Check one message.

    `max_body` in bytes; `max_delay` and `now` in ms. Raises ServiceError.
    """
    size = len(message.body)
    if not size:
        raise ServiceError(pb.MESSAGE_BODY_EMPTY, "the body of a message is empty")
    if size > max_body:
        raise ServiceError(
            pb.MESSAGE_BODY_TOO_LARGE, f"a body of {size} bytes; at most {max_body} are allowed"
        )
    system = message.system_properties
    _check_properties(message)
    if system.HasField("tag"):
        tag = system.tag
        if not tag or tag.isspace():
            raise ServiceError(pb.ILLEGAL_MESSAGE_TAG, "the tag is blank")
        if "|" in tag or _has_control(tag):
            raise ServiceError(
                pb.ILLEGAL_MESSAGE_TAG, f"the tag {tag!r:.100} has a | or a control character"
            )
    if not system.message_id or system.message_id.isspace():
        raise ServiceError(pb.ILLEGAL_MESSAGE_ID, "the message id is blank")
    if _has_control(system.message_id) or len(system.message_id) > 255:
        raise ServiceError(
            pb.ILLEGAL_MESSAGE_ID,
            f"the message id {system.message_id!r:.100} has a control character, or more than 255 "
            "characters",
        )
    if system.HasField("message_group"):
        _check_message_group(system.message_group)
    if not FIRST_SECOND <= system.born_timestamp.seconds <= LAST_SECOND:
        raise ServiceError(
            pb.BAD_REQUEST,
            f"born_timestamp is {system.born_timestamp.seconds} s after 1970; {FIRST_SECOND} to "
            f"{LAST_SECOND} s are allowed",
        )
    if system.HasField("delivery_timestamp"):
        delay = system.delivery_timestamp.seconds * 1000 - now
        if delay > max_delay:
            raise ServiceError(
                pb.ILLEGAL_DELIVERY_TIME,
                f"the delivery is {delay} ms ahead; at most {max_delay} ms are allowed",
            )
    if system.priority < 0:
        raise ServiceError(pb.BAD_REQUEST, f"the priority is {system.priority}; it is at least 0")
    recovery = system.orphaned_transaction_recovery_duration.seconds
    if not 0 <= recovery <= MAX_RECOVERY:
        raise ServiceError(
            pb.BAD_REQUEST,
            f"orphaned_transaction_recovery_duration is {recovery} s; 0 to {MAX_RECOVERY} s are "
            "allowed",
        )


def _check_properties(message: pb.Message) -> None:
    properties = message.user_properties
    system = message.system_properties
    if len(properties) > MAX_PROPERTIES:
        raise ServiceError(
            pb.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(properties)} user properties; at most {MAX_PROPERTIES} are allowed",
        )
    size = len(system.tag.encode()) + sum(len(key.encode()) for key in system.keys)
    for name, value in properties.items():
        size += len(name.encode()) + len(value.encode())
        if name in REFUSED_USER_PROPERTIES:
            raise ServiceError(
                pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property name {name} is RocketMQ's own"
            )
        if not name or _has_control(name) or _has_control(value):
            raise ServiceError(
                pb.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"the property {name!r:.100} is without a name, or has a control character",
            )
    if size > MAX_PROPERTY_BYTES:
        raise ServiceError(
            pb.MESSAGE_PROPERTIES_TOO_LARGE,
            f"user properties, tag and keys have {size} bytes; at most {MAX_PROPERTY_BYTES} are "
            "allowed",
        )
    for key in system.keys:
        if not key or key.isspace() or _has_control(key):
            raise ServiceError(
                pb.ILLEGAL_MESSAGE_KEY, f"the key {key!r:.100} is blank or has a control character"
            )


def _check_message_group(group: str) -> None:
    if not group or group.isspace() or _has_control(group):
        raise ServiceError(
            pb.ILLEGAL_MESSAGE_GROUP, "the message group is blank or has a control character"
        )
    if len(group.encode()) >= MAX_MESSAGE_GROUP:
        raise ServiceError(
            pb.ILLEGAL_MESSAGE_GROUP,
            f"the message group has {len(group.encode())} bytes; it must have less than "
            f"{MAX_MESSAGE_GROUP}",
        )
