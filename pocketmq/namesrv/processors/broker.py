"""Requests of brokers: register, keep alive, unregister, and list their group."""

from __future__ import annotations

import logging
from typing import Any

from pocketmq.limited_log import LimitedLog
from pocketmq.message import fastjson
from pocketmq.message.checksum import body_crc
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.kv_config import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfig
from pocketmq.namesrv.route_table import RouteTable
from pocketmq.remoting.bodies.cluster import GetBrokerMemberGroupResponseBody
from pocketmq.remoting.bodies.registration import DataVersion, RegisterBrokerBody
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import LongRequests, Steps
from pocketmq.remoting.serving.request import Request, Response

log = logging.getLogger("pocketmq.namesrv.processors.broker")

_BODY_WITH_FILTER_SERVERS = 37
"""Release ordinal (3.0.11) below which the body is the topic table alone."""


class BrokerProcessor:
    """REGISTER_BROKER, UNREGISTER_BROKER, BROKER_HEARTBEAT, QUERY_DATA_VERSION,
    GET_BROKER_MEMBER_GROUP."""

    def __init__(
        self, config: NamesrvConfig, routes: RouteTable, kv_config: KVConfig, long: LongRequests
    ) -> None:
        self._config = config
        self._routes = routes
        self._kv_config = kv_config
        self._long = long
        self._log = LimitedLog(log)

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve the codes of this family."""
        dispatcher.register(
            RequestCode.REGISTER_BROKER, self.register_broker, RegisterBrokerRequestHeader
        )
        dispatcher.register(
            RequestCode.UNREGISTER_BROKER, self.unregister_broker, UnRegisterBrokerRequestHeader
        )
        dispatcher.register(
            RequestCode.BROKER_HEARTBEAT, self.broker_heartbeat, BrokerHeartbeatRequestHeader
        )
        dispatcher.register(
            RequestCode.QUERY_DATA_VERSION, self.query_data_version, QueryDataVersionRequestHeader
        )
        dispatcher.register(
            RequestCode.GET_BROKER_MEMBER_GROUP,
            self.get_broker_member_group,
            GetBrokerMemberGroupRequestHeader,
        )

    async def register_broker(self, request: Request[RegisterBrokerRequestHeader]) -> Response:
        """Take the broker's topics, and tell a slave its master and all the ordered topics."""
        return await self._long.run(request, self._register(request))

    def _register(self, request: Request[RegisterBrokerRequestHeader]) -> Steps[Response]:
        header = request.header
        if header.body_crc32 and header.body_crc32 != body_crc(request.body):
            self._log.warning("registration of %s: crc32 not match", header.broker_addr)
            return Response(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        told = yield from _body_of(request)
        self._check_cluster(request, "Update")
        result = yield from self._routes.register_broker(header, told, request.connection)
        if result is None:
            return Response(ResponseCode.SYSTEM_ERROR, "register broker failed")
        body = b""
        if self._config.return_order_topic_config_to_broker:
            orders = self._kv_config.namespace(NAMESPACE_ORDER_TOPIC_CONFIG)
            if orders is not None:
                body = fastjson.encode({"table": (yield from fastjson.encode_steps(orders))})
        return Response(
            header=RegisterBrokerResponseHeader(
                ha_server_addr=result.ha_server_addr, master_addr=result.master_addr
            ),
            body=body,
        )

    async def unregister_broker(self, request: Request[UnRegisterBrokerRequestHeader]) -> Response:
        """Forget the broker, after the registrations that came before; the reference does it a
        moment later, from a queue."""
        return await self._long.run(request, self._unregister(request))

    def _unregister(self, request: Request[UnRegisterBrokerRequestHeader]) -> Steps[Response]:
        header = request.header
        self._check_cluster(request, "Update")
        self._routes.unregister_broker(header.cluster_name, header.broker_addr, header.broker_name)
        return Response()
        yield  # it is one step

    def broker_heartbeat(self, request: Request[BrokerHeartbeatRequestHeader]) -> Response:
        """Note a sign of life."""
        self._routes.touch(request.header.cluster_name, request.header.broker_addr)
        return Response()

    def query_data_version(self, request: Request[QueryDataVersionRequestHeader]) -> Response:
        """Tell whether the broker has to register again; this counts as a sign of life."""
        header = request.header
        known = self._routes.data_version(header.cluster_name, header.broker_addr)
        self._routes.touch(header.cluster_name, header.broker_addr)
        return Response(
            header=QueryDataVersionResponseHeader(
                # Without a body, the broker's topics are unknown.
                changed=not request.body or known != DataVersion.decode(request.body)
            ),
            body=b"" if known is None else known.encode(),
        )

    def get_broker_member_group(
        self, request: Request[GetBrokerMemberGroupRequestHeader]
    ) -> Response:
        """Return the addresses of a broker group."""
        self._check_cluster(request, "Get")
        group = self._routes.member_group(request.header.cluster_name, request.header.broker_name)
        return Response(body=GetBrokerMemberGroupResponseBody(group).encode())

    def _check_cluster(
        self,
        request: Request[RegisterBrokerRequestHeader]
        | Request[UnRegisterBrokerRequestHeader]
        | Request[GetBrokerMemberGroupRequestHeader],
        action: str,
    ) -> None:
        """Raise RemotingError unless the caller may do so in the broker group's own cluster. The
        cluster that a request names may be another one."""
        cluster = self._routes.cluster_of(request.header.broker_name)
        if (
            cluster is not None
            and cluster != request.header.cluster_name
            and request.caller is not None
        ):
            request.caller.require_cluster(cluster, action)


def _body_of(request: Request[RegisterBrokerRequestHeader]) -> Steps[RegisterBrokerBody]:
    """Return the registration's body, in the form that this broker writes. Raises BodyError."""
    data: Any = request.body
    if not data:
        return RegisterBrokerBody()
    table_alone = request.version < _BODY_WITH_FILTER_SERVERS
    # A broker of 5.3.3 with compressedRegister=true deflates the body, but says that it did not.
    # JSON never begins with the first byte of a zlib stream.
    if not table_alone and (request.header.compressed or data[0] == 0x78):
        return (yield from RegisterBrokerBody.decode_compressed_steps(data, request.version))
    return (yield from RegisterBrokerBody.decode_steps(data, table_alone=table_alone))
