"""The log of a consumer's outages: one warning when an outage begins, one line when it ends.

When a broker restarts, all requests for all of its queues fail. So the log has the outage of the
broker or, if the broker answers with an error, of one activity.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from pocketmq.client.errors import BrokerNotFound, RemotingError, is_silence
from pocketmq.client.instance import ClientInstance
from pocketmq.client.log_fields import fields

log = logging.getLogger(__name__)


class BrokerOutages:
    """The outages of one consumer's brokers; `clock` returns seconds."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._routes = instance.routes
        self._group = group
        self._clock = clock
        #: Broker, activity and topic (empty: any) → when the outage began.
        self._since: dict[tuple[str, str, str], float] = {}

    def lost(self, address: str) -> None:
        """Record that a connection was lost. Name servers are ignored: `NameServers` logs those
        that do not answer."""
        broker = self._routes.broker_at(address)
        if broker is not None and self._begins(broker):
            log.warning(
                "group %s: the connection to broker %s at %s is lost; connecting again",
                self._group,
                broker,
                address,
                extra=fields(group=self._group, broker=broker),
            )

    def failed(self, broker: str, doing: str, error: RemotingError, topic: str = "") -> None:
        """Record a failure that will be retried; `doing`: the activity, such as "reading" or
        "locking"."""
        away = is_silence(error) or isinstance(error, BrokerNotFound)
        begins = self._begins(broker) if away else self._begins(broker, doing, topic)
        log.log(
            logging.WARNING if begins else logging.DEBUG,
            "group %s: broker %s fails, trying again: %s: %s",
            self._group,
            broker,
            _activity(doing, topic),
            error,
            extra=fields(error, group=self._group, broker=broker, topic=topic or None),
        )

    def answered(self, broker: str, doing: str, topic: str = "") -> None:
        """Record a success."""
        if not self._since:
            return
        for key in ((broker, "", ""), (broker, doing, topic)):
            began = self._since.pop(key, None)
            if began is not None:
                of_one = bool(key[1])  # else the broker was unreachable, and everything failed
                log.info(
                    "group %s: broker %s works again after %.1f s%s",
                    self._group,
                    broker,
                    self._clock() - began,
                    f": {_activity(doing, topic)}" if of_one else "",
                    extra=fields(
                        group=self._group, broker=broker, topic=topic if of_one and topic else None
                    ),
                )

    def forget(self, topic: str) -> None:
        """Forget the failures of a topic, so that the next one is logged as the first."""
        for key in [key for key in self._since if key[2] == topic]:
            del self._since[key]

    def _begins(self, broker: str, doing: str = "", topic: str = "") -> bool:
        """Return whether this is the first failure of an outage."""
        if (broker, doing, topic) in self._since:
            return False
        self._since[broker, doing, topic] = self._clock()
        return True


def _activity(doing: str, topic: str) -> str:
    return f"{doing} topic {topic}" if topic else f"{doing} queues"
