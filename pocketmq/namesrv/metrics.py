"""The metrics of a name server. RocketMQ 5.3.3 has none for it: `rocketmq_rpc_latency` is the one
of a broker, the others are this project's own.
"""

from __future__ import annotations

from collections.abc import Callable

from pocketmq.monitoring.families import GAUGE, Family, Labels, Value
from pocketmq.monitoring.rpc_family import rpc_latency
from pocketmq.namesrv.route_table import RouteTable
from pocketmq.remoting.rpc_latency import RpcLatency


class NamesrvMetrics:
    """The metrics of one name server; `connections` tells how many are open."""

    def __init__(
        self,
        routes: RouteTable,
        latency: RpcLatency,
        connections: Callable[[], int],
    ) -> None:
        self._routes = routes
        self._latency = latency
        self._connections = connections

    async def families(self) -> list[Family]:
        """Return all metrics."""
        clusters = self._routes.cluster_info().cluster_addr_table
        return [
            _gauge(
                "pocketmq_namesrv_brokers",
                "Brokers that are registered",
                ("cluster",),
                [((cluster,), len(names)) for cluster, names in clusters.items()],
            ),
            _gauge(
                "pocketmq_namesrv_topics",
                "Topics with a route",
                (),
                [((), len(self._routes.topics.names()))],
            ),
            _gauge(
                "pocketmq_namesrv_connections", "Open connections", (), [((), self._connections())]
            ),
            rpc_latency(self._latency),
        ]


def _gauge(name: str, text: str, labels: Labels, points: list[tuple[Labels, Value]]) -> Family:
    return Family(name, GAUGE, text, labels, points)
