"""The broker itself as admins see it: settings (26), runtime figures (28), statistics (315).

Reference: broker AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from broker.config import BrokerConfig
from broker.runtime_info import RuntimeInfo
from broker.statistics import DAY, HOUR, MINUTE, Rates, Statistics
from remoting.bodies.registration import DataVersion
from remoting.bodies.table import BrokerStatsData, BrokerStatsItem, KVTable
from remoting.codes import RequestCode, ResponseCode
from remoting.dispatch import Dispatcher
from remoting.headers import (
    GetBrokerConfigResponseHeader,
    Header,
    ViewBrokerStatsDataRequestHeader,
)
from remoting.properties_file import config_properties, format_properties
from remoting.request import Request, Response


class AdminProcessor:
    """Broker-wide admin requests; `clock` gives milliseconds."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime_info: RuntimeInfo,
        statistics: Statistics,
        clock: Callable[[], int],
    ) -> None:
        self._config = config
        self._runtime_info = runtime_info
        self._statistics = statistics
        self._config_version = DataVersion(timestamp=clock())

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the admin codes here."""
        dispatcher.register(RequestCode.GET_BROKER_CONFIG, self.broker_config)
        dispatcher.register(RequestCode.GET_BROKER_RUNTIME_INFO, self.runtime_info)
        dispatcher.register(
            RequestCode.VIEW_BROKER_STATS_DATA, self.stats_data, ViewBrokerStatsDataRequestHeader
        )

    def broker_config(self, request: Request[Header]) -> Response:
        """All settings as properties text, sorted by name."""
        text = format_properties(config_properties(self._config))
        version = msgspec.json.encode(self._config_version).decode()
        return Response(
            header=GetBrokerConfigResponseHeader(version=version),
            body=text.encode(),
        )

    def runtime_info(self, request: Request[Header]) -> Response:
        """What clusterList and brokerStatus show."""
        return Response(body=KVTable(table=self._runtime_info.table()).encode())

    def stats_data(self, request: Request[ViewBrokerStatsDataRequestHeader]) -> Response:
        """One counter over the last minute, hour and day."""
        name, key = request.header.stats_name, request.header.stats_key
        windows = [self._statistics.item(name, key, window) for window in (MINUTE, HOUR, DAY)]
        minute, hour, day = (None if rates is None else _item(rates) for rates in windows)
        if minute is None or hour is None or day is None:
            return Response(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        body = BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)
        return Response(body=body.encode())


def _item(rates: Rates) -> BrokerStatsItem:
    return BrokerStatsItem(sum=rates.sum, tps=rates.tps, avgpt=rates.avgpt)
