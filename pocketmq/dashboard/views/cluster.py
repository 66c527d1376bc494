"""The cluster: its brokers, and problems that need attention."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

import msgspec

from pocketmq.client.admin import Admin
from pocketmq.client.admin.broker_figures import BrokerState, broker_states
from pocketmq.client.admin.connected_clients import online
from pocketmq.client.admin.traffic import Speed, each
from pocketmq.client.errors import NoPermission
from pocketmq.dashboard.history import History

_MOST_LISTED: Final = 5

T = TypeVar("T")


class BusyTopic(msgspec.Struct, frozen=True):
    """A topic, and its rate in messages a second."""

    topic: str
    rate: float


class LateGroup(msgspec.Struct, frozen=True):
    """A group with a lag, its online clients, and its rates."""

    group: str
    clients: int
    lag: int
    speed: Speed | None
    recent: list[float]


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """All brokers, the busiest topics, and the groups with the largest lags.

    `lag` is that of all groups; None before the first sample.
    """

    brokers: list[BrokerState]
    busy: list[BusyTopic]
    late: list[LateGroup]
    lag: int | None

    @property
    def silent(self) -> list[BrokerState]:
        """The brokers that do not answer, and the masters that are not registered."""
        return [state for state in self.brokers if state.problem is not None]

    @property
    def unready(self) -> list[BrokerState]:
        """The brokers that answer that they are not ready."""
        return [state for state in self.brokers if state.problem is None and not state.is_well]

    @property
    def fullest(self) -> BrokerState | None:
        """The broker with the fullest disk."""
        told = [state for state in self.brokers if state.figures.disk_percent is not None]
        return max(told, key=lambda state: state.figures.disk_percent or 0, default=None)

    def total(self, figure: str) -> float:
        """The sum of a figure over the brokers that report it."""
        return sum(getattr(state.figures, figure) or 0 for state in self.brokers)


async def cluster_view(admin: Admin, history: History) -> ClusterView:
    """Query every broker. Raises RemotingError if the name server does not return the brokers.

    The history may have topics and groups that this user may not see, so each is queried.
    """
    brokers = await broker_states(admin)
    rates = {name: history.topic_rate(name) or 0.0 for name in history.topics}
    lags = {name: history.lag(name) or 0 for name in history.groups}
    busy = await _visible(_largest(rates), admin.topic_stats)

    async def late_group(group: str) -> LateGroup:
        lag = (await admin.consume_stats(group)).lag
        connected = await online(admin, group) if lag else None
        return LateGroup(
            group,
            0 if connected is None else len(connected.connection_set),
            lag,
            history.group_speed(group),
            history.lags(group),
        )

    late = await _visible(_largest(lags), late_group)
    return ClusterView(
        brokers=brokers,
        busy=[BusyTopic(name, rates[name]) for name in busy],
        late=[row for row in late.values() if row.lag],
        lag=None if history.sampled_at is None else sum(lags.values()),
    )


def _largest(figures: Mapping[str, float]) -> list[str]:
    """Return the names with the largest figures above 0."""
    names = sorted(figures, key=lambda name: (-figures[name], name))
    return [name for name in names[:_MOST_LISTED] if figures[name]]


async def _visible(names: list[str], ask: Callable[[str], Coroutine[Any, Any, T]]) -> dict[str, T]:
    """Return the results of `ask` for each name that this user may see."""
    try:
        return await each(names, ask)
    except NoPermission:
        return {}
