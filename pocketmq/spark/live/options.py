"""The options of reads from running brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pocketmq.spark.option_error import OptionError, shown

if TYPE_CHECKING:
    from pocketmq.spark.connection_options import Connection

LIVE_NAMES: Final = (
    "namesrv",
    "consumerGroup",
    "accessKey",
    "secretKey",
    "securityToken",
    "tls",
    "tlsCaFile",
    "tlsCertFile",
    "tlsKeyFile",
    "timeout",
)
READER_GROUP: Final = "TOOLS_CONSUMER"
"""Who pulls: a group that every broker has, and that is nobody's."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """How brokers are asked.

    Attributes:
        connection: to name servers and brokers.
        group: whose pulls they are.
        timeout: how long a task or the driver goes on asking a broker that is away, seconds.
    """

    connection: Connection
    group: str
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
        # Reading files takes no package of the client, and executors may not have any.
        from pocketmq.client.errors import RemotingError
        from pocketmq.client.validation import consumer_group
        from pocketmq.spark.connection_options import TIMEOUT, Connection, seconds

        group = given.get("consumerGroup", READER_GROUP).strip()
        try:
            group = consumer_group(group)
        except RemotingError as error:
            raise OptionError("consumerGroup", group, str(error)) from None
        return cls(Connection.parse(given), group, seconds(given, "timeout", TIMEOUT))
