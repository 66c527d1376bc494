"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queues for ordered consumption.

Reference: broker AdminBrokerProcessor (lockBatchMQ, unlockBatchMQ).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from pocketmq.broker.background import CallLater
from pocketmq.broker.tables.client_ids import ClientIds
from pocketmq.broker.tables.queue_locks import QueueLocks
from pocketmq.remoting.bodies.queue_lock import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import Header
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response, owner_of

RELEASE_DELAY: Final = 0.5
"""Seconds from the end of a connection to the release of its locks, so that a live client can
reconnect and renew them."""


class QueueLockProcessor:
    """Lock requests of one broker."""

    def __init__(self, locks: QueueLocks, client_ids: ClientIds, call_later: CallLater) -> None:
        self._call_later = call_later
        self._locks = locks
        self._client_ids = client_ids
        self._watched: set[Any] = set()

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the lock codes here."""
        dispatcher.register(RequestCode.LOCK_BATCH_MQ, self.lock)
        dispatcher.register(RequestCode.UNLOCK_BATCH_MQ, self.unlock)

    def lock(self, request: Request[Header]) -> Response:
        """Acquire or renew locks; the answer lists the locks that the client holds now."""
        wanted = LockBatchRequestBody.decode(request.body)
        wanted.need("consumerGroup", wanted.consumer_group)
        wanted.need("clientId", wanted.client_id)
        self._client_ids.check(wanted.client_id, request.caller)
        connection = request.connection if wanted.release_on_close else None
        if connection is not None and connection not in self._watched:
            self._watched.add(connection)
            connection.add_close_callback(self._closed)
        owner = owner_of(request.caller, request.connection.peer[0])
        held = self._locks.lock(
            wanted.consumer_group, wanted.mq_set, wanted.client_id, connection, owner
        )
        return Response(body=LockBatchResponseBody(lock_ok_mq_set=sorted(held)).encode())

    def unlock(self, request: Request[Header]) -> Response:
        """Release locks."""
        given = UnlockBatchRequestBody.decode(request.body)
        given.need("consumerGroup", given.consumer_group)
        self._client_ids.check(given.client_id, request.caller)
        self._locks.unlock(given.consumer_group, given.mq_set, given.client_id)
        return Response()

    def _closed(self, connection: Any) -> None:
        self._watched.discard(connection)
        # If this end closed the connection, the client may be alive but unreachable.
        if connection.ended_by_peer:
            self._call_later(RELEASE_DELAY, partial(self._locks.release, connection))
