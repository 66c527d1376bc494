"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queues for ordered consumption.

Reference: broker AdminBrokerProcessor (lockBatchMQ, unlockBatchMQ).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from pocketmq.broker.background import CallLater
from pocketmq.broker.tables.client_ids import ClientIds
from pocketmq.broker.tables.queue_locks import QueueLocks
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.queue_lock import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import Header
from pocketmq.remoting.serving.dispatch import Answer, Dispatcher
from pocketmq.remoting.serving.long_requests import LongRequests, Steps, at_once, in_pieces
from pocketmq.remoting.serving.request import Request, Response, owner_of

RELEASE_DELAY: Final = 0.5
"""Seconds from the end of a connection to the release of its locks, so that a live client can
reconnect and renew them."""

STEP: Final = 512
"""Queues that are locked or unlocked in one go; the locks of more take long."""


class QueueLockProcessor:
    """Lock requests of one broker."""

    def __init__(
        self,
        locks: QueueLocks,
        client_ids: ClientIds,
        call_later: CallLater,
        long: LongRequests,
    ) -> None:
        self._long = long
        self._call_later = call_later
        self._locks = locks
        self._client_ids = client_ids
        self._watched: set[Any] = set()

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the lock codes here."""
        dispatcher.register(RequestCode.LOCK_BATCH_MQ, self.lock)
        dispatcher.register(RequestCode.UNLOCK_BATCH_MQ, self.unlock)

    def lock(self, request: Request[Header]) -> Answer:
        """Acquire or renew locks; the answer lists the locks that the client holds now."""
        wanted = LockBatchRequestBody.of(request)
        wanted.need("consumerGroup", wanted.consumer_group)
        wanted.need("clientId", wanted.client_id)
        self._client_ids.check(wanted.client_id, request.caller)
        return self._execute(request, wanted, self._lock(request, wanted))

    def _lock(self, request: Request[Header], wanted: LockBatchRequestBody) -> Steps[Response]:
        connection = request.connection if wanted.release_on_close else None
        if connection is not None and connection not in self._watched:
            self._watched.add(connection)
            connection.add_close_callback(self._closed)
        owner = owner_of(request.caller, request.connection.peer[0])
        held: list[MessageQueue] = []
        for queues in in_pieces(list(dict.fromkeys(wanted.mq_set)), STEP):
            held += self._locks.lock(
                wanted.consumer_group, queues, wanted.client_id, connection, owner
            )
            yield
        return Response(body=LockBatchResponseBody(lock_ok_mq_set=held).encode())

    def unlock(self, request: Request[Header]) -> Answer:
        """Release locks."""
        given = UnlockBatchRequestBody.of(request)
        given.need("consumerGroup", given.consumer_group)
        self._client_ids.check(given.client_id, request.caller)
        return self._execute(request, given, self._unlock(given))

    def _unlock(self, given: UnlockBatchRequestBody) -> Steps[Response]:
        for queues in in_pieces(given.mq_set, STEP):
            self._locks.unlock(given.consumer_group, queues, given.client_id)
            yield
        return Response()

    def _execute(
        self, request: Request[Header], body: LockBatchRequestBody, steps: Steps[Response]
    ) -> Answer:
        return at_once(steps) if len(body.mq_set) <= STEP else self._long.run(request, steps)

    def _closed(self, connection: Any) -> None:
        self._watched.discard(connection)
        # If this end closed the connection, the client may be alive but unreachable.
        if connection.ended_by_peer:
            self._call_later(RELEASE_DELAY, partial(self._locks.release, connection))
