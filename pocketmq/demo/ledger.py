"""Compares acknowledged with pulled messages, by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from pocketmq.client.send_result import SendResult
from pocketmq.message.message import MessageExt


class Place(NamedTuple):
    """Where a message is stored."""

    broker_name: str
    queue_id: int
    queue_offset: int


class Audit(NamedTuple):
    """The comparison.

    `lost`: acknowledged places where nothing was pulled, or another message. `twice`: places
    pulled more than once. `unacknowledged`: pulled, but their answer never came (their broker
    was killed between storing and answering, so the producer sent them again elsewhere).
    """

    acknowledged: int
    pulled: int
    lost: int
    twice: int
    unacknowledged: int

    @property
    def exact(self) -> bool:
        """Whether every acknowledged message was pulled once, and nothing came twice."""
        return not self.lost and not self.twice


class Ledger:
    """Records of one topic: unique ids by position, of sent and of pulled messages."""

    def __init__(self) -> None:
        self._sent: dict[Place, str] = {}
        self._pulled: dict[Place, str] = {}
        self._twice = 0
        self._open = 0
        self.by_tag: Counter[str] = Counter()

    @property
    def acknowledged(self) -> int:
        """The number of messages whose send was acknowledged."""
        return len(self._sent)

    @property
    def pulled(self) -> int:
        """The number of positions pulled."""
        return len(self._pulled)

    @property
    def acknowledged_by_broker(self) -> Counter[str]:
        """Acknowledged messages of each broker."""
        return Counter(place.broker_name for place in self._sent)

    @property
    def settled(self) -> bool:
        """Whether a message was pulled from every acknowledged position."""
        return not self._open

    def acknowledge(self, results: Iterable[SendResult]) -> None:
        """Record acknowledged sends."""
        for result in results:
            queue = result.queue
            place = Place(queue.broker_name, queue.queue_id, result.queue_offset)
            self._sent[place] = result.msg_id
            if place not in self._pulled:
                self._open += 1

    def pull(self, messages: Iterable[MessageExt]) -> None:
        """Record pulled messages, which may arrive before their acknowledgement."""
        for message in messages:
            place = Place(message.broker_name, message.queue_id, message.queue_offset)
            if place in self._pulled:
                self._twice += 1
                continue
            self._pulled[place] = message.msg_id
            self.by_tag[message.tags or ""] += 1
            if place in self._sent:
                self._open -= 1

    def audit(self) -> Audit:
        """Compare the records."""
        lost = sum(self._pulled.get(place) != msg_id for place, msg_id in self._sent.items())
        return Audit(
            acknowledged=len(self._sent),
            pulled=len(self._pulled),
            lost=lost,
            twice=self._twice,
            unacknowledged=sum(place not in self._sent for place in self._pulled),
        )
