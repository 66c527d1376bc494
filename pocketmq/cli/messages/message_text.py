"""A message as output: its body, a JSON object, or lines for people."""

from __future__ import annotations

import base64
from typing import Any

from pocketmq.cli import output
from pocketmq.cli.output import local_time
from pocketmq.limited_log import printable
from pocketmq.message import properties as names
from pocketmq.message.message import MessageExt


def text_line(message: MessageExt) -> bytes:
    """The body alone, as it was sent."""
    return message.body + b"\n"


def terminal_line(message: MessageExt) -> bytes:
    """The body alone for a terminal, which must not obey it."""
    return f"{body_text(message.body)}\n".encode()


def json_line(message: MessageExt) -> bytes:
    """The message as a JSON object in one line."""
    return output.json_line(json_fields(message))


def json_fields(message: MessageExt) -> dict[str, Any]:
    """Return the message for JSON, with the names of the Spark columns; times are Unix
    milliseconds.

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
    return fields


def shown(message: MessageExt) -> str:
    """The message for people: a line for each field, then the body."""
    fields = {
        "place": f"{message.topic}/{message.broker_name}/{message.queue_id}/{message.queue_offset}",
        "id": message.msg_id,
        "tag": message.tags or "",
        "keys": " ".join(message.keys),
        "born": f"{local_time(message.born_timestamp)} at {message.born_host}",
        "stored": f"{local_time(message.store_timestamp)} at {message.store_host}",
        "attempts": str(message.reconsume_times) if message.reconsume_times else "",
    }
    lines = [f"{name:<10}{value}" for name, value in fields.items() if value]
    for name, value in sorted(message.properties.items()):
        if name not in (names.TAGS, names.KEYS):
            lines.append(f"{'property':<10}{name}={value}")
    lines.append(f"{'body':<10}{len(message.body)} bytes")
    return "\n".join([*map(printable, lines), body_text(message.body)])


def body_text(body: bytes) -> str:
    """The body as text, or as hexadecimal digits where it is not UTF-8."""
    try:
        return "\n".join(map(printable, body.decode().split("\n")))
    except UnicodeDecodeError:
        return f"0x{body.hex()}"
