"""The options of reads from running brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pocketmq.spark.options.option_error import SECURITY_NAMES, OptionError, shown
from pocketmq.spark.sessions.needed_packages import needed_for

if TYPE_CHECKING:
    from pocketmq.client.consumer.expression import Expression
    from pocketmq.spark.options.connection_options import Connection

LIVE_NAMES: Final = (
    "namesrv",
    "consumerGroup",
    "tags",
    "sql",
    *SECURITY_NAMES,
    "timeout",
)
READER_GROUP: Final = "TOOLS_CONSUMER"
"""The default group of pulls: one that every broker has and no application uses."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """How to read from brokers.

    Attributes:
        connection: to name servers and brokers.
        group: the consumer group of the pulls.
        expression: which messages the brokers send.
        timeout: how long a task or the driver retries while a broker is unreachable, seconds.
    """

    connection: Connection
    group: str
    expression: Expression
    timeout: float

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> LiveOptions | None:
        """Read options by their proper names; None if no name server is given. Raises
        OptionError."""
        if "namesrv" not in given:
            for name in LIVE_NAMES:
                if name in given:
                    raise shown(name, given[name], "needs the option namesrv")
            return None
        # Reading files needs no package of the client.
        with needed_for("reading from running brokers"):
            from pocketmq.client.consumer.expression import Expression
            from pocketmq.client.errors import RemotingError
            from pocketmq.client.validation import consumer_group
            from pocketmq.spark.options.connection_options import TIMEOUT, Connection, seconds

        group = given.get("consumerGroup", READER_GROUP).strip()
        try:
            group = consumer_group(group)
        except RemotingError as error:
            raise OptionError("consumerGroup", group, str(error)) from None
        name = "sql" if "sql" in given else "tags"
        try:
            expression = Expression.of(given.get("tags", "*"), given.get("sql"))
        except RemotingError as error:
            raise OptionError(name, given[name], str(error)) from None
        connection = Connection.parse(given)
        return cls(connection, group, expression, seconds(given, "timeout", TIMEOUT))
