"""Strategies that divide the queues of a topic among the clients of a group.

Every client computes the same division from the same two lists, without a server. So all clients of
a group, including Java clients, must use the same strategy. A strategy is called with all queues of
one topic, the client ids of the group, and the client's own id, which is one of them; both lists
are sorted. Reference: AllocateMessageQueueStrategy and its implementations.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias, TypeVar

from pocketmq.message.message import MessageQueue

_T = TypeVar("_T")

Strategy: TypeAlias = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]


def average(
    queues: Sequence[MessageQueue], client_ids: Sequence[str], own: str
) -> list[MessageQueue]:
    """Assign consecutive queues in equal shares; the first clients get one more
    (AllocateMessageQueueAveragely)."""
    index = client_ids.index(own)
    least, extra = divmod(len(queues), len(client_ids))
    start = index * least + min(index, extra)
    return list(queues[start : start + least + (index < extra)])


def circle(
    queues: Sequence[MessageQueue], client_ids: Sequence[str], own: str
) -> list[MessageQueue]:
    """Assign queues one by one in a circle (AllocateMessageQueueAveragelyByCircle)."""
    return list(queues[client_ids.index(own) :: len(client_ids)])


class ConsistentHash:
    """Moves few queues when a client joins or leaves (AllocateMessageQueueConsistentHash).

    Each client has `virtual_nodes` nodes on a ring, at the first four bytes of an MD5 hash; a queue
    belongs to the client of the next node. Raises ValueError for fewer than one node.
    """

    def __init__(self, virtual_nodes: int = 10) -> None:
        if virtual_nodes < 1:
            raise ValueError(f"a client needs at least one place on the ring, not {virtual_nodes}")
        self._virtual_nodes = virtual_nodes

    def __call__(
        self, queues: Sequence[MessageQueue], client_ids: Sequence[str], own: str
    ) -> list[MessageQueue]:
        ring: dict[int, str] = {}
        for client_id in client_ids:
            for number in range(self._virtual_nodes):
                ring[_place(f"{client_id}-{number}")] = client_id
        places = sorted(ring)
        return [
            queue
            for queue in queues
            if ring[places[bisect_left(places, _place(_java_text(queue))) % len(places)]] == own
        ]


def _place(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _java_text(queue: MessageQueue) -> str:
    """Return Java's `toString` of a queue, whose hash is its position on the ring."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


class ByMachineRoom:
    """Assigns only queues of brokers in given rooms, equally (AllocateMessageQueueByMachineRoom).

    The room is part of the broker name, `room@broker`. The remaining queues go to the first
    clients, one each.
    """

    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = frozenset(rooms)

    def __call__(
        self, queues: Sequence[MessageQueue], client_ids: Sequence[str], own: str
    ) -> list[MessageQueue]:
        near = [queue for queue in queues if self._is_near(queue.broker_name)]
        index = client_ids.index(own)
        share, left_over = divmod(len(near), len(client_ids))
        chosen = near[share * index : share * (index + 1)]
        if index < left_over:
            chosen.append(near[share * len(client_ids) + index])
        return chosen

    def _is_near(self, broker_name: str) -> bool:
        parts = broker_name.split("@")
        return len(parts) == 2 and parts[0] in self._rooms


class NearbyMachineRoom:
    """Assigns the queues of each room to the clients in it, and those of a room without clients to
    all (AllocateMachineRoomNearby).

    `strategy` divides within a room; `broker_room` and `client_room` return the room of a queue's
    broker and of a client id.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        broker_room: Callable[[MessageQueue], str],
        client_room: Callable[[str], str],
    ) -> None:
        self._strategy = strategy
        self._broker_room = broker_room
        self._client_room = client_room

    def __call__(
        self, queues: Sequence[MessageQueue], client_ids: Sequence[str], own: str
    ) -> list[MessageQueue]:
        queues_in = _grouped(queues, self._broker_room)
        clients_in = _grouped(client_ids, self._client_room)
        own_room = self._client_room(own)
        chosen: list[MessageQueue] = []
        for room, in_room in queues_in.items():
            if room == own_room:
                chosen += self._strategy(in_room, clients_in[room], own)
            elif room not in clients_in:
                chosen += self._strategy(in_room, client_ids, own)
        return chosen


def _grouped(items: Iterable[_T], room: Callable[[_T], str]) -> dict[str, list[_T]]:
    groups: dict[str, list[_T]] = {}
    for item in items:
        groups.setdefault(room(item), []).append(item)
    return groups


class ByConfig:
    """Assigns exactly the given queues, as far as the topic has them
    (AllocateMessageQueueByConfig)."""

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = frozenset(queues)

    def __call__(
        self, queues: Sequence[MessageQueue], client_ids: Sequence[str], own: str
    ) -> list[MessageQueue]:
        return [queue for queue in queues if queue in self._queues]
