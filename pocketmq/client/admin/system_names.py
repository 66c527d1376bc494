"""System topics and groups, which lists leave out."""

from __future__ import annotations

from typing import Final

from pocketmq.client.admin.admin import Admin
from pocketmq.message.limits import SYSTEM_GROUP_PREFIX, is_internal_topic

_SYSTEM_GROUPS: Final = frozenset(
    {
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "CLIENT_INNER_PRODUCER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_P_GROUP",
        "TOOLS_CONSUMER",
        "pocketmq_pull",
        "__MONITOR_CONSUMER",
    }
)
_SYSTEM_PREFIXES: Final = (SYSTEM_GROUP_PREFIX, "CID_ONS")


def is_users_group(group: str) -> bool:
    """Return whether a group is not a system group of brokers or tools."""
    return not (group in _SYSTEM_GROUPS or group.startswith(_SYSTEM_PREFIXES))


async def users_topics(admin: Admin, *, cluster: str | None = None) -> list[str]:
    """Return the topics without system, retry and dead-letter topics."""
    info = await admin.cluster_info()
    # Every broker has system topics with its own name and with that of its cluster.
    brokers = {*info.broker_addr_table, *info.cluster_addr_table}
    topics = await admin.topics(cluster=cluster)
    clusters = info.cluster_addr_table.keys()
    return [name for name in topics if not (is_internal_topic(name, clusters) or name in brokers)]
