"""What a consumer logs of brokers that fail: one warning when it begins, one line when it is over.

When a broker restarts, everything that a consumer does with any of its queues fails. What is logged
is therefore the outage of the broker, or of one activity where the broker answers with an error.
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
    """The outages that one consumer knows of; `clock` gives seconds."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._routes = instance.routes
        self._group = group
        self._clock = clock
        #: When they began, by broker, activity and topic; the empty texts stand for any.
        self._since: dict[tuple[str, str, str], float] = {}

    def lost(self, address: str) -> None:
        """Note that the connection to a server is gone. Name servers are left out: one that does
        not answer is logged by client.name_servers."""
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
        """Note that it failed, and will be tried again; `doing` is as "reading" or "locking"."""
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
        """Note that it succeeded."""
        if not self._since:
            return
        for key in ((broker, "", ""), (broker, doing, topic)):
            began = self._since.pop(key, None)
            if began is not None:
                of_one = bool(key[1])  # else it was away, and everything failed
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
        """Have failures of a topic logged anew."""
        for key in [key for key in self._since if key[2] == topic]:
            del self._since[key]

    def _begins(self, broker: str, doing: str = "", topic: str = "") -> bool:
        """Whether this is the first failure of an outage."""
        if (broker, doing, topic) in self._since:
            return False
        self._since[broker, doing, topic] = self._clock()
        return True


def _activity(doing: str, topic: str) -> str:
    return f"{doing} topic {topic}" if topic else f"{doing} queues"
