"""Sends a message back to the broker, for a later redelivery (CONSUMER_SEND_MSG_BACK) or as a dead
letter with the reason.

A broker makes its own copy of a message that is sent back, to which a client cannot add properties.
So this client sends a dead letter itself, as official orderly consumers do: to the retry topic with
more attempts than allowed, so that the broker moves it to the dead letters. If the broker refuses
that message, for example because it has become too large, the client asks for the broker's own
copy, without the reason.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.dispatch.consume_service import text_of
from pocketmq.client.errors import (
    ClientError,
    FlushDiskTimeout,
    FlushSlaveTimeout,
    RemotingError,
    SlaveNotAvailable,
    Unavailable,
    is_silence,
)
from pocketmq.client.instance import ClientInstance
from pocketmq.client.log_fields import fields
from pocketmq.client.producer.prepared_message import Compression, PreparedMessage, compress_body
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.compression import CompressionType
from pocketmq.message.limits import AUTO_CREATE_TOPIC, RETRY_PREFIX, one_more
from pocketmq.message.message import MessageQueue
from pocketmq.message.reserved import NOT_IN_COPIES
from pocketmq.message.sysflag import COMPRESSED, COMPRESSION_TYPE_MASK
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
)

log = logging.getLogger(__name__)

#: Longest reason in a dead letter, and longest other text, characters.
MOST_REASON: Final = 1024
MOST_NAME: Final = 255
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]+")


class SendBack:
    """Sends back messages of one group, whose name includes the namespace."""

    def __init__(
        self, instance: ClientInstance, group: str, max_reconsume_times: int, timeout: float
    ) -> None:
        self._instance = instance
        self._log = LimitedLog(log)
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._timeout = timeout

    async def __call__(
        self, message: ConsumedMessage, delay_level: int, error: BaseException | None
    ) -> bool:
        """Send a message back; return whether the broker took it. `message.refusals` counts the
        refusals. `delay_level`: 1…18, 0 to let the broker choose, below 0 for the dead letters.
        `error`: the reason."""
        try:
            if delay_level < 0 and await self._bury(message, error):
                return True
            await self._return(message, delay_level)
        except RemotingError as refusal:
            if not isinstance(refusal, ClientError) and not is_silence(refusal):
                message.refusals += 1
            self._log.warning(
                "message %s of %s could not be sent back, retrying locally: %s",
                message.msg_id,
                message.topic,
                refusal,
                extra=self._fields(message, refusal),
            )
            return False
        return True

    async def _return(self, message: ConsumedMessage, delay_level: int) -> None:
        failures = message.reconsume_times - message.failures_here
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=self._instance.namespace.wrap(message.topic),
            # The client decides about redeliveries: retry_delays may allow more.
            max_reconsume_times=max(self._max_reconsume_times, one_more(failures)),
        )
        await self._instance.request(
            await self._instance.broker_address(message.process_queue.queue),
            RequestCode.CONSUMER_SEND_MSG_BACK,
            header,
            timeout=self._timeout,
            broker=message.broker_name,
        )

    async def _bury(self, message: ConsumedMessage, error: BaseException | None) -> bool:
        """Send a message to the dead letters with the reason; return False if the broker refuses.

        Raises RemotingError if it may have been stored, or if no broker is available.
        """
        outgoing = self._dead_letter(message, error)
        if COMPRESSED & ~message.sys_flag and len(outgoing.body) > message.store_size:
            # The client has decompressed it.
            kind = CompressionType.of(message.sys_flag)
            await compress_body(outgoing, Compression(kind, 0))
        queue: MessageQueue = message.process_queue.queue
        attempts = one_more(message.reconsume_times)
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,  # brokers count dead letters by it
            topic=outgoing.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=outgoing.sys_flag,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=outgoing.properties,
            reconsume_times=attempts,
            max_reconsume_times=attempts - 1,  # more than allowed
            bname=queue.broker_name,
        )
        try:
            await self._instance.request(
                await self._instance.broker_address(queue),
                RequestCode.SEND_MESSAGE_V2,
                header,
                bytes(outgoing.body),
                timeout=self._timeout,
                broker=message.broker_name,
            )
        except (FlushDiskTimeout, FlushSlaveTimeout, SlaveNotAvailable):
            pass  # it is stored, as safely as the broker's own copy would be
        except RemotingError as refusal:
            # It may be stored, or the broker cannot store any copy: retry later.
            if isinstance(refusal, ClientError | Unavailable) or is_silence(refusal):
                raise
            self._log.warning(
                "message %s of %s becomes a dead letter without the reason, because the broker "
                "refused one with it: %s",
                message.msg_id,
                message.topic,
                refusal,
                extra=self._fields(message, refusal),
            )
            return False
        return True

    def _dead_letter(
        self, message: ConsumedMessage, error: BaseException | None
    ) -> PreparedMessage:
        """Build a dead letter: the message as its broker stored it, with the reason. Changes that
        the application has made to the message are ignored."""
        properties = {
            name: value
            for name, value in names.decode(message.properties_bytes).items()
            if name not in NOT_IN_COPIES
        }
        queue: MessageQueue = message.process_queue.queue
        retry_topic = RETRY_PREFIX + self._group
        if queue.topic != retry_topic or names.RETRY_TOPIC not in properties:
            properties[names.RETRY_TOPIC] = queue.topic
            properties[names.ORIGIN_MESSAGE_ID] = message.offset_msg_id
        for name, text in why_dead(message, error, self._instance.client_id).items():
            properties.pop(name, None)  # from an earlier dead letter
            if text:
                properties[name] = text
        sys_flag = message.sys_flag & (COMPRESSED | COMPRESSION_TYPE_MASK)
        return PreparedMessage(
            RequestCode.SEND_MESSAGE_V2,
            retry_topic,
            message.stored_body,
            names.encode(properties),
            (message.msg_id,),
            message.flag,
            sys_flag if sys_flag & COMPRESSED else 0,
        )

    def _fields(self, message: ConsumedMessage, error: RemotingError) -> dict[str, object]:
        return fields(error, topic=message.topic, group=self._group, msg_id=message.msg_id)


def why_dead(
    message: ConsumedMessage, error: BaseException | None, client_id: str
) -> dict[str, str]:
    """Return the properties of a dead letter that give the reason, each one line of limited length.

    Tools trust them only if DLQ_ATTEMPTS equals the broker's count: another client, which does not
    update them, may have moved the message to the dead letters again.
    """
    kind = "" if error is None else f"{type(error).__module__}.{type(error).__qualname__}"
    return {
        names.DLQ_REASON: _one_line(text_of(error), MOST_REASON),
        names.DLQ_EXCEPTION: _one_line(kind.removeprefix("builtins."), MOST_NAME),
        names.DLQ_CONSUMER: _one_line(client_id, MOST_NAME),
        names.DLQ_ATTEMPTS: str(one_more(message.reconsume_times)),
    }


def _one_line(text: str, most: int) -> str:
    text = _CONTROLS.sub(" ", text[: most + 1]).strip()
    return text if len(text) <= most else f"{text[: most - 1]}…"
