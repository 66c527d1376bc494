"""What all JSON bodies share.

A body's class has RocketMQ's name, its attributes are RocketMQ's fields in snake_case, declared in
the order in which fastjson writes them (by name). As in Java every field has a default: a field
that is missing or null is read as its default, an unknown one is ignored, None is not written.
Maps with integer or MessageQueue keys are written in fastjson's dialect unless asked otherwise,
and read in all forms (`pocketmq.message.fastjson`).

msgspec reads a body that is spelled exactly, and refuses unknown keys. A body that it refuses is
read again as fastjson reads it: unknown keys and nulls are ignored, other spellings are understood
(`pocketmq.remoting.bodies.lenient`, `pocketmq.message.loose_json`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, Self, TypeVar

import msgspec

from pocketmq.message import fastjson, loose_json
from pocketmq.message.fastjson_text import FastjsonError
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies import lenient
from pocketmq.remoting.errors import BodyError

T = TypeVar("T")


def enum(*names: str) -> msgspec.Meta:
    """Marks a text as the name of a Java enumeration, whose names are these, in this order."""
    return msgspec.Meta(extra={"enum": names})


class WithBody(Protocol):
    """A `pocketmq.remoting.serving.request.Request`, as far as it concerns its body."""

    body: Any
    decoded: Any


class Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A JSON body, or a part of one."""

    #: Bytes of a body of another shape that is still read leniently.
    _most_respelt: ClassVar[int] = lenient.MAX_LENGTH

    def encode(self, standard_json: bool = False) -> bytes:
        """Return the body's bytes.

        `standard_json`: write integer and MessageQueue keys as strings.
        """
        return fastjson.encode(self, standard=standard_json)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """Read a body.

        Raises:
            BodyError: it is empty, cannot be read, or has another shape.
        """
        if not data:
            raise BodyError(f"no body where a {cls.__name__} is expected")
        # An error left in a variable after its `except` would be in a cycle with the traceback, and
        # keep the whole request until a garbage collection.
        try:
            return cls._exactly(data)
        except FastjsonError as error:
            wrong_shape = isinstance(error, fastjson.ShapeError)
            why = str(error)
        if len(data) <= (cls._most_respelt if wrong_shape else loose_json.MAX_LENGTH):
            try:
                return cls._leniently(data)
            except FastjsonError as error:
                why = str(error)
        raise BodyError(f"the body is not a {cls.__name__}: {why}")

    @classmethod
    def decode_ahead(cls, request: WithBody) -> Self:
        """Decode a request's body before its handler, which then gets the same one. Raises as
        `decode` does."""
        request.decoded = body = cls.decode(request.body)
        return body

    @classmethod
    def of(cls, request: WithBody) -> Self:
        """Return a request's body, the one that was decoded ahead if there is one. Raises as
        `decode` does."""
        # The request does not keep it: while it waits, only its bytes are counted.
        body, request.decoded = request.decoded, None
        return body if type(body) is cls else cls.decode(request.body)

    def need(self, name: str, value: T | None) -> T:
        """Return `value`, the value of this body's field `name`.

        Raises:
            BodyError: the field is missing, or an empty text.
        """
        if value is None or value == "":
            raise BodyError(f"the field {name} of the {type(self).__name__} is missing or empty")
        return value

    @classmethod
    def _exactly(cls, data: bytes | bytearray | memoryview) -> Self:
        return fastjson.decode_into(data, cls)

    @classmethod
    def _leniently(cls, data: bytes | bytearray | memoryview) -> Self:
        """Reads a body that could not be read exactly."""
        fields = loose_json.decode(data)
        lenient.check_known(fields, cls)
        return cls._from_fields(lenient.respelt(fields, cls))

    @classmethod
    def _from_fields(cls, fields: Any) -> Self:
        try:
            return msgspec.convert(fields, cls, strict=False)
        except (msgspec.ValidationError, RecursionError) as error:
            raise fastjson.ShapeError(str(error)) from None


class QueueBody(Body):
    """A body that holds MessageQueue objects, as map keys or as values."""

    @classmethod
    def _exactly(cls, data: bytes | bytearray | memoryview) -> Self:
        return cls._from_fields(fastjson.decode(data))

    @classmethod
    def _from_fields(cls, fields: Any) -> Self:
        if not isinstance(fields, dict):
            raise FastjsonError(f"expected an object, got {type(fields).__name__}")
        cls._adapt(fields)
        return super()._from_fields(_without_nulls(fields))

    @classmethod
    def _adapt(cls, fields: dict[str, Any]) -> None:
        """Replace the JSON of message queues by MessageQueue objects, in `fields` of this class."""
        raise NotImplementedError


def keyed_by_queue(table: Any) -> Any:
    """Return a map whose keys, JSON texts of message queues, are MessageQueue objects."""
    if not isinstance(table, dict):
        return table
    return {fastjson.message_queue_of(key): value for key, value in table.items()}


def queues(values: Any) -> Any:
    """Return a list with its message queues, as JSON objects, replaced by MessageQueue objects."""
    return [queue(value) for value in values] if isinstance(values, list) else values


def queue(value: Any) -> Any:
    """Return the message queue of a JSON object."""
    try:
        return MessageQueue(value["topic"], value["brokerName"], int(value.get("queueId", 0)))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        raise fastjson.ShapeError(
            f"no message queue, which has topic, brokerName and queueId: {value!r:.200}"
        ) from None


def objects(values: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; the type check refuses anything else in it."""
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
