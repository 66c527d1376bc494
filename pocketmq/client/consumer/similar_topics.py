"""Suggestions for a misspelt topic name."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable

from pocketmq.client.errors import RemotingError
from pocketmq.client.instance import ClientInstance
from pocketmq.message.limits import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from pocketmq.remoting.bodies.topic import TopicList
from pocketmq.remoting.codes import RequestCode

#: The most suggestions.
MOST = 3
#: Names whose lengths differ by more than this are not compared.
LENGTH_DIFFERENCE = 4


async def similar_topics(instance: ClientInstance, topic: str) -> list[str]:
    """Return the topics with the most similar names, by the application's names.

    The list is empty if the name servers refuse the request, for example if the user may not list
    topics.
    """
    try:
        answer = await instance.name_servers.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        every = TopicList.decode(answer.body).topic_list
    except RemotingError:
        return []
    namespace = instance.namespace
    own = (
        namespace.unwrap(name)
        for name in every
        if namespace.wrap(namespace.unwrap(name)) == name
        and not (name.startswith((RETRY_PREFIX, DLQ_PREFIX)) or is_system_topic(name))
    )
    # In a thread: thousands of names take a while.
    return await asyncio.to_thread(most_alike, namespace.unwrap(topic), list(own))


def most_alike(wanted: str, names: Iterable[str]) -> list[str]:
    """Return the names that are most similar to the wanted one, the most similar first."""
    by_folded = {
        name.casefold(): name for name in names if abs(len(name) - len(wanted)) <= LENGTH_DIFFERENCE
    }
    near = difflib.get_close_matches(wanted.casefold(), by_folded, n=MOST)
    return [by_folded[folded] for folded in near]
