"""The cluster: its brokers, and what needs attention."""

from __future__ import annotations

from typing import Final

import msgspec

from pocketmq.client.admin import Admin
from pocketmq.client.admin.broker_figures import BrokerState, broker_states
from pocketmq.client.admin.traffic import Speed
from pocketmq.dashboard.history import History

_MOST_LISTED: Final = 5


class BusyTopic(msgspec.Struct, frozen=True):
    """A topic, and how many messages a second it gets."""

    topic: str
    rate: float


class LateGroup(msgspec.Struct, frozen=True):
    """A group that is behind, and how it moves."""

    group: str
    lag: int
    speed: Speed | None
    recent: list[float]


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """All brokers, the busiest topics, and the groups that are furthest behind.

    `lag` is that of all groups; None before the first sample.
    """

    brokers: list[BrokerState]
    busy: list[BusyTopic]
    late: list[LateGroup]
    lag: int | None

    @property
    def silent(self) -> list[BrokerState]:
        """The brokers that do not answer."""
        return [state for state in self.brokers if state.problem is not None]

    @property
    def fullest(self) -> BrokerState | None:
        """The broker whose disk is fullest."""
        told = [state for state in self.brokers if state.figures.disk_percent is not None]
        return max(told, key=lambda state: state.figures.disk_percent or 0, default=None)

    def total(self, figure: str) -> float:
        """The sum of a figure over the brokers that tell it."""
        return sum(getattr(state.figures, figure) or 0 for state in self.brokers)


async def cluster_view(admin: Admin, history: History) -> ClusterView:
    """Ask every broker. Raises RemotingError if the name server does not say which there are."""
    brokers = await broker_states(admin)
    rates = [(history.topic_rate(name) or 0.0, name) for name in history.topics]
    lags = [(history.lag(name) or 0, name) for name in history.groups]
    return ClusterView(
        brokers=brokers,
        busy=[
            BusyTopic(name, rate)
            for rate, name in sorted(rates, key=lambda each: (-each[0], each[1]))[:_MOST_LISTED]
            if rate
        ],
        late=[
            LateGroup(
                name,
                lag,
                history.group_speed(name),
                history.lags(name),
            )
            for lag, name in sorted(lags, key=lambda each: (-each[0], each[1]))[:_MOST_LISTED]
            if lag
        ],
        lag=None if history.sampled_at is None else sum(lag for lag, _ in lags),
    )
