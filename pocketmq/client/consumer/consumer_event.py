"""Events of a running consumer, such as lost connections: logged, and passed to the application."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from pocketmq.client.consumer.broker_outages import BrokerOutages
from pocketmq.client.errors import RemotingError
from pocketmq.client.instance import ClientInstance
from pocketmq.client.log_fields import fields
from pocketmq.message.message import MessageQueue

log = logging.getLogger(__name__)


class ConsumerEventKind(Enum):
    """Kinds of events. Each loss is followed by an event when it is over."""

    CONNECTION_LOST = "connection lost"
    CONNECTED = "connected"
    READING_FAILED = "reading failed"
    READING_RECOVERED = "reading recovered"
    GROUP_LOST = "group lost"
    GROUP_FOUND = "group found"
    LOCK_LOST = "lock lost"
    QUEUES_CHANGED = "queues changed"


class ConsumerEvent(msgspec.Struct, frozen=True):
    """One event. `subject`: a MessageQueue, or an address, group or topic, depending on `kind`.
    `error`: the cause of a failure."""

    kind: ConsumerEventKind
    subject: str | MessageQueue
    error: Exception | None = None


class ConsumerEvents:
    """Logs the events of one consumer and passes them to `listener`, if there is one."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        listener: Callable[[ConsumerEvent], object] | None,
        again: Callable[[], None],
        outages: BrokerOutages,
        on_error: Callable[[MessageQueue, RemotingError], object] | None = None,
    ) -> None:
        """`again` triggers a rebalance, which also reconnects. `on_error` is called for every
        failed pull."""
        self._on_error = on_error
        self._outages = outages
        self._instance = instance
        self._group = group
        self._listener = listener
        self._again = again
        instance.pool.on_connected.append(self._connected)
        instance.pool.on_disconnected.append(self._disconnected)

    def tell(
        self,
        kind: ConsumerEventKind,
        subject: str | MessageQueue,
        error: Exception | None = None,
    ) -> None:
        """Pass an event to the listener; its errors are logged."""
        if self._listener is None:
            return
        try:
            self._listener(ConsumerEvent(kind, subject, error))
        except Exception:
            told = fields(group=self._group)
            log.exception("the listener of consumer group %s failed", self._group, extra=told)

    def _connected(self, address: str) -> None:
        self.tell(ConsumerEventKind.CONNECTED, address)

    def _disconnected(self, address: str) -> None:
        if self._instance.running:
            self._outages.lost(address)
            self.tell(ConsumerEventKind.CONNECTION_LOST, address)
            self._again()

    def reading_failed(self, queue: MessageQueue, error: RemotingError, times: int) -> None:
        """Report that pulling from a queue has failed `times` times in a row."""
        if times == 1:
            self._outages.failed(queue.broker_name, "reading", error, queue.topic)
        queue = self._instance.namespace.unwrap_queue(queue)
        if times == 1:
            self.tell(ConsumerEventKind.READING_FAILED, queue, error)
        if self._on_error is not None:
            try:
                self._on_error(queue, error)
            except Exception:
                told = fields(queue=queue, group=self._group)
                log.exception("on_error of consumer group %s failed", self._group, extra=told)

    def reading_works(self, queue: MessageQueue, failures: int) -> None:
        """Report that pulling from a queue works again after `failures` failures."""
        self._outages.answered(queue.broker_name, "reading", queue.topic)
        if not failures:
            return
        queue = self._instance.namespace.unwrap_queue(queue)
        self.tell(ConsumerEventKind.READING_RECOVERED, queue)

    def reading_changed(self, topic: str) -> None:
        """Forget the failures of a topic that was added or removed."""
        self._outages.forget(topic)

    def queues_changed(
        self, topic: str, gained: Sequence[MessageQueue], lost: Sequence[MessageQueue]
    ) -> None:
        """Report this client's changes in the queues of a topic, if any."""
        if not gained and not lost:
            return
        log.info(
            "group %s, topic %s: gained %s, lost %s",
            self._group,
            topic,
            listed(gained),
            listed(lost),
            extra=fields(group=self._group, topic=topic),
        )
        self.tell(ConsumerEventKind.QUEUES_CHANGED, self._instance.namespace.unwrap(topic))

    def group_changed(self, error: Exception | None) -> None:
        """Report that the brokers do not list this client in its group, or (None) do so again."""
        kind = ConsumerEventKind.GROUP_FOUND if error is None else ConsumerEventKind.GROUP_LOST
        self.tell(kind, self._group, error)


def listed(queues: Sequence[MessageQueue]) -> str:
    """Format queues for a log line that contains their topic."""
    return ", ".join(f"{queue.broker_name}/{queue.queue_id}" for queue in queues) or "none"
