"""The duration of admin requests that create topics and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from pocketmq.monitoring.families import HISTOGRAM, Family, Histogram
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.serving.request import Request

#: Milliseconds, the upper bounds of the buckets.
BOUNDS: Final = (10, 100, 1000, 3000, 5000)


class CreationTimes:
    """The times of one broker; `is_system` tells whether a topic is RocketMQ's own.

    Attributes:
        listeners: for `RpcLatency`, by request code.
    """

    def __init__(self, is_system: Callable[[str], bool]) -> None:
        self._is_system = is_system
        self._topics = Histogram(BOUNDS)
        self._groups = Histogram(BOUNDS)
        self.listeners: dict[int, Callable[[Request[Any], int, float], None]] = {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._topic,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._group,
        }

    def families(self) -> Iterator[Family]:
        """Return the metrics."""
        yield Family(
            "rocketmq_topic_create_execution_time",
            HISTOGRAM,
            "Time of requests that create or change a topic",
            ("invocation_status", "is_system"),
            self._topics.points(),
            "milliseconds",
            BOUNDS,
        )
        yield Family(
            "rocketmq_consumer_group_create_execution_time",
            HISTOGRAM,
            "Time of requests that create or change a group",
            ("invocation_status",),
            self._groups.points(),
            "milliseconds",
            BOUNDS,
        )

    def _topic(self, request: Request[Any], answer: int, seconds: float) -> None:
        is_system = "true" if self._is_system(request.header.topic) else "false"
        self._topics.add((_status(answer), is_system), seconds * 1000)

    def _group(self, request: Request[Any], answer: int, seconds: float) -> None:
        self._groups.add((_status(answer),), seconds * 1000)


def _status(answer: int) -> str:
    return "success" if answer == ResponseCode.SUCCESS else "failure"
