"""Topics: create, change, delete, list; their configuration, statistics and consumer groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pocketmq.client.admin.servers import Servers, read_answers
from pocketmq.client.errors import InvalidParameter, TopicNotExist
from pocketmq.client.parameters import MOST_INT, flag, text, texts, texts_by_name, whole
from pocketmq.client.validation import check_topic_name
from pocketmq.message.limits import TBW102
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.table import GroupList
from pocketmq.remoting.bodies.topic import (
    UNREADABLE_QUEUES,
    DeleteTopicListRequestBody,
    TopicList,
    TopicStatsTable,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    GetTopicsByClusterRequestHeader,
)
from pocketmq.remoting.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)


class TopicAdmin(Servers):
    """Admin's methods for topics."""

    async def topics(self, *, cluster: str | None = None) -> list[str]:
        """Return the names of all topics, or of those of one cluster, sorted; including system
        topics and all namespaces."""
        if cluster is None:
            answer = await self._ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            header = GetTopicsByClusterRequestHeader(cluster=text("cluster", cluster))
            answer = await self._ask(RequestCode.GET_TOPICS_BY_CLUSTER, header)
        return await read_answers(_names, [answer])

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
        if_not_exists: bool = False,
        allow_shrink: bool = False,
    ) -> list[str]:
        """Create or change a topic on one `broker`, on every master of `cluster`, or on every
        master.

        `queues`: per broker, for writing and, unless `read_queues` is given, for reading. `perm`:
        4 (read) + 2 (write). `attributes` are added. Return the names of the brokers. To stop sends
        or reads, remove the permission: a topic has at least one queue.

        With `if_not_exists`, brokers that have the topic do not change it and are not returned: an
        application may call this at each start. Messages in queues that a topic loses can no longer
        be read, so reducing the queues for reading needs `allow_shrink`. Without it, reduce
        `queues` and keep `read_queues`, so that consumers can empty the other queues first.

        Raises:
            BrokerNotFound: there is no such broker or cluster.
            InvalidParameter: the topic would have fewer queues for reading; nothing was changed.
            ValueError: a number is out of range.
        """
        check_topic_name(topic)
        whole("queues", queues, 1, MOST_INT)
        if read_queues is not None:
            whole("read_queues", read_queues, 1, MOST_INT)
        added = {} if attributes is None else texts_by_name("attributes", attributes)
        header = CreateTopicRequestHeader(
            topic=self._namespace.wrap(topic),
            default_topic=TBW102,
            read_queue_nums=queues if read_queues is None else read_queues,
            write_queue_nums=queues,
            perm=whole("perm", perm, 0, 7),
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=flag("order", order),
            attributes=",".join(f"+{name}={value}" for name, value in added.items()),
        )
        flag("if_not_exists", if_not_exists)
        flag("allow_shrink", allow_shrink)
        masters = await self._masters(cluster, broker)
        if if_not_exists:
            for name in await self._configs(masters, header.topic):
                del masters[name]
        elif not allow_shrink:
            for name, config in (await self._configs(masters, header.topic)).items():
                if header.read_queue_nums < config.read_queue_nums:
                    raise InvalidParameter(
                        f"topic {topic} has {config.read_queue_nums} queues to read: with "
                        f"{header.read_queue_nums}, the messages in the others could not be read. "
                        "Set allow_shrink=True (--allow-shrink) to shrink it anyway",
                        name,
                    )
        return list(await self._each(masters, RequestCode.UPDATE_AND_CREATE_TOPIC, header))

    async def _configs(self, masters: dict[str, str], topic: str) -> dict[str, TopicConfig]:
        """Return the topic's configuration on those of the masters that have it."""
        try:
            answers = await self._each(
                masters,
                RequestCode.GET_TOPIC_CONFIG,
                GetTopicConfigRequestHeader(topic=topic),
                absent=ResponseCode.TOPIC_NOT_EXIST,
            )
        except TopicNotExist:
            return {}
        return {name: TopicConfig.decode(answer.body) for name, answer in answers.items()}

    async def unreadable_queues(self, topic: str) -> dict[MessageQueue, int]:
        """Return the number of messages in queues that a topic lost when its queues for reading
        were reduced. They cannot be read until it has more again. Official brokers do not report
        this. Raises TopicNotExist."""
        answers = await self._each(
            await self._masters_of(topic),
            RequestCode.GET_TOPIC_STATS_INFO,
            GetTopicStatsInfoRequestHeader(topic=self._namespace.wrap(topic)),
        )
        return {
            MessageQueue(topic, name, int(queue_id)): int(messages)
            for name, answer in answers.items()
            for entry in filter(None, answer.ext_fields.get(UNREADABLE_QUEUES, "").split(","))
            for queue_id, _, messages in (entry.partition(":"),)
        }

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic from every master of `cluster` (by default of all clusters) and from the
        name servers.

        No error if it does not exist.
        """
        check_topic_name(topic)
        topic = self._namespace.wrap(topic)
        await self._delete_at(await self._masters(cluster), topic)
        await self._forget_topic(topic, cluster)

    async def delete_topics(self, topics: Iterable[str], *, cluster: str | None = None) -> None:
        """Delete topics from every master of `cluster` (by default of all clusters) and from the
        name servers. Topics that do not exist are ignored.

        Brokers get lists of topics, of which one deletes all or none, at a limited rate
        (`batchDeleteTopicMaxRate`, 10 a second). Official brokers before 5.5.1 get them one by one.
        An error ends the deletion: the topics before it are deleted.
        """
        wanted = texts("topics", topics)
        for topic in wanted:
            check_topic_name(topic)
        names = [self._namespace.wrap(topic) for topic in wanted]
        masters = await self._masters(cluster)
        for some in self._lists(names):
            body = DeleteTopicListRequestBody(topic_list=some).encode()
            code = RequestCode.DELETE_TOPIC_IN_BROKER_LIST
            older = await self._each_list(masters, code, body)
            for topic in some:
                await self._delete_at(older, topic)
                await self._forget_topic(topic, cluster)

    async def _delete_at(self, masters: dict[str, str], topic: str) -> None:
        header = DeleteTopicRequestHeader(topic=topic)
        await self._each(masters, RequestCode.DELETE_TOPIC_IN_BROKER, header)

    async def _forget_topic(self, topic: str, cluster: str | None) -> None:
        await self._tell(
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster),
        )

    async def topic_configs(self, topic: str) -> dict[str, TopicConfig]:
        """Return a topic's configuration on each broker that has it; raises TopicNotExist."""
        header = GetTopicConfigRequestHeader(topic=self._topic(topic))
        answers = await self._each(
            await self._masters(),
            RequestCode.GET_TOPIC_CONFIG,
            header,
            absent=ResponseCode.TOPIC_NOT_EXIST,
        )
        return {name: TopicConfig.decode(answer.body) for name, answer in answers.items()}

    async def topic_stats(self, topic: str) -> TopicStatsTable:
        """Return the bounds of every queue and the time of its newest message, and how many
        messages the topic gets per second, of all brokers; raises TopicNotExist."""
        answers = await self._each(
            await self._masters_of(topic),
            RequestCode.GET_TOPIC_STATS_INFO,
            GetTopicStatsInfoRequestHeader(topic=self._namespace.wrap(topic)),
        )

        def read(bodies: Iterable[bytes | memoryview]) -> TopicStatsTable:
            parts = [TopicStatsTable.decode(body) for body in bodies]
            return TopicStatsTable(
                topic_put_tps=sum((part.topic_put_tps for part in parts), 0.0),
                offset_table=self._by_queue(part.offset_table for part in parts),
            )

        return await read_answers(read, answers.values())

    async def groups_of_topic(self, topic: str) -> list[str]:
        """Return the consumer groups that have an offset in a topic, sorted; pocketmq brokers also
        list groups that read it now. Raises TopicNotExist."""
        answers = await self._each(
            await self._masters_of(topic),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            QueryTopicConsumeByWhoRequestHeader(topic=self._namespace.wrap(topic)),
        )
        groups = {
            self._namespace.unwrap(group)
            for answer in answers.values()
            for group in GroupList.decode(answer.body).group_list
        }
        # The official broker lists the topic itself instead of the connected groups.
        return sorted(groups - {topic})


def _names(bodies: Iterable[bytes | memoryview]) -> list[str]:
    return sorted(name for body in bodies for name in TopicList.decode(body).topic_list)
