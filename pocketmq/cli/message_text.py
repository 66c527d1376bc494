"""A message as a line of output."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from pocketmq.message.message import MessageExt


def text_line(message: MessageExt) -> bytes:
    """The body alone, as it was sent."""
    return message.body + b"\n"


def json_line(message: MessageExt) -> bytes:
    """One JSON object; names are those of the Spark columns, times are Unix milliseconds.

    The body is text in `body`, or in `bodyBase64` where it is not UTF-8.
    """
    fields: dict[str, Any] = {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "flag": message.flag,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "reconsumeTimes": message.reconsume_times,
    }
    try:
        fields["body"] = message.body.decode()
    except UnicodeDecodeError:
        fields["bodyBase64"] = base64.b64encode(message.body).decode()
    return msgspec.json.encode(fields) + b"\n"


FORMATS: dict[str, Callable[[MessageExt], bytes]] = {"text": text_line, "json": json_line}
