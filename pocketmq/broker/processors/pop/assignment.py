"""QUERY_ASSIGNMENT and message request modes: which queues a client reads, by pop or pull.

Reference: broker QueryAssignmentProcessor.
"""

from __future__ import annotations

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.pop.assignment import STRATEGIES, assigned_for_pop, assigned_for_pull
from pocketmq.broker.pop.request_mode import MessageRequestModes
from pocketmq.broker.tables.consumer_groups import BROADCASTING, ConsumerGroups
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.broker.topic_routes import TopicRoutes
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.pop import (
    POP,
    PULL,
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import Header
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response


class AssignmentProcessor:
    """Assignments of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        consumers: ConsumerGroups,
        routes: TopicRoutes,
        modes: MessageRequestModes,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._routes = routes
        self._modes = modes

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the codes here."""
        dispatcher.register(RequestCode.QUERY_ASSIGNMENT, self.query)
        dispatcher.register(RequestCode.SET_MESSAGE_REQUEST_MODE, self.set_mode)
        dispatcher.register(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, self.all_modes)

    async def query(self, request: Request[Header]) -> Response:
        """Return the queues of a client; no list if they are not known, so that the client keeps
        its queues."""
        body = QueryAssignmentRequestBody.of(request)
        topic = body.need("topic", body.topic)
        group = body.need("consumerGroup", body.consumer_group)
        mode = self._modes.get(topic, group)
        queues = await self._routes.readable_queues(topic)
        if queues is not None and body.message_model != BROADCASTING:
            queues = self._shared_out(queues, body, mode)
        answer = QueryAssignmentResponseBody()
        if queues is not None:
            answer.message_queue_assignments = [
                MessageQueueAssignment(message_queue=queue, mode=mode.mode) for queue in queues
            ]
        return Response(body=answer.encode())

    def _shared_out(
        self,
        queues: list[MessageQueue],
        body: QueryAssignmentRequestBody,
        mode: SetMessageRequestModeRequestBody,
    ) -> list[MessageQueue] | None:
        if not self._config.server_load_balancer_enable:
            return queues
        group = self._consumers.get(body.consumer_group)
        strategy = STRATEGIES.get(body.strategy_name)
        if group is None or strategy is None:
            return None
        clients = sorted(group.client_ids())
        if mode.mode == POP:
            shared_with = mode.pop_share_queue_num
            return assigned_for_pop(strategy, queues, clients, body.client_id, shared_with)
        return assigned_for_pull(strategy, queues, clients, body.client_id)

    async def set_mode(self, request: Request[Header]) -> Response:
        """Set whether a group pops or pulls from a topic."""
        mode = SetMessageRequestModeRequestBody.of(request)
        topic = mode.need("topic", mode.topic)
        group = mode.need("consumerGroup", mode.consumer_group)
        if topic.startswith(RETRY_PREFIX):
            raise RemotingError(
                ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"
            )
        if mode.mode not in (PULL, POP):
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER, f"mode is {mode.mode[:40]!r}: PULL or POP"
            )
        if self._topics.get(topic) is None:
            raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._groups.find(group) is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist"
            )
        await self._modes.set(mode)
        return Response()

    def all_modes(self, request: Request[Header]) -> Response:
        """Return the modes that were set."""
        return Response(body=self._modes.document().encode())
