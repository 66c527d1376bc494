"""The administration client: all operations of an administrator on a cluster.

    async with Admin(namesrv="127.0.0.1:9876") as admin:
        await admin.create_topic("orders", queues=8)
        print(await admin.lag("shop"))

| module | operations on |
|---|---|
| client.admin.topics | clusters, topics, their routes and stats |
| client.admin.groups | consumer groups, connected clients, progress and lag |
| client.admin.offsets | offsets of queues and groups, resets |
| client.admin.messages | single messages by key, id, or queue offset |
| client.admin.configs | KV config, configuration and runtime figures of the servers |

Reference: DefaultMQAdminExt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from pocketmq.client.admin.configs import ConfigAdmin
from pocketmq.client.admin.groups import GroupAdmin
from pocketmq.client.admin.messages import MessageAdmin
from pocketmq.client.admin.offsets import OffsetAdmin
from pocketmq.client.admin.topics import TopicAdmin
from pocketmq.client.instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.offsets import QueueOffsets
from pocketmq.client.options import ClientOptions, check_options
from pocketmq.client.parameters import Seconds, seconds


class Admin(TopicAdmin, GroupAdmin, OffsetAdmin, MessageAdmin, ConfigAdmin):
    """Queries and changes a cluster.

    `namesrv`: "host:port;host:port" or a list; by default the environment's NAMESRV_ADDR.
    `timeout`: seconds for each request. `options`: those of every client (`client.options`); with a
    namespace, topics and groups are those of the namespace. Every method raises NotRunning outside
    `async with` (or `start` and `shutdown`), and otherwise the errors of `pocketmq.client.errors`.
    """

    def __init__(
        self,
        *,
        namesrv: str | Sequence[str] | None = None,
        timeout: Seconds = 5.0,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_options(type(self), options)
        self.timeout = seconds("timeout", timeout)
        self._instance = ClientInstance(namesrv, owner="admin", **options)
        self._namespace = self._instance.namespace
        self._life = Lifecycle(self._instance.start, _nothing, self._instance.shutdown)
        self._offsets = QueueOffsets(self._instance)


async def _nothing() -> None:
    """An Admin has nothing to start or stop except its instance."""
