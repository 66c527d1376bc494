"""The queues that a push consumer owns: takes its share, releases others, and renews locks.

Orderly consumers lock a queue before they read it, so that the previous owner has committed before
the next one reads the offset. They unlock it when none of its messages is in progress any more.
Reference: RebalancePushImpl, RebalanceImpl.lockAll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.consumer_event import ConsumerEventKind, ConsumerEvents, listed
from pocketmq.client.consumer.dispatch.consume_orderly import ConsumeOrderly
from pocketmq.client.consumer.dispatch.consume_service import ConsumeService, Queue
from pocketmq.client.consumer.offsets.committer import Committer
from pocketmq.client.consumer.rebalance.assignment import Assignment
from pocketmq.client.consumer.rebalance.queue_lock import LOCK_MEMORY, QueueLocks
from pocketmq.client.consumer.rebalance.share_callbacks import ShareCallbacks
from pocketmq.client.consumer.subscription import Kind
from pocketmq.client.instance import ClientInstance
from pocketmq.client.log_fields import fields
from pocketmq.limited_log import LimitedLog
from pocketmq.message.message import MessageQueue

log = logging.getLogger(__name__)

#: Pause after a renewal that a broker did not answer, seconds.
RETRY_PERIOD = 1.0


class QueueOwnership:
    """The queues of one consumer. `locks`: renewed every `renewal` seconds; None if queues are not
    locked. `again` triggers a rebalance."""

    def __init__(
        self,
        instance: ClientInstance,
        assignment: Assignment[ConsumedMessage],
        service: ConsumeService,
        committer: Committer,
        locks: QueueLocks | None,
        again: Callable[[], None],
        events: ConsumerEvents,
        group: str,
        renewal: float,
        callbacks: ShareCallbacks,
    ) -> None:
        self._callbacks = callbacks
        self._log = LimitedLog(log)
        self._group = group
        self._renewal = renewal
        self._instance = instance
        self._assignment = assignment
        self._service = service
        self._committer = committer
        self._locks = locks
        self._again = again
        self._events = events
        #: Dropped queues with messages in progress: those that this client still owns, and those
        #: that another client may own already.
        self._leaving: dict[MessageQueue, Queue] = {}
        self._abandoned: set[MessageQueue] = set()
        #: Queues whose locks are being released, and are not renewed any more.
        self._unlocking: set[MessageQueue] = set()
        #: Queues that a broker may have locked, because the last request has no answer (yet) →
        #: until when, clock seconds.
        self._asked: dict[MessageQueue, float] = {}
        #: Queues of this client's share that another client has locked.
        self._awaited: set[MessageQueue] = set()
        self._closing = False
        #: Set to renew the locks at once.
        self._doubted = asyncio.Event()
        if locks is not None:
            instance.pool.on_disconnected.append(self._connection_lost)

    async def share(self, topic: str, share: Sequence[MessageQueue]) -> bool:
        """Own exactly this share of a topic; return False if a part can only be taken later."""
        subscription = self._assignment.subscriptions.get(topic)
        if subscription is None or subscription.kind is not Kind.SHARED or self._closing:
            return True
        lost = [queue for queue in self._assignment.of_topic(topic) if queue not in share]
        await self.revoke(lost)
        await self.let_go(self.drop([q for q in lost if q in self._assignment.fetchers]))
        complete = await self._give_back(topic, share)
        wanted = [queue for queue in share if queue not in self._assignment.fetchers]
        dropped = {*self._leaving, *self._abandoned, *self._unlocking}
        gained = [queue for queue in wanted if queue not in dropped]
        until = 0.0
        unknown: set[MessageQueue] = set()
        if self._locks is not None and gained:
            self._asked.update(dict.fromkeys(gained, monotonic() + LOCK_MEMORY))
            locks = await self._locks.lock(gained)
            until, unknown = locks.until, locks.unknown
            self._await(topic, [q for q in gained if q not in locks.held and q not in unknown])
            gained = [queue for queue in gained if queue in locks.held]
        if self._closing:
            return True  # `close` releases the requested locks
        for queue in wanted:
            if queue not in unknown:
                self._asked.pop(queue, None)
        if topic not in self._assignment.subscriptions:
            if self._locks is not None:
                await self._locks.unlock(gained)
            return True
        for pq in self._assignment.add_all(gained):
            pq.locked_until = until
        await self._callbacks.assigned(gained)
        await self._assignment.start_all()
        self._events.queues_changed(topic, gained, lost)
        return complete and len(gained) == len(wanted)

    def _await(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """Log that these queues of a topic are locked by another client, once for each wait."""
        fresh = [queue for queue in queues if queue not in self._awaited]
        self._awaited = {queue for queue in self._awaited if queue.topic != topic}.union(queues)
        if fresh:
            log.info(
                "group %s, topic %s: waiting for %s, which another consumer has locked; an Apache "
                "broker keeps the locks of one that was killed for %d s",
                self._group,
                topic,
                listed(fresh),
                LOCK_MEMORY,
                extra=fields(group=self._group, topic=topic),
            )

    async def _give_back(self, topic: str, share: Sequence[MessageQueue]) -> bool:
        """Release locks that this client may hold on queues of other clients' shares; return False
        if a broker does not confirm it: another client waits for them."""
        others = [queue for queue in self._asked if queue.topic == topic and queue not in share]
        if self._locks is None or not others:
            return True
        unknown = await self._locks.unlock(others)
        now = monotonic()
        unknown = {queue for queue in unknown if now < self._asked[queue]}
        for queue in others:
            if queue not in unknown:
                del self._asked[queue]
        return not unknown

    async def revoke(self, queues: Sequence[MessageQueue]) -> None:
        """Stop delivering messages of these queues, and call `on_revoked`."""
        self._assignment.pause(queues)
        await self._callbacks.revoked(queues)

    def drop(self, queues: Sequence[MessageQueue]) -> list[Queue]:
        """Stop reading these queues; return them for `let_go`."""
        return [self._drop(queue) for queue in queues]

    async def let_go(self, dropped: Sequence[Queue]) -> None:
        """Commit the consumed offsets of queues that were dropped."""
        if self._locks is None:
            await self._committer.let_go(dropped)
            return
        for pq in dropped:
            self._leaving[pq.queue] = pq
            self._instance.keep(partial(self._hand_over, pq), f"hand over {pq.queue}", ends=True)

    def _drop(self, queue: MessageQueue) -> Queue:
        pq = self._assignment.remove(queue)
        self._service.dropped(pq)
        return pq

    async def _hand_over(self, pq: Queue) -> None:
        """Commit and unlock a queue when its last message in progress has ended."""
        await self._idle(pq)
        if monotonic() < pq.locked_until:
            await self._committer.commit([pq])
        self._leaving.pop(pq.queue, None)
        if self._locks is not None:
            self._unlocking.add(pq.queue)
            unknown = await self._locks.unlock([pq.queue])
            self._asked.update(dict.fromkeys(unknown, monotonic() + LOCK_MEMORY))
            self._unlocking.discard(pq.queue)
        self._again()

    async def _abandon(self, pq: Queue) -> None:
        """Wait for the messages of a queue whose lock is lost: another client may own it
        already."""
        await self._idle(pq)
        self._abandoned.discard(pq.queue)
        self._again()

    async def _idle(self, pq: Queue) -> None:
        if isinstance(self._service, ConsumeOrderly):
            await self._service.idle(pq)

    async def keep_locks(self) -> None:
        """Renew the locks until cancelled."""
        period = self._renewal
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await self._doubted.wait()
            self._doubted.clear()
            period = self._renewal if await self.renew() else RETRY_PERIOD

    def _connection_lost(self, address: str) -> None:
        """Deliver no messages of queues whose locks the broker may have given to others, until the
        locks are renewed."""
        addresses = self._instance.vip_channel.own_addresses(address)
        masters = self._instance.routes.masters()
        for queue, fetcher in self._assignment.fetchers.items():
            if masters.get(queue.broker_name) in addresses:
                fetcher.pq.lock_doubtful = True
                self._doubted.set()

    async def renew(self) -> bool:
        """Renew every lock; a queue whose lock is lost, or may be, is dropped and taken again.
        Return False if a broker did not answer.

        Locks of dropped queues are renewed too while messages are in progress. If one of these is
        lost, the queue is not committed: its new owner may be further on."""
        assert self._locks is not None
        assert isinstance(self._service, ConsumeOrderly)
        queues = list(self._assignment.fetchers)
        leaving = dict(self._leaving)
        locks = await self._locks.lock([*queues, *leaving])
        now = monotonic()
        for queue, pq in leaving.items():
            if queue not in locks.unknown:
                held = queue in locks.held and now < pq.locked_until
                pq.locked_until = locks.until if held else 0.0
        for queue in queues:
            fetcher = self._assignment.fetchers.get(queue)
            if fetcher is None:
                continue
            if now < fetcher.pq.locked_until:
                if queue in locks.held:
                    self._service.renewed(fetcher.pq, locks.until)
                    continue
                if queue in locks.unknown:
                    continue
            self._log.warning("queue %s: its lock is lost", queue, extra=fields(queue=queue))
            shown = self._instance.namespace.unwrap_queue(queue)
            self._events.tell(ConsumerEventKind.LOCK_LOST, shown)
            self._abandoned.add(queue)
            self._instance.keep(
                partial(self._abandon, self._drop(queue)), f"abandon {queue}", ends=True
            )
        return not locks.unknown

    def stop(self) -> None:
        """Take no more queues."""
        self._closing = True

    async def close(self) -> None:
        """Commit everything and release the locks, at the end of the consumer."""
        now = monotonic()
        leaving = [pq for pq in self._leaving.values() if now < pq.locked_until]
        try:
            await self._committer.commit([*self._assignment.queues, *leaving])
        finally:
            # Also if a broker takes too long: the queues of the others must not wait.
            if self._locks is not None:
                await self._locks.unlock(
                    {*self._assignment.fetchers, *self._leaving, *self._unlocking, *self._asked}
                )
