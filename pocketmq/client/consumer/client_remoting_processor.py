"""Requests of brokers and operators to a push consumer: reset offsets, report offsets and state,
consume one message now. Reference: ClientRemotingProcessor."""

from __future__ import annotations

import logging
from time import monotonic

from pocketmq.client.consumer.consumed_message import ConsumedMessage, ReconsumeLater
from pocketmq.client.consumer.dispatch.consume_service import Queue
from pocketmq.client.consumer.dispatch.consumption import Consumption
from pocketmq.client.consumer.dispatch.handlers import is_failure
from pocketmq.client.consumer.offsets.offset_store import OffsetStore
from pocketmq.client.consumer.rebalance.assignment import Assignment
from pocketmq.client.consumer.running_info import RunningInfo
from pocketmq.client.errors import RemotingError
from pocketmq.client.instance import ClientInstance
from pocketmq.client.log_fields import fields
from pocketmq.limited_log import LimitedLog
from pocketmq.message.record import decode
from pocketmq.message.record_layout import RecordError
from pocketmq.remoting.bodies.offset import GetConsumerStatusBody, ResetOffsetBody
from pocketmq.remoting.bodies.running_info import ConsumeMessageDirectlyResult
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from pocketmq.remoting.headers.offset import ResetOffsetRequestHeader
from pocketmq.remoting.request import Request, Response

__all__ = ["ClientRemotingProcessor"]

log = logging.getLogger(__name__)


class ClientRemotingProcessor:
    """Answers for one group (its name on the wire)."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        assignment: Assignment[ConsumedMessage],
        store: OffsetStore,
        consumption: Consumption,
        info: RunningInfo,
        message_type: type[ConsumedMessage],
    ) -> None:
        self._message_type = message_type
        self._log = LimitedLog(log)
        self._group = group
        self._assignment = assignment
        self._store = store
        self._consumption = consumption
        self._info = info
        dispatcher = instance.dispatcher
        dispatcher.register(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset, ResetOffsetRequestHeader
        )
        dispatcher.register(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            self._status,
            GetConsumerStatusRequestHeader,
        )
        dispatcher.register(
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            self._running_info,
            GetConsumerRunningInfoRequestHeader,
        )
        dispatcher.register(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            self._consume_directly,
            ConsumeMessageDirectlyResultRequestHeader,
        )

    def _check(self, group: str) -> None:
        if group != self._group:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer Group <{group}> not exist in this consumer",
            )

    async def _reset(self, request: Request[ResetOffsetRequestHeader]) -> None:
        """Go on elsewhere in the queues that are read here; forget what is in work."""
        self._check(request.header.group)
        table = ResetOffsetBody.decode(request.body).offset_table
        topic = request.header.topic
        told = fields(topic=topic, group=self._group)
        self._log.info("resetting the offsets of topic %s: %s", topic, table, extra=told)
        sought: list[Queue] = []
        for queue, offset in table.items():
            fetcher = self._assignment.fetchers.get(queue)
            if fetcher is not None and queue.topic == request.header.topic:
                self._assignment.seek(queue, offset)
                sought.append(fetcher.pq)
        try:
            for pq in sought:
                await self._store.store(pq.queue, table[pq.queue])
        finally:
            # The offset of the last commit is overwritten: commit it again when it is reached.
            for pq in sought:
                pq.committed = None

    def _status(self, request: Request[GetConsumerStatusRequestHeader]) -> Response:
        """How far each queue is done."""
        self._check(request.header.group)
        offsets = {
            pq.queue: pq.safe_offset
            for pq in self._assignment.queues
            if pq.queue.topic == request.header.topic and pq.safe_offset is not None
        }
        return Response(body=GetConsumerStatusBody(message_queue_table=offsets).encode())

    def _running_info(self, request: Request[GetConsumerRunningInfoRequestHeader]) -> Response:
        self._check(request.header.consumer_group)
        info = self._info.collect(with_stacks=request.header.jstack_enable)
        return Response(body=info.encode())

    async def _consume_directly(
        self, request: Request[ConsumeMessageDirectlyResultRequestHeader]
    ) -> Response:
        """Have the message in the body worked on; it stays where it is stored."""
        self._check(request.header.consumer_group)
        try:
            record = decode(request.body)
        except RecordError as error:
            remark = f"the body is not a message: {error}"
            raise RemotingError(ResponseCode.SYSTEM_ERROR, remark) from None
        message = self._message_type.from_record(record, request.header.broker_name or "")
        message.outcome = self._consumption.outcomes
        message.settled = True  # its outcome concerns no queue
        message.topic = self._consumption.names.topic(message)
        result = ConsumeMessageDirectlyResult(order=self._info.orderly)
        began = monotonic()
        try:
            await self._consumption.calls.work(message)
        except ReconsumeLater as later:
            result.consume_result = "CR_LATER"
            result.remark = str(later) or None
        except BaseException as error:
            if not is_failure(error):
                raise
            told = fields(msg_id=message.msg_id, topic=message.topic, group=self._group)
            self._log.exception("the handler failed on a message that an operator sent", extra=told)
            result.consume_result = "CR_THROW_EXCEPTION"
            result.remark = f"{type(error).__name__}: {error}"
        result.spent_time_mills = int((monotonic() - began) * 1000)
        return Response(body=result.encode())
