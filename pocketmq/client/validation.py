"""Checks before sending; the same as those of the official client.

Each error names the value that breaks the rule. Reference: Validators,
MessageBatch.generateFromList.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pocketmq.client.errors import InvalidMessage, InvalidName
from pocketmq.client.parameters import shown, text
from pocketmq.message import properties as names
from pocketmq.message.limits import (
    MAX_PROPERTIES,
    NO_SEND_TOPICS,
    RETRY_PREFIX,
    IllegalName,
    check_group,
    check_topic,
)
from pocketmq.message.message import Message, MessageExt

#: Group names that the official clients treat as "not set".
FORBIDDEN_GROUPS = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})

#: Reserved properties that an application may set; all others are refused.
APPLICATION_PROPERTIES = frozenset(
    {
        names.TIMER_DELAY_SEC,
        names.TIMER_DELAY_MS,
        names.TIMER_DELIVER_MS,
        names.TIMER_DEL_UNIQKEY,
        names.CHECK_IMMUNITY_TIME_IN_SECONDS,
        names.INNER_MULTI_DISPATCH,
        names.SHARDING_KEY,
        names.TRACE_CONTEXT,
        names.LITE_TOPIC,
    }
)
_REFUSED_PROPERTIES = names.RESERVED - APPLICATION_PROPERTIES
_TIMERS = frozenset({names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS})
_NEVER_BATCHED = _TIMERS | {names.INNER_MULTI_DISPATCH}
_SEPARATORS = ("\x01", "\x02")
_BODY_TYPES = (bytes, bytearray, memoryview)

# Topics that passed the checks; a producer sends to few, so each is checked once.
_checked_topics: set[str] = set()
_CHECKED_TOPICS_LIMIT = 10_000


def producer_group(group: str) -> str:
    """Check a group name and return it; raises InvalidName."""
    return _group(group, "producer")


def consumer_group(group: str) -> str:
    """Check a group name and return it; raises InvalidName."""
    return _group(group, "consumer")


def _group(group: str, role: str) -> str:
    try:
        check_group(group)
    except IllegalName as error:
        raise InvalidName(str(error)) from None
    if group in FORBIDDEN_GROUPS:
        raise InvalidName(f"{role} group {group} is the official default: choose a name")
    return group


def positive(name: str, seconds: float) -> float:
    """Return the option's value; raise ValueError unless it is above 0."""
    if not seconds > 0:
        raise ValueError(f"{name} must be above 0 seconds, not {seconds}")
    return seconds


def check_topic_name(topic: str) -> None:
    """Raise InvalidName for a text that is not a valid topic name."""
    try:
        check_topic(topic)
    except IllegalName as error:
        raise InvalidName(str(error)) from None


def check_trace(trace: bool | str) -> bool | str:
    """Check the option `trace`: a bool, or the name of a topic; raises TypeError, InvalidName."""
    if not isinstance(trace, bool):
        if not isinstance(trace, str):
            raise TypeError(
                f"trace must be True, False or the name of a topic (str), not {shown(trace)}"
            )
        check_topic_name(text("trace", trace))
    return trace


def check_message(message: Message, max_message_size: int) -> None:
    """Raise InvalidName for the topic and InvalidMessage for the rest.

    `max_message_size` limits the body before compression, bytes.
    """
    if type(message) is not Message:
        check_type(message)
    topic = message.topic
    try:
        if topic not in _checked_topics:
            _check_send_topic(topic)
    except TypeError:
        check_topic_name(topic)  # not hashable: not a text
    body = message.body
    if type(body) is not bytes and not isinstance(body, _BODY_TYPES):
        raise InvalidMessage(f"the message body must be bytes, not {type(body).__name__}")
    if not body:
        raise InvalidMessage("the message body length is zero")
    if len(body) > max_message_size:
        raise InvalidMessage(
            f"the message body size {len(body)} is over the maximum of {max_message_size} bytes"
        )


def check_type(message: object, name: str = "message") -> None:
    """Raise TypeError unless it is a Message; the error calls it `name`."""
    if type(message) is Message and type(message.topic) is str:
        return
    if isinstance(message, MessageExt):
        raise TypeError(
            f"a received message cannot be sent as it is: send message.to_message() of {message!r}"
        )
    if not isinstance(message, Message):
        raise TypeError(f"{name} must be a Message, not {shown(message)}")
    if not isinstance(message.topic, str):
        check_topic_name(message.topic)


def check_messages(messages: object) -> None:
    """Raise TypeError unless it is a list of messages."""
    if isinstance(messages, Message | MessageExt | str | bytes) or not isinstance(
        messages, Sequence
    ):
        raise TypeError(f"messages must be a list of Message, not {shown(messages)}")
    for message in messages:
        if type(message) is not Message:
            check_type(message, "each of messages")


def check_tags(tags: str) -> None:
    """Check a message's tag; raises InvalidMessage."""
    if not isinstance(tags, str):
        raise InvalidMessage(f"tags must be one tag (str), not {shown(tags)}")
    if "||" in tags:
        raise InvalidMessage(
            f"tags must be one tag, not {tags!r}: only a consumer's subscription joins tags by ||"
        )
    check_property(names.TAGS, tags)


def joined_keys(keys: Sequence[str]) -> str:
    """Return the index keys as one property; raises InvalidMessage."""
    if isinstance(keys, str | bytes):
        raise InvalidMessage(f"keys must be a list of str, not {shown(keys)}: write keys=[...]")
    try:
        joined = names.KEY_SEPARATOR.join(keys)
        wrong = joined.count(names.KEY_SEPARATOR) != len(keys) - 1 or "" in keys
    except TypeError:
        _refuse_keys(keys)
        raise
    if wrong:
        _refuse_keys(keys)
    check_property(names.KEYS, joined)
    return joined


def _refuse_keys(keys: object) -> None:
    if not isinstance(keys, Collection):
        raise InvalidMessage(f"keys must be a list of str, not {shown(keys)}")
    for key in keys:
        if not isinstance(key, str):
            raise InvalidMessage(f"each of keys must be a text (str), not {shown(key)}")
        if not key or names.KEY_SEPARATOR in key:
            raise InvalidMessage(
                f"each of keys must be a text without spaces, which separate keys, not {key!r}"
            )


def _check_send_topic(topic: str) -> None:
    check_topic_name(topic)
    if topic in NO_SEND_TOPICS:
        raise InvalidMessage(f"Sending message to topic[{topic}] is forbidden.")
    if len(_checked_topics) < _CHECKED_TOPICS_LIMIT:
        _checked_topics.add(topic)


def check_properties(properties: Mapping[str, str]) -> None:
    """Check user properties: no reserved names, no empty texts, no separator characters."""
    if not isinstance(properties, Mapping):
        raise InvalidMessage(f"properties must be a dict of texts, not {shown(properties)}")
    for name, value in properties.items():
        if type(value) is not str or type(name) is not str:
            _check_text(name, value)
        if name in _REFUSED_PROPERTIES:
            raise InvalidMessage(f"property {name} is reserved by RocketMQ")
        check_property(name, value)


def _check_text(name: object, value: object) -> None:
    if not isinstance(name, str):
        raise InvalidMessage(f"the name of a property must be a text (str), not {shown(name)}")
    if not isinstance(value, str):
        raise InvalidMessage(f"property {name!r} must be a text (str), not {shown(value)}")


def check_property(name: str, value: str) -> None:
    """Check one property; raises InvalidMessage."""
    if not name or not value:
        raise InvalidMessage(f"property {name!r}={value!r}: an empty name or value would be lost")
    for separator in _SEPARATORS:
        if separator in name or separator in value:
            raise InvalidMessage(f"property {name!r} contains the separator {separator!r}")


def check_properties_length(text: str) -> None:
    """Check that the encoded properties fit in their 16-bit length field."""
    if text.isascii():
        length = len(text)
    else:
        try:
            length = len(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidMessage(f"the properties are no Unicode text: {error}") from None
    if length > MAX_PROPERTIES:
        raise InvalidMessage(
            f"the properties take {length} bytes, over the maximum of {MAX_PROPERTIES}"
        )


def check_batchable(message: Message) -> None:
    """Raise InvalidMessage for a message that cannot be sent in a batch."""
    if not goes_alone(message):
        return
    if is_delayed(message):
        raise InvalidMessage("a message with a delay level or timer cannot be sent in a batch")
    if message.priority is not None:
        raise InvalidMessage(
            "a message with a priority cannot be sent in a batch: it has no effect"
        )
    raise InvalidMessage(
        f"topic {message.topic}: messages to retry topics, or with the property "
        f"{names.INNER_MULTI_DISPATCH}, cannot be sent in a batch"
    )


def is_delayed(message: Message) -> bool:
    """Return whether a message has a delay level or a timer."""
    return bool(
        message.delay_level
        or message.deliver_at
        or message.delay
        or (message.properties and not _TIMERS.isdisjoint(message.properties))
    )


def goes_alone(message: Message) -> bool:
    """Return whether brokers treat the message in a way that batches do not support."""
    return bool(
        message.delay_level
        or message.deliver_at
        or message.delay
        or message.priority is not None
        # Comparing the first character first halves the time; this runs for each lingering message.
        or (message.topic[:1] == "%" and message.topic.startswith(RETRY_PREFIX))
        or (message.properties and not _NEVER_BATCHED.isdisjoint(message.properties))
    )
