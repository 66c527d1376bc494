"""Administration: topics, routes, offsets and KV config of a cluster.

    async with Admin(namesrv="127.0.0.1:9876") as admin:
        await admin.create_topic("orders", queues=8)

Requests that change topics go to the master of every broker group concerned; requests that change
name servers go to each of them. Reference: DefaultMQAdminExt; spec 2.2, 2.7, 2.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from client.consumer.offset_store import RemoteOffsetStore
from client.errors import BrokerNotFound, RemotingError
from client.instance import ClientInstance
from client.offsets import QueueOffsets, milliseconds
from client.route import MASTER_ID
from client.validation import check_topic_name, consumer_group
from message.limits import TBW102
from message.message import MessageQueue
from remoting.bodies.cluster import ClusterInfo
from remoting.bodies.route import TopicRouteData
from remoting.bodies.table import KVTable
from remoting.bodies.topic import TopicList
from remoting.codes import RequestCode, ResponseCode
from remoting.frame import Command
from remoting.headers.base import Header
from remoting.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    PutKVConfigRequestHeader,
)
from remoting.headers.topic import CreateTopicRequestHeader, DeleteTopicRequestHeader

__all__ = ["Admin"]


class Admin:
    """Asks and changes a cluster.

    `namesrv`: "host:port;host:port" or a list; default the environment's NAMESRV_ADDR. `timeout`:
    seconds for each request. Every method raises NotRunning outside `async with` (or `start` and
    `shutdown`), and otherwise the errors of client.errors.
    """

    def __init__(
        self,
        *,
        namesrv: str | Sequence[str] | None = None,
        timeout: float = 5.0,
        instance_name: str = "DEFAULT",
    ) -> None:
        self.timeout = timeout
        self._instance = ClientInstance(namesrv, instance_name=instance_name)
        self._offsets = QueueOffsets(self._instance)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.shutdown()

    async def start(self) -> None:
        """Begin; may be called again without effect."""
        await self._instance.start()

    async def shutdown(self) -> None:
        """Close every connection; may be called again without effect."""
        await self._instance.shutdown()

    # Clusters and topics

    async def cluster_info(self) -> ClusterInfo:
        """The broker groups with their addresses, and which cluster they belong to."""
        answer = await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(answer.body)

    async def topics(self) -> list[str]:
        """The names of all topics, sorted, system topics included."""
        answer = await self._ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(TopicList.decode(answer.body).topic_list)

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Where a topic's queues are; raises TopicNotExist."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        answer = await self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return TopicRouteData.decode(answer.body)

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        perm: int = 6,
        cluster: str | None = None,
        broker: str | None = None,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Create a topic, or change it, on every master of `cluster`, or on one `broker` only.

        `queues` on each broker (`read_queues` where they differ); `perm`: 4 read + 2 write;
        `attributes` are added. Without a cluster or broker, on every master there is. Returns the
        names of the brokers. Raises BrokerNotFound when no broker is concerned.
        """
        check_topic_name(topic)
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=TBW102,
            read_queue_nums=queues if read_queues is None else read_queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=order,
            attributes=",".join(f"+{name}={value}" for name, value in (attributes or {}).items()),
        )
        return await self._tell_masters(
            RequestCode.UPDATE_AND_CREATE_TOPIC, header, cluster, broker
        )

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic from every master of `cluster` (of all clusters) and the name servers."""
        check_topic_name(topic)
        header = DeleteTopicRequestHeader(topic=topic)
        await self._tell_masters(RequestCode.DELETE_TOPIC_IN_BROKER, header, cluster, None)
        await self._tell(
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster),
        )

    # Offsets

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read; none while it does not exist."""
        self._instance.check_running("admin")
        route = await self._instance.routes.for_subscribe(topic, timeout=self.timeout)
        return () if route is None else route.subscribe

    async def min_offset(self, queue: MessageQueue) -> int:
        """The oldest offset still stored; 0 for an unknown queue."""
        self._instance.check_running("admin")
        return await self._offsets.min(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get; 0 for an unknown queue."""
        self._instance.check_running("admin")
        return await self._offsets.max(queue)

    async def offset_at(self, queue: MessageQueue, time: datetime) -> int:
        """The first message stored at or after `time`; the end when there is none."""
        self._instance.check_running("admin")
        return await self._offsets.at_time(queue, milliseconds(time))

    async def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """Store time of the oldest message, ms; None when there is none."""
        self._instance.check_running("admin")
        return await self._offsets.earliest_store_time(queue)

    async def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Where a consumer group stands in a queue; None when it has no stored offset."""
        self._instance.check_running("admin")
        return await RemoteOffsetStore(self._instance, consumer_group(group)).read(queue)

    async def set_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store where a group stands. A running consumer of the group overwrites it with its own;
        the group must exist, else SubscriptionGroupNotExist."""
        self._instance.check_running("admin")
        await RemoteOffsetStore(self._instance, consumer_group(group)).store(queue, offset)

    # KV config of the name servers

    async def config(self, namespace: str) -> dict[str, str]:
        """Every key of a namespace; empty when there is no such namespace."""
        header = GetKVListByNamespaceRequestHeader(namespace=namespace)
        try:
            answer = await self._ask(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        except RemotingError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return {}
            raise
        return KVTable.decode(answer.body).table

    async def get_config(self, namespace: str, key: str) -> str | None:
        """One value; None when there is none."""
        header = GetKVConfigRequestHeader(namespace=namespace, key=key)
        try:
            answer = await self._ask(RequestCode.GET_KV_CONFIG, header)
        except RemotingError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return GetKVConfigResponseHeader.from_ext(answer.ext_fields).value

    async def put_config(self, namespace: str, key: str, value: str) -> None:
        """Set a value at every name server."""
        await self._tell(
            RequestCode.PUT_KV_CONFIG,
            PutKVConfigRequestHeader(namespace=namespace, key=key, value=value),
        )

    async def delete_config(self, namespace: str, key: str) -> None:
        """Remove a value from every name server; it is no error when there is none."""
        await self._tell(
            RequestCode.DELETE_KV_CONFIG,
            DeleteKVConfigRequestHeader(namespace=namespace, key=key),
        )

    async def _ask(self, code: RequestCode, header: Header | None = None) -> Command:
        self._instance.check_running("admin")
        return await self._instance.name_servers.request(code, header, timeout=self.timeout)

    async def _tell(self, code: RequestCode, header: Header) -> None:
        self._instance.check_running("admin")
        await self._instance.name_servers.request_all(code, header, timeout=self.timeout)

    async def _tell_masters(
        self, code: RequestCode, header: Header, cluster: str | None, broker: str | None
    ) -> list[str]:
        """Have the masters of a cluster, of all clusters, or of one broker group do it."""
        info = await self.cluster_info()
        if broker is not None:
            names = {broker}
        elif cluster is not None:
            names = set(info.cluster_addr_table.get(cluster, ()))
        else:
            names = set(info.broker_addr_table)
        masters = {
            name: address
            for name, data in info.broker_addr_table.items()
            if name in names and (address := data.broker_addrs.get(MASTER_ID)) is not None
        }
        if not masters:
            raise BrokerNotFound(broker or (f"any of cluster {cluster}" if cluster else "any"))
        await asyncio.gather(
            *(
                self._instance.request(address, code, header, timeout=self.timeout, broker=name)
                for name, address in masters.items()
            )
        )
        return sorted(masters)
