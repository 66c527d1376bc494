"""A topic that a consumer reads: its filter, and how its queues are chosen.

| kind | queues |
|---|---|
| FIXED | those given by the user |
| FOLLOWED | all queues of the topic's route, which may change |
| SHARED | this client's share of them (`rebalance/`) |
"""

from __future__ import annotations

import logging
from collections.abc import Container
from enum import Enum

import msgspec

from pocketmq.client.consumer.expression import SQL92, Expression
from pocketmq.client.errors import RemotingError, is_silence
from pocketmq.client.instance import ClientInstance
from pocketmq.client.offsets import Position
from pocketmq.client.routes.route import TopicRoute
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.heartbeat import CheckClientRequestBody, SubscriptionData
from pocketmq.remoting.codes import RequestCode

log = logging.getLogger(__name__)

#: How many brokers are asked to check a condition before it stays unchecked.
MAX_CHECKS = 3


class Kind(Enum):
    """How the queues of a subscription are chosen."""

    FIXED = "fixed"
    FOLLOWED = "followed"
    SHARED = "shared"


class Subscription(msgspec.Struct):
    """A topic that is read. `at_first`: the queues that existed when it was assigned. `version`:
    that time, ms. `start`: where a group without a stored offset begins; None for the consumer's
    option. `undivided`: SHARED, and not rebalanced yet. `sought`: queue → offset of a `seek` in
    that time."""

    topic: str
    kind: Kind
    expression: Expression
    version: int
    at_first: set[MessageQueue] = msgspec.field(default_factory=set)
    start: Position | None = None
    undivided: bool = False
    sought: dict[MessageQueue, int] = msgspec.field(default_factory=dict)

    def divided(self, share: Container[MessageQueue]) -> None:
        """Record this client's share; an earlier `seek` applies only to the first one."""
        if self.undivided:
            self.undivided = False
            self.sought = {queue: at for queue, at in self.sought.items() if queue in share}

    def data(self) -> SubscriptionData:
        """Return the subscription as heartbeats contain it."""
        expression = self.expression
        return SubscriptionData(
            code_set=sorted(expression.tags.codes),
            expression_type=expression.type,
            sub_string=expression.text,
            sub_version=self.version,
            tags_set=sorted(expression.tags.tags),
            topic=self.topic,
        )


async def check_expression(
    instance: ClientInstance, group: str, route: TopicRoute, expression: Expression
) -> None:
    """Let a broker of the topic check a SQL92 condition; tags need no check.

    While no broker answers, the condition stays unchecked, and pulls report what is wrong with it.
    Reference: MQClientInstance.checkClientInBroker, which fails then.

    Raises:
        RemotingError: the broker cannot evaluate the condition.
    """
    if expression.type != SQL92:
        return
    data = SubscriptionData(expression_type=SQL92, sub_string=expression.text, topic=route.topic)
    body = CheckClientRequestBody(client_id=instance.client_id, group=group, subscription_data=data)
    for broker in sorted(route.addresses())[:MAX_CHECKS]:
        try:
            await instance.request(
                instance.routes.address(broker),
                RequestCode.CHECK_CLIENT_CONFIG,
                body=body.encode(),
                broker=broker,
            )
        except RemotingError as error:
            if not is_silence(error):
                raise
            log.debug("broker %s did not check a condition: %s", broker, error)
        else:
            return
