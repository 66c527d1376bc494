"""The log of a producer's outages: one warning when an outage begins, one line when it ends.

Single sends are not logged: many may wait for the same broker, and their callers get the errors.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from pocketmq.client.errors import RemotingConnectError
from pocketmq.client.log_fields import fields
from pocketmq.message.message import MessageQueue

log = logging.getLogger(__name__)

#: The most brokers that are remembered as unreachable; the oldest are forgotten.
MOST_AWAY = 1000


class OutageLog:
    """The brokers that one producer cannot connect to; `clock` returns seconds.

    `broker_at` returns the name of the broker at an address, if a route has it
    (`RouteTable.broker_at`).
    """

    def __init__(
        self,
        group: str,
        broker_at: Callable[[str], str | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._broker_at = broker_at
        self._clock = clock
        #: Address → since when.
        self._away: dict[str, float] = {}

    def away(self, address: str, error: RemotingConnectError) -> None:
        """Record that connecting to a broker failed."""
        if address in self._away:
            return
        if len(self._away) >= MOST_AWAY:
            del self._away[next(iter(self._away))]
        self._away[address] = self._clock()
        log.warning(
            "producer group %s cannot connect to %s; trying again while sends wait for it: %s",
            self._group,
            self._named(address),
            error.remark,
            extra=fields(error, group=self._group, broker=address),
        )

    def connected(self, address: str) -> None:
        """Record that a broker is connected."""
        since = self._away.pop(address, None)
        if since is not None:
            log.info(
                "producer group %s is connected to %s again after %.1f s",
                self._group,
                self._named(address),
                self._clock() - since,
                extra=fields(group=self._group, broker=address),
            )

    def _named(self, address: str) -> str:
        name = self._broker_at(address)
        return f"the broker at {address}" if name is None else f"broker {name} at {address}"


class Loss(msgspec.Struct):
    """Since when messages of a topic were not stored, clock seconds, and how many."""

    began: float
    count: int = 0


class LostPosts:
    """The posted messages of one producer that were not stored. They are logged because their
    results may never be awaited. `clock` returns seconds."""

    def __init__(self, group: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._group = group
        self._clock = clock
        #: Topic → losses since one of its messages was last stored.
        self.known: dict[str, Loss] = {}

    def failed(
        self, topic: str, count: int, error: BaseException, queue: MessageQueue | None = None
    ) -> None:
        """Record that `count` messages whose results nobody awaits were not stored."""
        loss = self.known.get(topic)
        if loss is None:
            loss = self.known[topic] = Loss(self._clock())
            log.warning(
                "producer group %s, topic %s: %s not stored, and nobody waits for the result; "
                "further ones are only counted until a message is stored again: %s",
                self._group,
                topic,
                counted(count),
                error,
                extra=fields(
                    error, group=self._group, topic=topic, queue_id=queue and queue.queue_id
                ),
            )
        loss.count += count

    def stored(self, topic: str) -> None:
        """Record that a message of the topic was stored."""
        loss = self.known.pop(topic, None)
        if loss is not None:
            log.info(
                "producer group %s, topic %s: messages are stored again after %.1f s; %s not",
                self._group,
                topic,
                self._clock() - loss.began,
                counted(loss.count),
                extra=fields(group=self._group, topic=topic),
            )

    def end(self) -> None:
        """Log, at the end of the producer, the losses that no stored message has followed."""
        for topic, loss in self.known.items():
            log.warning(
                "producer group %s, topic %s: %s not stored in the %.1f s before the shutdown",
                self._group,
                topic,
                counted(loss.count),
                self._clock() - loss.began,
                extra=fields(group=self._group, topic=topic),
            )
        self.known.clear()


def counted(count: int) -> str:
    """Return the number of messages, as the subject of a sentence."""
    return "1 posted message was" if count == 1 else f"{count} posted messages were"
