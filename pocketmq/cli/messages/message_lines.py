"""Lines as messages to send: the body alone, a key and the body, or a JSON object."""

from __future__ import annotations

import argparse
import base64
import binascii
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from pocketmq.cli.command_parser import nearest
from pocketmq.cli.options import duration, key, tag
from pocketmq.client.errors import InvalidMessage
from pocketmq.message.message import Message

#: Makes a message from a line; raises InvalidMessage that says what is wrong with the line.
LineFormat: TypeAlias = Callable[[bytes], Message]

#: The fields of a JSON line.
FIELDS = ("body", "bodyBase64", "tags", "keys", "properties", "delay", "priority")


class MessageTemplate:
    """The common properties of all messages of one command; makes a message from a body.

    `delay` is in seconds; a line may override the template.
    """

    def __init__(
        self,
        topic: str,
        *,
        tag: str | None = None,
        keys: tuple[str, ...] = (),
        properties: dict[str, str] | None = None,
        delay: float = 0.0,
        priority: int | None = None,
    ) -> None:
        self.topic = topic
        self._tag = tag
        self._keys = keys
        self._properties = properties or {}
        self._delay = delay
        self._priority = priority

    def plain(self, body: bytes) -> Message:
        """The whole line is the body."""
        return Message(
            self.topic,
            body,
            tags=self._tag,
            keys=self._keys,
            properties=dict(self._properties),
            delay=self._delay,
            priority=self._priority,
        )

    def keyed(self, separator: str) -> LineFormat:
        """The text before `separator` is a key, the text after it the body."""
        between = separator.encode()

        def message(line: bytes) -> Message:
            before, found, body = line.partition(between)
            if not found:
                raise InvalidMessage(f"the line has no separator {separator!r} behind a key")
            if not body:
                raise InvalidMessage(f"the body behind the separator {separator!r} is empty")
            made = self.plain(body)
            made.keys = (*self._keys, _checked("key", key, before.decode("utf-8", "replace")))
            return made

        return message

    def json(self, line: bytes) -> Message:
        """The line is a JSON object with the `FIELDS`."""
        try:
            fields = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise InvalidMessage(f"the line is not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise InvalidMessage("the line is not a JSON object")
        for name in fields:
            if name not in FIELDS:
                hint = nearest(name, FIELDS) or f"; the fields are {', '.join(FIELDS)}"
                raise InvalidMessage(f"unknown field {name!r}{hint}")
        made = self.plain(_body(fields))
        if fields.get("tags") is not None:
            made.tags = _checked("tags", tag, fields["tags"])
        if fields.get("keys") is not None:
            made.keys = _keys(fields["keys"])
        if fields.get("properties") is not None:
            made.properties |= _properties(fields["properties"])
        if fields.get("delay") is not None:
            made.delay = _delay(fields["delay"])
        if fields.get("priority") is not None:
            made.priority = fields["priority"]
        return made


def _body(fields: dict[str, Any]) -> bytes:
    if ("body" in fields) == ("bodyBase64" in fields):
        raise InvalidMessage("the line needs one of the fields body and bodyBase64")
    if "bodyBase64" in fields:
        try:
            body = base64.b64decode(fields["bodyBase64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise InvalidMessage("field bodyBase64 is not a text in Base64") from None
    else:
        given = fields["body"]
        # An object or a list becomes a body of JSON.
        body = given.encode() if isinstance(given, str) else msgspec.json.encode(given)
    if not body:
        raise InvalidMessage("the body is empty")
    return body


def _keys(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list):
        given = [given]
    return tuple(_checked("keys", key, each) for each in given)


def _properties(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise InvalidMessage("field properties is not an object")
    for name, value in given.items():
        if not isinstance(value, str):
            raise InvalidMessage(f"property {name!r} is not a text: {value!r}")
    return given


def _delay(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise InvalidMessage(f"field delay is neither seconds nor a text such as 5m: {given!r}")
    if isinstance(given, str):
        return float(_checked("delay", duration, given))
    if given < 0:
        raise InvalidMessage(f"field delay is negative: {given!r}")
    return float(given)


def _checked(field: str, check: Callable[[str], Any], value: Any) -> Any:
    """Check the value as the option of the command line does."""
    if not isinstance(value, str):
        raise InvalidMessage(f"field {field} is not a text: {value!r}")
    try:
        return check(value)
    except argparse.ArgumentTypeError as error:
        raise InvalidMessage(f"field {field}: {error}") from None
