"""Topics and groups that brokers and tools keep for themselves; lists leave them out."""

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
    """Whether neither brokers nor tools keep this group for themselves."""
    return not (group in _SYSTEM_GROUPS or group.startswith(_SYSTEM_PREFIXES))


async def users_topics(admin: Admin, *, cluster: str | None = None) -> list[str]:
    """The topics without those that brokers keep for themselves, retries and dead letters."""
    info = await admin.cluster_info()
    # Brokers have a topic of their own name, and one of their cluster's.
    brokers = {*info.broker_addr_table, *info.cluster_addr_table}
    topics = await admin.topics(cluster=cluster)
    clusters = info.cluster_addr_table.keys()
    return [name for name in topics if not (is_internal_topic(name, clusters) or name in brokers)]
