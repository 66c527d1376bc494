"""Locks that brokers keep for orderly consumers: a queue belongs to one client at a time.

A broker forgets a lock 60 s after its last renewal; here it is taken for lost after 30 s, so that
two clients never both believe that they hold it. A pocketmq broker also forgets it 0.5 s after this
client's end closed the connection, as the kernel does for a process that was killed.
Reference: RebalanceImpl.lockAll.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from pocketmq.client.consumer.broker_outages import BrokerOutages
from pocketmq.client.errors import RemotingError
from pocketmq.client.instance import ClientInstance
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.queue_lock import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command

#: A lock holds for so long after it was asked for, seconds.
LOCK_LIFE = 30.0
#: And for so long at the broker, seconds.
LOCK_MEMORY = 60.0
#: Queues of one request: brokers limit the size of its body.
MOST_TOGETHER = 1_000


class Locks(NamedTuple):
    """What asking for locks came to: those that are held until `until` (clock seconds), and those
    whose broker did not say."""

    held: set[MessageQueue]
    unknown: set[MessageQueue]
    until: float


class QueueLocks:
    """Locks of one client in one group; `clock` gives seconds, `timeout` bounds each request.

    A broker gets one request at a time: of two at once it may do the later one first, and a lock
    that is taken after it was given up stays there for LOCK_MEMORY.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        outages: BrokerOutages,
        clock: Callable[[], float],
        timeout: float,
    ) -> None:
        self._timeout = timeout
        self._instance = instance
        self._group = group
        self._clock = clock
        self._outages = outages
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def lock(self, queues: Iterable[MessageQueue]) -> Locks:
        """Take or renew locks."""
        until = self._clock() + LOCK_LIFE
        held: set[MessageQueue] = set()
        unknown: set[MessageQueue] = set()

        async def ask(broker: str, some: Sequence[MessageQueue]) -> None:
            body = LockBatchRequestBody(
                client_id=self._instance.client_id,
                consumer_group=self._group,
                mq_set=list(some),
                release_on_close=True,
            )
            try:
                answer = await self._ask(broker, RequestCode.LOCK_BATCH_MQ, body.encode())
                ok = LockBatchResponseBody.decode(answer.body).lock_ok_mq_set
            except RemotingError as error:
                self._outages.failed(broker, "locking", error)
                unknown.update(some)
            else:
                self._outages.answered(broker, "locking")
                held.update(ok)

        await asyncio.gather(*(ask(broker, some) for broker, some in _by_broker(queues)))
        return Locks(held, unknown, until)

    async def unlock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Give locks up; returns those whose broker did not say that it has."""
        unknown: set[MessageQueue] = set()

        async def tell(broker: str, some: Sequence[MessageQueue]) -> None:
            body = UnlockBatchRequestBody(
                client_id=self._instance.client_id, consumer_group=self._group, mq_set=list(some)
            )
            try:
                await self._ask(broker, RequestCode.UNLOCK_BATCH_MQ, body.encode())
            except RemotingError as error:
                unknown.update(some)
                self._outages.failed(broker, "unlocking", error)
            else:
                self._outages.answered(broker, "unlocking")

        await asyncio.gather(*(tell(broker, some) for broker, some in _by_broker(queues)))
        return unknown

    async def _ask(self, broker: str, code: RequestCode, body: bytes) -> Command:
        async with self._turns[broker]:
            return await self._instance.request(
                self._instance.routes.master(broker),
                code,
                body=body,
                timeout=self._timeout,
                broker=broker,
            )


def _by_broker(queues: Iterable[MessageQueue]) -> Iterator[tuple[str, tuple[MessageQueue, ...]]]:
    brokers: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        brokers[queue.broker_name].append(queue)
    for broker, some in brokers.items():
        for begin in range(0, len(some), MOST_TOGETHER):
            yield broker, tuple(some[begin : begin + MOST_TOGETHER])
