"""The metrics of a name server. RocketMQ 5.3.3 has none for it: `rocketmq_rpc_latency` is the one
of a broker, the others are pocketmq's own.
"""

from __future__ import annotations

from collections.abc import Callable

from pocketmq.monitoring.families import GAUGE, Family, Labels, Value, certificate_expiry
from pocketmq.monitoring.rpc_family import rpc_latency
from pocketmq.namesrv.route_table import RouteTable
from pocketmq.remoting.serving.rpc_latency import RpcLatency


class NamesrvMetrics:
    """The metrics of one name server; `connections` gives the number of open ones, `expires_at`
    when its certificate expires (Unix seconds)."""

    def __init__(
        self,
        routes: RouteTable,
        latency: RpcLatency,
        connections: Callable[[], int],
        expires_at: Callable[[], float | None],
    ) -> None:
        self._routes = routes
        self._latency = latency
        self._connections = connections
        self._expires_at = expires_at

    async def families(self) -> list[Family]:
        """Return all metrics."""
        info = self._routes.cluster_info()
        clusters = info.cluster_addr_table
        members = {
            cluster: sum(
                len(group.broker_addrs)
                for name, group in info.broker_addr_table.items()
                if name in names
            )
            for cluster, names in clusters.items()
        }
        return [
            _gauge(
                "pocketmq_namesrv_brokers",
                "Registered broker groups",
                ("cluster",),
                [((cluster,), len(names)) for cluster, names in clusters.items()],
            ),
            _gauge(
                "pocketmq_namesrv_members",
                "Members of these groups, including replicas",
                ("cluster",),
                [((cluster,), count) for cluster, count in members.items()],
            ),
            certificate_expiry(self._expires_at()),
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
