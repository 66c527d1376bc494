"""Assigns the queues of a topic to the clients of a group. No I/O.

In POP mode, every client may pop from every queue: it is assigned queue -1 of each broker, unless
the mode limits the number of clients that share a queue. Reference:
QueryAssignmentProcessor, AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from pocketmq.message.message import MessageQueue

ANY_QUEUE: Final = -1

#: Takes all queues, a client's index and the number of clients; returns the client's queues.
Strategy: TypeAlias = Callable[[Sequence[MessageQueue], int, int], list[MessageQueue]]


def averagely(queues: Sequence[MessageQueue], index: int, clients: int) -> list[MessageQueue]:
    """Assign consecutive queues to each client; the first clients get one more if there is a
    remainder."""
    size, more = divmod(len(queues), clients)
    begin = index * size + min(index, more)
    return list(queues[begin : begin + size + (index < more)])


def averagely_by_circle(
    queues: Sequence[MessageQueue], index: int, clients: int
) -> list[MessageQueue]:
    """Assign the queues to the clients in turn."""
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
    """Return the queues of a client that pops and shares them with `shared_with` other clients (0
    or less: with all); both lists are sorted."""
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
