"""Requests of brokers and operators to a push consumer: report its state, consume a message now.

Reference: ClientRemotingProcessor.
"""

from __future__ import annotations

import logging
from time import monotonic

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.dispatch.consumption import Consumption
from pocketmq.client.consumer.dispatch.handlers import is_failure
from pocketmq.client.consumer.offset_requests import check_group
from pocketmq.client.consumer.running_info import RunningInfo
from pocketmq.client.errors import RemotingError
from pocketmq.client.instance import ClientInstance
from pocketmq.client.log_fields import fields
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.limited_log import LimitedLog
from pocketmq.message.record import decode
from pocketmq.message.record_layout import RecordError
from pocketmq.remoting.bodies.running_info import ConsumeMessageDirectlyResult
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from pocketmq.remoting.serving.request import Request, Response

log = logging.getLogger(__name__)


class ClientRemotingProcessor:
    """Answers the requests for one group, whose name includes the namespace."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        consumption: Consumption,
        info: RunningInfo,
        message_type: type[ConsumedMessage],
    ) -> None:
        self._message_type = message_type
        self._log = LimitedLog(log)
        self._group = group
        self._consumption = consumption
        self._info = info
        dispatcher = instance.dispatcher
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

    def _running_info(self, request: Request[GetConsumerRunningInfoRequestHeader]) -> Response:
        check_group(request.header.consumer_group, self._group)
        info = self._info.collect(with_stacks=request.header.jstack_enable)
        return Response(body=info.encode())

    async def _consume_directly(
        self, request: Request[ConsumeMessageDirectlyResultRequestHeader]
    ) -> Response:
        """Pass the message in the body to the handler; the stored message is not changed."""
        check_group(request.header.consumer_group, self._group)
        try:
            record = decode(request.body)
        except RecordError as error:
            remark = f"the body is not a message: {error}"
            raise RemotingError(ResponseCode.SYSTEM_ERROR, remark) from None
        message = self._message_type.from_record(record, request.header.broker_name or "")
        message.outcome = self._consumption.outcomes
        message.settled = True  # it is in no queue, so its outcome is not recorded
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
