"""Requests of brokers and operators to reset or report a consumer's offsets.

Brokers with `useServerSideResetOffset=false` send each consumer a reset; others answer its next
pull with the new offset (`fetch/fetcher.py`). Reference: ClientRemotingProcessor.
"""

from __future__ import annotations

import logging
from typing import Generic, TypeVar

from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.consumer.offsets.offset_store import OffsetStore
from pocketmq.client.consumer.rebalance.assignment import Assignment
from pocketmq.client.errors import RemotingError
from pocketmq.client.instance import ClientInstance
from pocketmq.client.log_fields import fields
from pocketmq.limited_log import LimitedLog
from pocketmq.message.message import MessageExt
from pocketmq.remoting.bodies.offset import GetConsumerStatusBody, ResetOffsetBody
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.client import GetConsumerStatusRequestHeader
from pocketmq.remoting.headers.offset import ResetOffsetRequestHeader
from pocketmq.remoting.serving.request import Request, Response

log = logging.getLogger(__name__)

M = TypeVar("M", bound=MessageExt)


class OffsetRequests(Generic[M]):
    """Answers the requests for one group, whose name includes the namespace."""

    def __init__(
        self, instance: ClientInstance, group: str, assignment: Assignment[M], store: OffsetStore
    ) -> None:
        self._log = LimitedLog(log)
        self._group = group
        self._assignment = assignment
        self._store = store
        dispatcher = instance.dispatcher
        dispatcher.register(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset, ResetOffsetRequestHeader
        )
        dispatcher.register(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            self._status,
            GetConsumerStatusRequestHeader,
        )

    async def _reset(self, request: Request[ResetOffsetRequestHeader]) -> None:
        """Continue at the new offsets in the assigned queues; drop their pending messages."""
        check_group(request.header.group, self._group)
        table = ResetOffsetBody.decode(request.body).offset_table
        topic = request.header.topic
        told = fields(topic=topic, group=self._group)
        self._log.info("resetting the offsets of topic %s: %s", topic, table, extra=told)
        sought: list[ProcessQueue[M]] = []
        for queue, offset in table.items():
            fetcher = self._assignment.fetchers.get(queue)
            if fetcher is not None and queue.topic == request.header.topic:
                self._assignment.seek(queue, offset)
                sought.append(fetcher.pq)
        try:
            for pq in sought:
                await self._store.store(pq.queue, table[pq.queue])
        finally:
            # The reset has overwritten the committed offset: the next one must be committed even if
            # it is the same as before.
            for pq in sought:
                pq.committed = None

    def _status(self, request: Request[GetConsumerStatusRequestHeader]) -> Response:
        """Return the consumed offset of each queue."""
        check_group(request.header.group, self._group)
        offsets = {
            pq.queue: pq.safe_offset
            for pq in self._assignment.queues
            if pq.queue.topic == request.header.topic and pq.safe_offset is not None
        }
        return Response(body=GetConsumerStatusBody(message_queue_table=offsets).encode())


def check_group(group: str, own: str) -> None:
    """Raise RemotingError for a request to another group."""
    if group != own:
        raise RemotingError(
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer Group <{group}> not exist in this consumer",
        )
