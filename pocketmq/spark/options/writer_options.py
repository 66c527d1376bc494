"""The options of a write: how to reach the brokers, and how to turn rows into messages.

They are checked on the driver before any task starts. Names are case-insensitive. An unknown option
is an error, as it is for reads. Errors and reprs never show a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pocketmq.client.errors import RemotingError
from pocketmq.client.namespace import Namespace
from pocketmq.client.options import ClientOptions
from pocketmq.client.validation import check_topic_name, producer_group
from pocketmq.message.limits import NO_SEND_TOPICS
from pocketmq.spark.options.connection_options import TIMEOUT, Connection, flag, seconds, text
from pocketmq.spark.options.option_error import SECURITY_NAMES, OptionError, by_proper_name, shown

NAMES: Final = (
    "namesrv",
    "topic",
    "bodyFormat",
    "producerGroup",
    *SECURITY_NAMES,
    "namespace",
    "queueSelector",
    "timeout",
    "retries",
    "batchMessages",
    "batchBytes",
    "batchesInFlight",
    "rowIds",
    "writeId",
)
#: What Spark adds to the options of a stream: its place for checkpoints, and `queryName(...)`.
_SPARKS_OWN: Final = ("checkpointlocation", "queryname")
PRODUCER_GROUP: Final = "pocketmq-spark"
BATCH_MESSAGES: Final = 1000
BATCH_BYTES: Final = 1024 * 1024
MOST_BATCH_BYTES: Final = 4 * 1024 * 1024
BATCHES_IN_FLIGHT: Final = 4
WRITE_ID: Final = re.compile(r"[\w.:-]{1,64}")


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The parsed options of a write.

    Attributes:
        connection: to the name servers and brokers.
        topic: of all messages; None if a column has it.
        json_body: whether the body is a JSON object of the remaining columns.
        group: the producer group.
        namespace: as for every client; empty without one.
        queue_selector: which queue a sharding key belongs to, as for `Producer`.
        timeout: of one batch including all attempts, seconds.
        retries: further attempts for a batch; only attempts that reached a broker count.
        batch_messages, batch_bytes: the most messages, and bytes of bodies, in a batch.
        batches_in_flight: the most unanswered batches of a task.
        row_ids: whether each message carries the id of its row.
        write_id: first part of the row ids of a batch write; None for a new one in each write.
    """

    connection: Connection
    topic: str | None
    json_body: bool
    group: str
    namespace: str
    queue_selector: str
    timeout: float
    retries: int
    batch_messages: int
    batch_bytes: int
    batches_in_flight: int
    row_ids: bool
    write_id: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> WriterOptions:
        """Read options as Spark gives them. Raises OptionError."""
        given = _known(options, streaming)
        values = _Values(given)
        return cls(
            connection=Connection.parse(given),
            topic=values.topic(),
            json_body=values.choice("bodyFormat", ("column", "json")) == "json",
            group=values.group(),
            namespace=values.namespace(),
            queue_selector=values.choice("queueSelector", ("hash", "consistent")),
            timeout=seconds(given, "timeout", TIMEOUT),
            retries=values.number("retries", 2, 0, 1000),
            batch_messages=values.number("batchMessages", BATCH_MESSAGES, 1, 10_000),
            batch_bytes=values.number("batchBytes", BATCH_BYTES, 1, MOST_BATCH_BYTES),
            batches_in_flight=values.number("batchesInFlight", BATCHES_IN_FLIGHT, 1, 1000),
            row_ids=flag(given, "rowIds", True),
            write_id=values.write_id(streaming),
        )

    def client_options(self) -> ClientOptions:
        """Return the keyword arguments of a client. Loads the files of TLS; raises OSError."""
        return ClientOptions(**self.connection.client_options(), namespace=self.namespace)


def _known(options: Mapping[str, str], streaming: bool) -> dict[str, str]:
    """Return the options by their proper names."""
    ours = {}
    for name, value in options.items():
        lower = name.lower()
        if streaming and lower in _SPARKS_OWN:
            continue
        if lower == "path":
            raise OptionError(
                "path",
                value,
                "messages are sent to brokers, not to a path: leave it out, and set the options "
                "namesrv and topic",
            )
        ours[name] = value
    return by_proper_name(ours, NAMES, shown, "option for writing")


class _Values:
    """Reads the values of options; absent ones are the default."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """One of the words; the first is the default."""
        word = self._given.get(name, allowed[0]).strip().lower()
        if word not in allowed:
            raise self._wrong(name, f"need {' or '.join(allowed)}")
        return word

    def number(self, name: str, default: int, low: int, high: int) -> int:
        text = self._given.get(name, str(default)).strip()
        if not re.fullmatch("[0-9]{1,10}", text) or not low <= int(text) <= high:
            raise self._wrong(name, f"need a whole number from {low} to {high}")
        return int(text)

    def topic(self) -> str | None:
        topic = text(self._given, "topic")
        if topic is not None:
            try:
                check_topic_name(topic)
            except RemotingError as error:
                raise self._wrong("topic", str(error)) from None
            if topic in NO_SEND_TOPICS:
                raise self._wrong("topic", "this topic is RocketMQ's own: name another one")
        return topic

    def group(self) -> str:
        group = self._given.get("producerGroup", PRODUCER_GROUP).strip()
        try:
            return producer_group(group)
        except RemotingError as error:
            raise self._wrong("producerGroup", str(error)) from None

    def namespace(self) -> str:
        name = text(self._given, "namespace") or ""
        try:
            return Namespace(name).name
        except RemotingError as error:
            raise self._wrong("namespace", str(error)) from None

    def write_id(self, streaming: bool) -> str | None:
        value = text(self._given, "writeId")
        if value is None:
            return None
        if streaming:
            raise self._wrong("writeId", "is for batch writes: streams have the id of their query")
        if not WRITE_ID.fullmatch(value):
            raise self._wrong("writeId", "need 1 to 64 letters, digits or any of _ . : -")
        return value

    def _wrong(self, name: str, wanted: str) -> OptionError:
        return shown(name, self._given.get(name, ""), wanted)
