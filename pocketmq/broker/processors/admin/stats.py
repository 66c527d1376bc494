"""Admin requests about the broker itself: runtime figures (28), statistics (315).

Reference: broker AdminBrokerProcessor.
"""

from __future__ import annotations

from pocketmq.broker.runtime_info import RuntimeInfo
from pocketmq.broker.statistics.statistics import DAY, HOUR, MINUTE, Rates, Statistics
from pocketmq.remoting.bodies.table import BrokerStatsData, BrokerStatsItem, KVTable
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import Header, ViewBrokerStatsDataRequestHeader
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response


class AdminProcessor:
    """Broker-wide admin requests."""

    def __init__(
        self,
        runtime_info: RuntimeInfo,
        statistics: Statistics,
    ) -> None:
        self._runtime_info = runtime_info
        self._statistics = statistics

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the admin codes here."""
        dispatcher.register(RequestCode.GET_BROKER_RUNTIME_INFO, self.runtime_info)
        dispatcher.register(
            RequestCode.VIEW_BROKER_STATS_DATA, self.stats_data, ViewBrokerStatsDataRequestHeader
        )

    def runtime_info(self, request: Request[Header]) -> Response:
        """Return the figures for clusterList and brokerStatus."""
        return Response(body=KVTable(table=self._runtime_info.table()).encode())

    def stats_data(self, request: Request[ViewBrokerStatsDataRequestHeader]) -> Response:
        """Return one counter over the last minute, hour and day."""
        name, key = request.header.stats_name, request.header.stats_key
        windows = [self._statistics.item(name, key, window) for window in (MINUTE, HOUR, DAY)]
        minute, hour, day = (None if rates is None else _item(rates) for rates in windows)
        if minute is None or hour is None or day is None:
            return Response(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        body = BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)
        return Response(body=body.encode())


def _item(rates: Rates) -> BrokerStatsItem:
    return BrokerStatsItem(sum=rates.sum, tps=rates.tps, avgpt=rates.avgpt)
