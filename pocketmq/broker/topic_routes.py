"""The queues of a topic at all brokers, from the name servers.

The broker queries them only for clients whose queues it assigns (QUERY_ASSIGNMENT). Reference:
broker TopicRouteInfoManager.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.topic_config import PERM_READ, TopicConfigs
from pocketmq.limited_log import LimitedLog
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.route import TopicRouteData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import BodyError, RemotingError
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import GetRouteInfoRequestHeader, Header

log = logging.getLogger(__name__)

#: Sends a request to one name server after another; raises RemotingError if none answers.
AskNameServers: TypeAlias = Callable[[RequestCode, Header], Awaitable[Command]]


async def ask_nobody(code: RequestCode, header: Header) -> Command:
    """Raise RemotingError: no name servers are configured."""
    raise RemotingError(ResponseCode.SYSTEM_ERROR, "there are no name servers")


class TopicRoutes:
    """The topic routes of one broker."""

    def __init__(self, config: BrokerConfig, topics: TopicConfigs, ask: AskNameServers) -> None:
        self._config = config
        self._topics = topics
        self._ask = ask
        self._log = LimitedLog(log)

    async def readable_queues(self, topic: str) -> list[MessageQueue] | None:
        """Return the readable queues of a topic, sorted; None if they are not known."""
        if not self._config.name_servers:
            return self._own_queues(topic)
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        try:
            answer = await self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return self._own_queues(topic)  # the name servers may not know it yet
            if answer.code != ResponseCode.SUCCESS:
                raise RemotingError(answer.code, answer.remark or "")
            route = TopicRouteData.decode(answer.body)
        except (RemotingError, BodyError) as error:
            self._log.warning("the route of topic %s is not known: %s", topic, error)
            return None
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in route.queue_datas
            if data.perm & PERM_READ
            for queue_id in range(data.read_queue_nums)
        )

    def _own_queues(self, topic: str) -> list[MessageQueue] | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        if not config.perm & self._config.broker_permission & PERM_READ:
            return []
        name = self._config.broker_name
        return [MessageQueue(topic, name, queue_id) for queue_id in range(config.read_queue_nums)]
