"""Plain tables and lists of texts that several requests answer with."""

from __future__ import annotations

from msgspec import field

from pocketmq.remoting.bodies.base import Body


class KVTable(Body):
    """Texts by name: GET_KVLIST_BY_NAMESPACE, GET_BROKER_RUNTIME_INFO, order topics."""

    table: dict[str, str] = field(default_factory=dict)


class GroupList(Body):
    """QUERY_TOPIC_CONSUME_BY_WHO: names of consumer groups."""

    group_list: list[str] = field(default_factory=list)


class BrokerStatsItem(Body):
    """A counter over one window: its sum, its rate per second, its mean per call."""

    avgpt: float = 0.0
    sum: int = 0
    tps: float = 0.0


class BrokerStatsData(Body):
    """VIEW_BROKER_STATS_DATA."""

    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
