"""Which queues of a topic a client of a group reads, as the broker shares them out. No I/O.

In POP mode every client may take messages of every queue: it is told the queue -1 of each broker,
unless the mode says with how many others a client shares its queues. Reference:
QueryAssignmentProcessor, AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from pocketmq.message.message import MessageQueue

ANY_QUEUE: Final = -1

#: All queues, and a client's place among so many; gives the client's queues.
Strategy: TypeAlias = Callable[[Sequence[MessageQueue], int, int], list[MessageQueue]]


def averagely(queues: Sequence[MessageQueue], index: int, clients: int) -> list[MessageQueue]:
    """Give each client a run of queues; the first ones get one more if they do not divide."""
    size, more = divmod(len(queues), clients)
    begin = index * size + min(index, more)
    return list(queues[begin : begin + size + (index < more)])


def averagely_by_circle(
    queues: Sequence[MessageQueue], index: int, clients: int
) -> list[MessageQueue]:
    """Deal the queues out like cards."""
    return list(queues[index::clients])


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": averagely_by_circle,
}


def assigned_for_pull(
    strategy: Strategy, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
) -> list[MessageQueue]:
    """Return the queues of a client that pulls; both lists are sorted."""
    if client not in clients:
        return []
    return strategy(queues, clients.index(client), len(clients))


def assigned_for_pop(
    strategy: Strategy,
    queues: Sequence[MessageQueue],
    clients: Sequence[str],
    client: str,
    shared_with: int,
) -> list[MessageQueue]:
    """Return the queues of a client that pops, which shares them with so many others (all of them
    with 0 or less); both lists are sorted."""
    if shared_with <= 0 or shared_with >= len(clients) - 1:
        places = dict.fromkeys((queue.topic, queue.broker_name) for queue in queues)
        return [MessageQueue(topic, broker, ANY_QUEUE) for topic, broker in places]
    if client not in clients:
        return []
    index = clients.index(client)
    if len(clients) > len(queues):
        return [queues[index % len(queues)]] if queues else []
    found: dict[MessageQueue, None] = {}
    for n in range(shared_with + 1):
        found |= dict.fromkeys(strategy(queues, (index + n) % len(clients), len(clients)))
    return list(found)
