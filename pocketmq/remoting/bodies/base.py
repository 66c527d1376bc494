"""What all JSON bodies share.

A body's class has RocketMQ's name, its attributes are RocketMQ's fields in snake_case, declared in
the order in which fastjson writes them (by name). As in Java every field has a default: a field
that is missing or null is read as its default, an unknown one is ignored, None is not written.
Maps with integer or MessageQueue keys are written in fastjson's dialect unless asked otherwise,
and read in all forms (`pocketmq.message.fastjson`).
"""

from typing import Any, Self

import msgspec

from pocketmq.message import fastjson
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.errors import BodyError


class Body(msgspec.Struct, rename="camel"):
    """A JSON body, or a part of one."""

    def encode(self, standard_json: bool = False) -> bytes:
        """The body's bytes. `standard_json`: write integer and MessageQueue keys as strings."""
        return fastjson.encode(self, standard=standard_json)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """Reads a body.

        Raises:
            BodyError: it is empty, can not be read, or has another shape.
        """
        if not data:
            raise BodyError(f"no body where a {cls.__name__} is expected")
        try:
            return cls._decode(data)
        except fastjson.FastjsonError as error:
            raise BodyError(f"the body is no {cls.__name__}: {error}") from None

    @classmethod
    def _decode(cls, data: bytes | bytearray | memoryview) -> Self:
        try:
            return fastjson.decode_into(data, cls)
        except fastjson.FastjsonError:
            # Go peers write null for empty lists: read again without the nulls.
            return cls._from_fields(fastjson.decode(data))

    @classmethod
    def _from_fields(cls, fields: Any) -> Self:
        try:
            return msgspec.convert(_without_nulls(fields), cls, strict=False)
        except (msgspec.ValidationError, RecursionError) as error:
            raise fastjson.FastjsonError(str(error)) from None


class QueueBody(Body):
    """A body that holds MessageQueue objects, as map keys or as values."""

    @classmethod
    def _decode(cls, data: bytes | bytearray | memoryview) -> Self:
        fields = fastjson.decode(data)
        if not isinstance(fields, dict):
            raise fastjson.FastjsonError(f"expected an object, got {type(fields).__name__}")
        cls._adapt(fields)
        return cls._from_fields(fields)

    @classmethod
    def _adapt(cls, fields: dict[str, Any]) -> None:
        """Puts MessageQueue objects in the places of their JSON, in `fields` of this class."""
        raise NotImplementedError


def keyed_by_queue(table: Any) -> Any:
    """A map with its keys, JSON texts of message queues, replaced by MessageQueue objects."""
    if not isinstance(table, dict):
        return table
    return {fastjson.message_queue_of(key): value for key, value in table.items()}


def queues(values: Any) -> Any:
    """A list with its message queues, as JSON objects, replaced by MessageQueue objects."""
    return [queue(value) for value in values] if isinstance(values, list) else values


def queue(value: Any) -> Any:
    """The message queue of a JSON object."""
    try:
        return MessageQueue(value["topic"], value["brokerName"], int(value["queueId"]))
    except (KeyError, TypeError, ValueError):
        raise fastjson.FastjsonError(f"no message queue: {value!r:.200}") from None


def objects(values: Any) -> list[dict[str, Any]]:
    """The objects in a list; whatever else there is, is left for the type check to refuse."""
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
