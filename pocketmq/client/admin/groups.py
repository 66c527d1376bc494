"""Consumer groups: create, change, delete, list; connected clients, progress and lag."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pocketmq.client.admin.servers import Servers, read_answers
from pocketmq.client.errors import RemoteSystemError, SubscriptionGroupNotExist
from pocketmq.client.parameters import flag, instance, text, texts
from pocketmq.client.validation import consumer_group
from pocketmq.remoting.bodies.consumer import (
    Connection,
    ConsumerConnection,
    ConsumeStats,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from pocketmq.remoting.bodies.running_info import ConsumerRunningInfo
from pocketmq.remoting.bodies.subscription_group import (
    DeleteSubscriptionGroupListRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from pocketmq.remoting.bodies.topic import TopicList
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from pocketmq.remoting.headers.client import GetConsumerRunningInfoRequestHeader


class GroupAdmin(Servers):
    """Admin's methods for groups."""

    async def groups(self, *, cluster: str | None = None) -> dict[str, SubscriptionGroupConfig]:
        """Return the configured consumer groups by name, including system groups and all
        namespaces. If brokers have different configurations, that of the first broker is used."""
        answers = await self._each(
            await self._masters(cluster), RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        )
        return await read_answers(_configs, answers.values())

    async def create_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        config: SubscriptionGroupConfig | None = None,
    ) -> list[str]:
        """Create or change a consumer group on every master of `cluster`, or on one `broker`.

        `config`: the group's settings; its group_name is ignored. Return the names of the brokers.
        """
        name = self._namespace.wrap(consumer_group(group))
        if config is not None:
            instance("config", config, SubscriptionGroupConfig)
        named = msgspec.structs.replace(config or SubscriptionGroupConfig(), group_name=name)
        answers = await self._each(
            await self._masters(cluster, broker),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            body=named.encode(),
        )
        return list(answers)

    async def delete_group(
        self, group: str, *, cluster: str | None = None, clean_offsets: bool = False
    ) -> None:
        """Delete a consumer group on every master of `cluster` (by default of all clusters), with
        its offsets if `clean_offsets`; no error if it does not exist."""
        header = DeleteSubscriptionGroupRequestHeader(
            group_name=self._namespace.wrap(consumer_group(group)),
            clean_offset=flag("clean_offsets", clean_offsets),
        )
        await self._each(await self._masters(cluster), RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def delete_groups(
        self, groups: Iterable[str], *, cluster: str | None = None, clean_offsets: bool = False
    ) -> None:
        """Delete consumer groups on every master of `cluster` (by default of all clusters), with
        their offsets if `clean_offsets`. Groups that do not exist are ignored.

        Brokers get lists of groups, of which one deletes all or none, at a limited rate
        (`batchDeleteSubscriptionGroupMaxRate`, 10 a second). Official brokers before 5.5.1 get them
        one by one. An error ends the deletion: the groups before it are deleted.
        """
        flag("clean_offsets", clean_offsets)
        names = [self._namespace.wrap(consumer_group(group)) for group in texts("groups", groups)]
        masters = await self._masters(cluster)
        for some in self._lists(names):
            body = DeleteSubscriptionGroupListRequestBody(
                group_name_list=some, clean_offset=clean_offsets
            ).encode()
            code = RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST
            older = await self._each_list(masters, code, body)
            for group in some:
                header = DeleteSubscriptionGroupRequestHeader(
                    group_name=group, clean_offset=clean_offsets
                )
                await self._each(older, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def consumers(self, group: str) -> ConsumerConnection:
        """Return the clients of a group that are connected to any broker, and the group's
        subscriptions; raises ConsumerNotOnline if no client is connected."""
        header = GetConsumerConnectionListRequestHeader(
            consumer_group=self._namespace.wrap(consumer_group(group))
        )
        answers = await self._each(
            await self._masters(),
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            header,
            absent=ResponseCode.CONSUMER_NOT_ONLINE,
        )
        parts = [ConsumerConnection.decode(answer.body) for answer in answers.values()]
        found = parts[0]
        found.connection_set = _by_client([c for part in parts for c in part.connection_set])
        for part in parts[1:]:
            found.subscription_table |= part.subscription_table
        return found

    async def producers(self, group: str) -> list[Connection]:
        """Return the connected producers of a group; none for an unknown group."""
        header = GetProducerConnectionListRequestHeader(
            producer_group=self._namespace.wrap(text("group", group))
        )
        try:
            answers = await self._each(
                await self._masters(),
                RequestCode.GET_PRODUCER_CONNECTION_LIST,
                header,
                absent=ResponseCode.SYSTEM_ERROR,
            )
        except RemoteSystemError as error:
            if "not exist" not in error.remark:
                raise
            return []
        parts = [ProducerConnection.decode(answer.body) for answer in answers.values()]
        return _by_client([c for part in parts for c in part.connection_set])

    async def producer_groups(self) -> dict[str, list[ProducerInfo]]:
        """Return every producer group with its clients that are connected to any broker."""
        answers = await self._each(await self._masters(), RequestCode.GET_ALL_PRODUCER_INFO)
        found: dict[str, dict[str, ProducerInfo]] = {}
        for answer in answers.values():
            for group, producers in ProducerTableInfo.decode(answer.body).data.items():
                clients = found.setdefault(self._namespace.unwrap(group), {})
                clients |= {producer.client_id: producer for producer in producers}
        return {
            group: [clients[client_id] for client_id in sorted(clients)]
            for group, clients in sorted(found.items())
        }

    async def running_info(self, group: str, client_id: str) -> ConsumerRunningInfo:
        """Return the state that a connected consumer reports; raises ConsumerNotOnline,
        RemoteSystemError."""
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=self._namespace.wrap(consumer_group(group)),
            client_id=text("client_id", client_id),
        )
        answers = await self._each(
            await self._masters(),
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            header,
            absent=ResponseCode.SYSTEM_ERROR,
        )
        return ConsumerRunningInfo.decode(next(iter(answers.values())).body)

    async def topics_of_group(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets, sorted."""
        header = QueryTopicsByConsumerRequestHeader(
            group=self._namespace.wrap(consumer_group(group))
        )
        answers = await self._each(
            await self._masters(), RequestCode.QUERY_TOPICS_BY_CONSUMER, header
        )
        names = {n for answer in answers.values() for n in TopicList.decode(answer.body).topic_list}
        return sorted(map(self._namespace.unwrap, names))

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Return a group's offsets in every queue of a topic, or of all topics in which it has
        offsets, and how many messages it consumes per second, of all brokers."""
        header = GetConsumeStatsRequestHeader(
            consumer_group=self._namespace.wrap(consumer_group(group)),
            topic=None if topic is None else self._topic(topic),
        )
        masters = await (self._masters() if topic is None else self._masters_of(topic))
        answers = await self._each(masters, RequestCode.GET_CONSUME_STATS, header)

        def read(bodies: Iterable[bytes | memoryview]) -> ConsumeStats:
            parts = [ConsumeStats.decode(body) for body in bodies]
            return ConsumeStats(
                consume_tps=sum((part.consume_tps for part in parts), 0.0),
                offset_table=self._by_queue(part.offset_table for part in parts),
            )

        return await read_answers(read, answers.values())

    async def lag(self, group: str, topic: str | None = None) -> int:
        """Return how many stored messages a group has not consumed yet, in one topic or in all.

        Raises:
            SubscriptionGroupNotExist: no broker knows the group.
            TopicNotExist: the topic does not exist.
        """
        name = self._namespace.wrap(consumer_group(group))
        if topic is not None:
            text("topic", topic)
        if name not in await self.groups():
            raise SubscriptionGroupNotExist(f"no broker has a consumer group {group!r}")
        return (await self.consume_stats(group, topic)).lag


def _by_client(connections: list[Connection]) -> list[Connection]:
    """Return each client once, sorted by id: a client may be connected to several brokers."""
    found = {connection.client_id: connection for connection in connections}
    return [found[client_id] for client_id in sorted(found)]


def _configs(bodies: Iterable[bytes | memoryview]) -> dict[str, SubscriptionGroupConfig]:
    found: dict[str, SubscriptionGroupConfig] = {}
    for wrapper in map(SubscriptionGroupWrapper.decode, bodies):
        found = wrapper.subscription_group_table | found
    return dict(sorted(found.items()))
