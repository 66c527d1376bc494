"""PullMessage, UpdateOffset, GetOffset and QueryOffset: consuming by offsets, which the official
proxy of 5.3.3 answers UNIMPLEMENTED."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pocketmq.message.message import MessageQueue
from pocketmq.message.record import iter_records
from pocketmq.message.record_layout import RecordError
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.port.broker_port import REQUEST_TIMEOUT
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.rpc import Call
from pocketmq.proxy.service.access import Access
from pocketmq.proxy.service.checks import group_of, topic_of
from pocketmq.proxy.service.clients import Clients, subscription_data
from pocketmq.proxy.service.message_codec import PlainBodies, duration_ms, incoming
from pocketmq.proxy.service.status import ServiceError, ok, status_of
from pocketmq.proxy.service.turns import Turns
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

MAX_BATCH: Final = 32
MOST_POLLING: Final = 20_000  # ms

#: Bits of a pull's sysFlag: it may be held, and contains its subscription.
_HOLD, _SUBSCRIPTION = 2, 4

_Found = GetMinOffsetResponseHeader | GetMaxOffsetResponseHeader | SearchOffsetResponseHeader

_NOTHING: Final = frozenset(
    {
        int(ResponseCode.PULL_NOT_FOUND),
        int(ResponseCode.PULL_RETRY_IMMEDIATELY),
        int(ResponseCode.PULL_OFFSET_MOVED),
    }
)


class Offsets:
    """Serves the four calls."""

    def __init__(self, config: ProxyConfig, clients: Clients, access: Access, turns: Turns) -> None:
        self._config = config
        self._turns = turns
        self._clients = clients
        self._access = access

    async def pull_message(
        self, call: Call, request: pb.PullMessageRequest
    ) -> Sequence[pb.PullMessageResponse]:
        """Return messages of a queue from an offset on, and the offset after them."""
        try:
            return await self._pull(call, request)
        except (ServiceError, RemotingError) as error:
            return [pb.PullMessageResponse(status=status_of(error))]

    async def _pull(
        self, call: Call, request: pb.PullMessageRequest
    ) -> Sequence[pb.PullMessageResponse]:
        queue = _queue(request.message_queue)
        group = group_of(request.group)
        self._access.consume(call, group, queue.topic)
        client = self._clients.of(call)
        if request.offset < 0:
            raise ServiceError(pb.ILLEGAL_OFFSET, f"the offset is {request.offset}")
        subscription = subscription_data(queue.topic, request.filter_expression)
        polling = min(duration_ms(request.long_polling_timeout), MOST_POLLING)
        polling = max(min(polling, int(min(call.remaining(), 60.0) * 1000) - 200), 0)
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=request.offset,
            max_msg_nums=max(1, min(request.batch_size, MAX_BATCH)),
            sys_flag=_SUBSCRIPTION | (_HOLD if polling else 0),
            commit_offset=0,
            suspend_timeout_millis=polling,
            subscription=subscription.sub_string,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
        )
        answer = await client.link.request(
            queue.broker_name,
            RequestCode.PULL_MESSAGE,
            header,
            timeout=polling / 1000 + REQUEST_TIMEOUT,
        )
        if answer.code not in _NOTHING:
            answer.check(queue.broker_name)
        following = answer.header(PullMessageResponseHeader).next_begin_offset or 0
        if not answer.ok:
            status = pb.Status(code=pb.MESSAGE_NOT_FOUND, message="no new message")
            return [
                pb.PullMessageResponse(status=status),
                pb.PullMessageResponse(next_offset=following),
            ]
        await self._turns.for_answer(call.owner, answer.size)
        messages = []
        plain = PlainBodies()
        try:
            for record in iter_records(answer.content()):
                if plain.full:
                    following = record.queue_offset
                    break
                if plain.turn_is_over():
                    await self._turns.next(call.owner, begun=True)
                message = incoming(record, queue.topic, max_body=self._config.max_message_size)
                messages.append(pb.PullMessageResponse(message=message))
                plain.add(message, record)
        except RecordError as error:
            raise ServiceError(pb.INTERNAL_SERVER_ERROR, str(error)) from None
        return [
            pb.PullMessageResponse(status=ok()),
            *messages,
            pb.PullMessageResponse(next_offset=following),
        ]

    async def update_offset(
        self, call: Call, request: pb.UpdateOffsetRequest
    ) -> pb.UpdateOffsetResponse:
        """Store a group's offset in a queue."""
        queue = _queue(request.message_queue)
        group = group_of(request.group)
        self._access.consume(call, group, queue.topic)
        client = self._clients.of(call)
        if request.offset < 0:
            raise ServiceError(pb.ILLEGAL_OFFSET, f"the offset is {request.offset}")
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=request.offset,
        )
        answer = await client.link.request(
            queue.broker_name, RequestCode.UPDATE_CONSUMER_OFFSET, header
        )
        answer.check(queue.broker_name)
        return pb.UpdateOffsetResponse(status=ok())

    async def get_offset(self, call: Call, request: pb.GetOffsetRequest) -> pb.GetOffsetResponse:
        """Return a group's offset in a queue."""
        queue = _queue(request.message_queue)
        group = group_of(request.group)
        self._access.consume(call, group, queue.topic)
        client = self._clients.of(call)
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id
        )
        answer = await client.link.request(
            queue.broker_name, RequestCode.QUERY_CONSUMER_OFFSET, header
        )
        found = answer.check(queue.broker_name).header(QueryConsumerOffsetResponseHeader)
        return pb.GetOffsetResponse(status=ok(), offset=found.offset or 0)

    async def query_offset(
        self, call: Call, request: pb.QueryOffsetRequest
    ) -> pb.QueryOffsetResponse:
        """Return the first or last offset of a queue, or the one for a time."""
        queue = _queue(request.message_queue)
        self._access.use(call, queue.topic)
        client = self._clients.of(call)
        topic, queue_id = queue.topic, queue.queue_id
        policy = request.query_offset_policy
        header: Header
        kind: type[_Found]
        if policy == pb.BEGINNING:
            code, kind = RequestCode.GET_MIN_OFFSET, GetMinOffsetResponseHeader
            header = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
        elif policy == pb.END:
            code, kind = RequestCode.GET_MAX_OFFSET, GetMaxOffsetResponseHeader
            header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        elif request.HasField("timestamp"):
            time = request.timestamp.seconds * 1000 + request.timestamp.nanos // 1_000_000
            code, kind = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetResponseHeader
            header = SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=time)
        else:
            raise ServiceError(pb.BAD_REQUEST, "the policy TIMESTAMP needs a timestamp")
        answer = await client.link.request(queue.broker_name, code, header)
        offset = answer.check(queue.broker_name).header(kind).offset
        return pb.QueryOffsetResponse(status=ok(), offset=offset)


def _queue(queue: pb.MessageQueue) -> MessageQueue:
    """Return the queue that a client names. Raises ServiceError."""
    topic = topic_of(queue.topic)
    if not queue.broker.name or queue.id < 0:
        raise ServiceError(
            pb.BAD_REQUEST, f"queue {queue.id} of broker {queue.broker.name!r:.100} is no queue"
        )
    return MessageQueue(topic, queue.broker.name, queue.id)
