"""Bodies about connected clients, and the progress of groups."""

from __future__ import annotations

from typing import Any

from msgspec import field

from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.base import Body, QueueBody, keyed_by_queue
from pocketmq.remoting.bodies.heartbeat import SubscriptionData


class GetConsumerListByGroupResponseBody(Body):
    """GET_CONSUMER_LIST_BY_GROUP: clientIds."""

    consumer_id_list: list[str] = field(default_factory=list)


class Connection(Body):
    """A connected client; client_addr is `ip:port`, version its release ordinal."""

    client_addr: str = ""
    client_id: str = ""
    language: str = "JAVA"
    version: int = 0


class ConsumerConnection(Body):
    """GET_CONSUMER_CONNECTION_LIST; subscriptions by topic."""

    connection_set: list[Connection] = field(default_factory=list)
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)


class ProducerConnection(Body):
    """GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[Connection] = field(default_factory=list)


class ProducerInfo(Body):
    """A producer; remote_ip is `/ip:port` with Java's leading slash."""

    client_id: str = ""
    language: str = "JAVA"
    last_update_timestamp: int = 0
    remote_ip: str = field(name="remoteIP", default="")
    version: int = 0


class ProducerTableInfo(Body):
    """GET_ALL_PRODUCER_INFO: producers by group."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


class QuerySubscriptionResponseBody(Body):
    """QUERY_SUBSCRIPTION_BY_CONSUMER: without data when the group does not subscribe."""

    group: str = ""
    subscription_data: SubscriptionData | None = None
    topic: str = ""


class OffsetWrapper(Body):
    """A queue as a group sees it: its end, what is consumed, what is pulled, and the store time
    (ms) of the last consumed message."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0
    pull_offset: int = 0

    @property
    def lag(self) -> int:
        """The stored messages that the group has not consumed yet; 0 for a group ahead of its
        queue, as after the loss of a store."""
        return max(self.broker_offset - self.consumer_offset, 0)


class ConsumeStats(QueueBody):
    """GET_CONSUME_STATS."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        """The lag over all queues, in messages."""
        return sum(progress.lag for progress in self.offset_table.values())

    @classmethod
    def _adapt(cls, fields: dict[str, Any]) -> None:
        fields["offsetTable"] = keyed_by_queue(fields.get("offsetTable"))
