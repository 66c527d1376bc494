"""Requests about the copies of a broker's log: from slaves (60, 61, 906) and admins (907).

Reference: broker AdminBrokerProcessor.
"""

from __future__ import annotations

import time
from typing import Protocol

from pocketmq.broker.delayed.timer import TimerService
from pocketmq.broker.statistics.timer_counts import TimerCounts
from pocketmq.broker.tables.consumer_offset import LOG_END
from pocketmq.broker.tables.topic_config import TopicConfigs
from pocketmq.remoting.bodies.cluster import HARuntimeInfo
from pocketmq.remoting.bodies.timer import TimerMetric, TimerMetricsSerializeWrapper
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    Header,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore


class Replicates(Protocol):
    """The replication of the log; see `Replication` and `GroupReplication`."""

    ha_address: str

    def status(self, now: float) -> HARuntimeInfo:
        """Return the answer to GET_BROKER_HA_STATUS; `now` is in Unix seconds."""


class ReplicationProcessor:
    """Requests about the copies of the broker at `address`."""

    def __init__(
        self,
        store: MessageStore,
        replication: Replicates,
        timer: TimerService,
        topics: TopicConfigs,
        counts: TimerCounts,
        address: str,
    ) -> None:
        self._topics = topics
        self._counts = counts
        self._store = store
        self._replication = replication
        self._timer = timer
        self._address = address

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the codes here."""
        dispatcher.register(RequestCode.GET_BROKER_HA_STATUS, self.ha_status)
        dispatcher.register(RequestCode.GET_TIMER_CHECK_POINT, self.timer_checkpoint)
        dispatcher.register(RequestCode.GET_TIMER_METRICS, self.timer_metrics)
        dispatcher.register(
            RequestCode.EXCHANGE_BROKER_HA_INFO, self.exchange, ExchangeHAInfoRequestHeader
        )

    def ha_status(self, request: Request[Header]) -> Response:
        """Return the state of replication, for haStatus."""
        return Response(body=self._replication.status(time.time()).encode())

    def timer_checkpoint(self, request: Request[Header]) -> Response:
        """Return the progress of timed messages, and the end of the log at that time."""
        progress = self._timer.checkpoint()
        if progress is None:
            return Response(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return Response(
            body=progress.encode(), ext_fields={LOG_END: str(self._store.commit_log.end)}
        )

    def timer_metrics(self, request: Request[Header]) -> Response:
        """Return the number of waiting timed messages by topic."""
        now = int(time.time() * 1000)
        waiting = self._counts.waiting(self._topics.table)
        counts = {
            topic: TimerMetric(count=count, time_stamp=now) for topic, count in waiting.items()
        }
        return Response(body=TimerMetricsSerializeWrapper(timing_count=counts).encode())

    def exchange(self, request: Request[ExchangeHAInfoRequestHeader]) -> Response:
        """Return this master's addresses to a slave. Addresses in the request are ignored: slaves
        get them from the name server."""
        if request.header.master_ha_address is not None:
            return Response(header=ExchangeHAInfoResponseHeader())
        return Response(
            header=ExchangeHAInfoResponseHeader(
                master_address=self._address,
                master_ha_address=self._replication.ha_address,
                master_flush_offset=self._store.flushed_offset,
            )
        )
