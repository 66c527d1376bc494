"""The most frequent request of clients: where a topic's queues are."""

from __future__ import annotations

from msgspec.structs import replace

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.encoded_routes import EncodedRoutes
from pocketmq.namesrv.kv_config import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfig
from pocketmq.namesrv.route_table import MASTER_ID, RouteTable
from pocketmq.remoting.bodies.route import TopicRouteData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.namesrv import GetRouteInfoRequestHeader
from pocketmq.remoting.monotonic import MonotonicClock
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response

_STANDARD_JSON_VERSION = 401
"""Release ordinal (4.9.4) from which clients get standard JSON without asking."""

_FAQ = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"


class RouteProcessor:
    """GET_ROUTEINFO_BY_TOPIC."""

    def __init__(
        self,
        config: NamesrvConfig,
        routes: RouteTable,
        kv_config: KVConfig,
        *,
        clock: MonotonicClock,
    ) -> None:
        self._config = config
        self._routes = routes
        self._kv_config = kv_config
        self._clock = clock
        self._started = clock()
        self._encoded = EncodedRoutes()

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve the codes of this family."""
        dispatcher.register(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, self.get_route_info, GetRouteInfoRequestHeader
        )

    def get_route_info(self, request: Request[GetRouteInfoRequestHeader]) -> Response:
        """Return the route in the form that the client's release reads."""
        config = self._config
        if config.need_wait_for_service:
            ready_at = self._started + config.wait_seconds_for_service * 1000
            if self._clock() < ready_at:
                return Response(ResponseCode.SYSTEM_ERROR, "name server not ready")
        topic = request.header.topic
        standard = (
            request.version >= _STANDARD_JSON_VERSION
            or request.header.accept_standard_json_only is True
        )
        order = None
        if topic is not None and config.order_message_enable:
            order = self._kv_config.get(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
        # Few clients have zones: a look at the header's bytes saves decoding it.
        zone = ""
        if b"__ZONE_MODE" in bytes(request.head):
            ext_fields = request.ext_fields
            if ext_fields.get("__ZONE_MODE", "").lower() == "true":
                zone = ext_fields.get("__ZONE_NAME", "").strip()
        key = topic, standard, order, config.support_acting_master
        version = self._routes.version
        # Clients choose zones freely, so routes within one are not kept.
        body = None if zone else self._encoded.get(key, version)
        if body is None:
            if topic is None or (route := self._routes.route(topic)) is None:
                # Normal before a topic is created: not worth a log line.
                return Response(
                    ResponseCode.TOPIC_NOT_EXIST,
                    f"No topic route info in name server for the topic: {topic}"
                    f"\nSee {_FAQ} for further details.",
                )
            route.order_topic_conf = order
            if zone:
                route = _in_zone(route, zone)
            body = route.encode(standard_json=standard)
            if not zone:
                self._encoded.keep(key, version, body)
        return Response(body=body)


def _in_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """Return the part of a route within a zone.

    Groups without a master stay: their slaves are needed.
    """
    kept = [
        group
        for group in route.broker_datas
        if MASTER_ID not in group.broker_addrs or (group.zone_name or "").lower() == zone.lower()
    ]
    names = {group.broker_name for group in kept}
    addresses = {address for group in kept for address in group.broker_addrs.values()}
    return replace(
        route,
        broker_datas=kept,
        queue_datas=[queues for queues in route.queue_datas if queues.broker_name in names],
        filter_server_table={
            address: servers
            for address, servers in route.filter_server_table.items()
            if address in addresses
        },
    )
