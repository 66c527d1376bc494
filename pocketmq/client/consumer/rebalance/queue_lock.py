"""Queue locks at brokers, for orderly consumers: a queue belongs to one client at a time.

A broker drops a lock 60 s after its last renewal. The client considers it lost after 30 s, so that
two clients never both believe that they hold it. A pocketmq broker also drops it 0.5 s after the
client's side has closed the connection, as the kernel does for a process that was killed.
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

#: How long a lock is valid after it was requested, seconds.
LOCK_LIFE = 30.0
#: How long a broker keeps a lock, seconds.
LOCK_MEMORY = 60.0
#: The most queues in one request: brokers limit the size of its body.
MOST_TOGETHER = 1_000


class Locks(NamedTuple):
    """The result of requesting locks: the queues whose locks are held until `until` (clock
    seconds), and those whose broker did not answer."""

    held: set[MessageQueue]
    unknown: set[MessageQueue]
    until: float


class QueueLocks:
    """Locks of one client in one group; `clock` returns seconds; `timeout`: of each request.

    A broker gets one request at a time: it might process two concurrent ones in the wrong order,
    and a lock that is taken after it was released would stay for LOCK_MEMORY.
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
        """Release locks; return those whose broker did not confirm it."""
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
