"""RECALL_MESSAGE: cancels a timed message before it is delivered.

The message stays in the log. The broker stores another message in the same delivery slot, with the
recalled one in TIMER_DEL_UNIQKEY, which is never delivered; see `broker.delayed.timer`. Reference:
RecallMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pocketmq.broker.acknowledge.unwritten_sends import UnwrittenSends
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.due_slots import TimedMessage
from pocketmq.broker.inner_message import InnerMessage, PutHooks
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.broker.tables.topic_config import PERM_WRITE, TopicConfigs
from pocketmq.message import properties as names
from pocketmq.message.limits import takes_sends
from pocketmq.message.recall_handle import RecallHandle, RecallHandleError, decode_recall_handle
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import RecallMessageRequestHeader, RecallMessageResponseHeader
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.results import PutStatus

RECALL_TAG: Final = "_RECALL_TAG_"


class RecallProcessor:
    """Recalls of one broker. `clock` gives milliseconds."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        put_hooks: PutHooks,
        statistics: Statistics,
        unwritten: UnwrittenSends,
        clock: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._put_hooks = put_hooks
        self._statistics = statistics
        self._unwritten = unwritten
        self._clock = clock

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the recall code here."""
        dispatcher.register(RequestCode.RECALL_MESSAGE, self.recall, RecallMessageRequestHeader)

    def recall(self, request: Request[RecallMessageRequestHeader]) -> Response:
        """Recall a message; SUCCESS means that the recall is stored, not that it is in time."""
        region = {names.MSG_REGION: self._config.region_id}
        try:
            handle = self._checked(request.header)
            self._store(request, handle)
        except RemotingError as error:
            return Response(error.code, error.remark, ext_fields=region)
        return Response(header=RecallMessageResponseHeader(handle.message_id), ext_fields=region)

    def _checked(self, header: RecallMessageRequestHeader) -> RecallHandle:
        config, now = self._config, self._clock()
        if not config.recall_message_enable:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                "recall failed, operation is forbidden: the broker has recallMessageEnable=false",
            )
        writable = config.broker_permission & PERM_WRITE
        if now < config.start_accept_send_request_time_stamp or not (
            writable or config.allow_recall_when_broker_not_writeable
        ):
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available"
            )
        if self._topics.get(header.topic) is None or not takes_sends(header.topic):
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"recall failed, the topic[{header.topic}] not exist",
            )
        try:
            handle = decode_recall_handle(header.recall_handle)
        except RecallHandleError as error:
            raise RemotingError(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
        if handle.topic != header.topic:
            raise RemotingError(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != config.broker_name:
            raise RemotingError(
                ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available"
            )
        text = handle.time
        time = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1
        if not 0 < time - now < config.timer_max_delay_sec * 1000:
            raise RemotingError(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _store(self, request: Request[RecallMessageRequestHeader], handle: RecallHandle) -> None:
        now = self._clock()
        recalled = TimedMessage(handle.topic, handle.message_id)
        properties = {
            names.TAGS: RECALL_TAG,
            names.TIMER_DEL_UNIQKEY: recalled.recalled_by(
                with_topic=self._config.append_topic_for_timer_delete_key
            ),
            names.UNIQ_KEY: handle.message_id,
            names.TIMER_DELIVER_MS: handle.time,
            names.BORN_TIMESTAMP: str(now),
        }
        if request.header.producer_group:
            properties[names.PGROUP] = request.header.producer_group
        inner = InnerMessage(handle.topic, 0, b"0", properties, now, request.connection.peer_packed)
        result = self._put_hooks.put(inner)
        if result.status is not PutStatus.PUT_OK:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
        self._unwritten.add(request)
        size = result.end_offset - result.physical_offset
        self._statistics.count_put(inner.topic, size, inner.properties)
