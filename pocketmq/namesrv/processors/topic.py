"""Requests of operators about clusters and topics."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pocketmq.limited_log import LimitedLog
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.route_table import RouteTable
from pocketmq.remoting.bodies.route import TopicRouteData
from pocketmq.remoting.bodies.topic import TopicList
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import LongRequests
from pocketmq.remoting.serving.request import Request, Response

log = logging.getLogger("pocketmq.namesrv.processors.topic")

_DISABLED = "disable"


class TopicProcessor:
    """Cluster info, lists of topics, topics set by hand, write permission of a broker group."""

    def __init__(self, config: NamesrvConfig, routes: RouteTable, long: LongRequests) -> None:
        self._config = config
        self._routes = routes
        self._long = long
        self._log = LimitedLog(log)

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve the codes of this family."""
        dispatcher.register(RequestCode.GET_BROKER_CLUSTER_INFO, self.get_broker_cluster_info)
        dispatcher.register(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            self.wipe_write_perm_of_broker,
            WipeWritePermOfBrokerRequestHeader,
        )
        dispatcher.register(
            RequestCode.ADD_WRITE_PERM_OF_BROKER,
            self.add_write_perm_of_broker,
            AddWritePermOfBrokerRequestHeader,
        )
        dispatcher.register(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.get_all_topic_list)
        dispatcher.register(
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            self.delete_topic,
            DeleteTopicFromNamesrvRequestHeader,
        )
        dispatcher.register(
            RequestCode.REGISTER_TOPIC_IN_NAMESRV, self.register_topic, RegisterTopicRequestHeader
        )
        dispatcher.register(
            RequestCode.GET_TOPICS_BY_CLUSTER,
            self.get_topics_by_cluster,
            GetTopicsByClusterRequestHeader,
        )
        dispatcher.register(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, self.get_system_topic_list)
        dispatcher.register(RequestCode.GET_UNIT_TOPIC_LIST, self.get_unit_topic_list)
        dispatcher.register(
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, self.get_has_unit_sub_topic_list
        )
        dispatcher.register(
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            self.get_has_unit_sub_ununit_topic_list,
        )

    def get_broker_cluster_info(self, request: Request[Header]) -> Response:
        """Return all clusters; integer keys are without quotes for every client, as in the
        reference.
        """
        return Response(body=self._routes.cluster_info().encode())

    def wipe_write_perm_of_broker(
        self, request: Request[WipeWritePermOfBrokerRequestHeader]
    ) -> Response:
        """Make all topics of a broker group read-only until their registration changes."""
        name = request.header.broker_name
        count = self._routes.topics.wipe_write_perm(name)
        self._log.info(
            "wipe write perm of broker %s by %s: %d topics", name, request.connection, count
        )
        return Response(header=WipeWritePermOfBrokerResponseHeader(count))

    def add_write_perm_of_broker(
        self, request: Request[AddWritePermOfBrokerRequestHeader]
    ) -> Response:
        """Make all topics of a broker group readable and writable."""
        name = request.header.broker_name
        count = self._routes.topics.add_write_perm(name)
        self._log.info(
            "add write perm of broker %s by %s: %d topics", name, request.connection, count
        )
        return Response(header=AddWritePermOfBrokerResponseHeader(count))

    def delete_topic(self, request: Request[DeleteTopicFromNamesrvRequestHeader]) -> Response:
        """Forget a topic, here or in one cluster; a broker that still has it registers it again
        with its next change.
        """
        self._routes.delete_topic(request.header.topic, request.header.cluster_name)
        return Response()

    def register_topic(self, request: Request[RegisterTopicRequestHeader]) -> Response:
        """Add a topic at brokers that are registered already."""
        rows = TopicRouteData.decode(request.body).queue_datas
        for row in rows:
            row.need("brokerName", row.broker_name)
        if rows:
            self._routes.register_topic(request.header.topic, rows)
        return Response()

    def get_all_topic_list(self, request: Request[Header]) -> Response:
        """Return all topics, unless enableAllTopicList is off."""
        if not self._config.enable_all_topic_list:
            return Response(ResponseCode.SYSTEM_ERROR, _DISABLED)
        return _topic_list(self._routes.topics.names())

    def get_topics_by_cluster(self, request: Request[GetTopicsByClusterRequestHeader]) -> Response:
        """Return the topics of one cluster, unless enableTopicList is off."""
        if not self._config.enable_topic_list:
            return Response(ResponseCode.SYSTEM_ERROR, _DISABLED)
        return _topic_list(self._routes.topics_by_cluster(request.header.cluster))

    def get_system_topic_list(self, request: Request[Header]) -> Response:
        """Return cluster and broker names, and the address of a broker to ask for its topics."""
        names, address = self._routes.system_topics()
        return Response(body=TopicList(broker_addr=address, topic_list=names).encode())

    async def get_unit_topic_list(self, request: Request[Header]) -> Response:
        """Topics with the unit flag."""
        return await self._by_unit(request, lambda unit, _: unit)

    async def get_has_unit_sub_topic_list(self, request: Request[Header]) -> Response:
        """Topics with a unit subscription."""
        return await self._by_unit(request, lambda _, sub: sub)

    async def get_has_unit_sub_ununit_topic_list(self, request: Request[Header]) -> Response:
        """Return the topics with a unit subscription that are not unit topics themselves."""
        return await self._by_unit(request, lambda unit, sub: sub and not unit)

    async def _by_unit(
        self, request: Request[Header], accept: Callable[[bool, bool], bool]
    ) -> Response:
        if not self._config.enable_topic_list:
            return Response(ResponseCode.SYSTEM_ERROR, _DISABLED)
        return _topic_list(await self._long.run(request, self._routes.topics.names_by_unit(accept)))


def _topic_list(topics: list[str]) -> Response:
    return Response(body=TopicList(topic_list=topics).encode())
