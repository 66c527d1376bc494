"""Giving a message back to the broker, to have it delivered again later or kept as a dead letter
(CONSUMER_SEND_MSG_BACK)."""

from __future__ import annotations

import logging

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.errors import ClientError, RemotingError, is_silence
from pocketmq.client.instance import ClientInstance
from pocketmq.client.log_fields import fields
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.send import ConsumerSendMsgBackRequestHeader

__all__ = ["SendBack"]

log = logging.getLogger(__name__)


class SendBack:
    """Gives back messages of one group (its name on the wire)."""

    def __init__(
        self, instance: ClientInstance, group: str, max_reconsume_times: int, timeout: float
    ) -> None:
        self._instance = instance
        self._log = LimitedLog(log)
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._timeout = timeout

    async def __call__(self, message: ConsumedMessage, delay_level: int) -> bool:
        """Whether the broker took it; the message counts how often it was refused. `delay_level`:
        1…18, 0 for what the broker thinks best, below 0 for the dead letters."""
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=self._instance.namespace.wrap(message.topic),
            max_reconsume_times=self._max_reconsume_times,
        )
        try:
            await self._instance.request(
                await self._instance.broker_address(message.process_queue.queue),
                RequestCode.CONSUMER_SEND_MSG_BACK,
                header,
                timeout=self._timeout,
                broker=message.broker_name,
            )
        except RemotingError as error:
            if not isinstance(error, ClientError) and not is_silence(error):
                message.refusals += 1
            self._log.warning(
                "message %s of %s could not be sent back, retrying locally: %s",
                message.msg_id,
                message.topic,
                error,
                extra=fields(error, topic=message.topic, group=self._group, msg_id=message.msg_id),
            )
            return False
        return True
