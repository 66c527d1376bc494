"""PEEK_MESSAGE: returns the messages that a pop would deliver, without popping them.

Reference: broker PeekMessageProcessor.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.pop.pop_offset import PopOffset
from pocketmq.broker.processors.admin.topic import QUEUES_OF_STEP
from pocketmq.broker.processors.pop.access import MOST_MESSAGES, PopAccess
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import PeekMessageRequestHeader, PopMessageResponseHeader
from pocketmq.remoting.serving.dispatch import Answer, Dispatcher
from pocketmq.remoting.serving.long_requests import LongRequests, Steps, at_once, in_pieces
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import GetStatus

_FEW: Final = 512
"""Queues that are looked at in one go: a millisecond."""
_CORRECTED = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY)


class PeekProcessor:
    """Peeks of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        access: PopAccess,
        pop_offset: PopOffset,
        long: LongRequests,
    ) -> None:
        self._long = long
        self._config = config
        self._store = store
        self._access = access
        self._pop_offset = pop_offset

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the code here."""
        dispatcher.register(RequestCode.PEEK_MESSAGE, self.peek, PeekMessageRequestHeader)

    def peek(self, request: Request[PeekMessageRequestHeader]) -> Answer:
        """Answer with messages of any queue, and of the group's retry topics."""
        header = request.header
        if not 0 < header.max_msg_nums <= MOST_MESSAGES:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"maxMsgNums is {header.max_msg_nums}, it must be from 1 to {MOST_MESSAGES}",
            )
        topic = self._access.readable(header, request.connection)
        steps = self._peek(header, topic)
        few = header.queue_id >= 0 or topic.read_queue_nums <= _FEW
        return at_once(steps) if few else self._long.run(request, steps)

    def _peek(self, header: PeekMessageRequestHeader, topic: TopicConfig) -> Steps[Response]:
        buffers: list[bytes | memoryview] = []
        left, rest = header.max_msg_nums, 0
        for name, queues in self._queues(header, topic):
            for some in in_pieces(queues, QUEUES_OF_STEP):
                for queue_id, offset, end in self._pop_offset.unread(
                    header.consumer_group, name, some
                ):
                    rest += end - offset
                    if left > 0:
                        left -= self._read(name, queue_id, offset, left, buffers)
                yield
        found = bool(buffers)
        return Response(
            ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND,
            "FOUND" if found else "NO_MESSAGE_IN_QUEUE",
            PopMessageResponseHeader(pop_time=0, invisible_time=0, revive_qid=0, rest_num=rest),
            buffers,
        )

    def _queues(
        self, header: PeekMessageRequestHeader, topic: TopicConfig
    ) -> Iterator[tuple[str, Sequence[int]]]:
        count = topic.read_queue_nums
        if header.queue_id >= 0:
            yield header.topic, (header.queue_id,)
        else:
            start = random.randrange(count) if count else 0
            yield header.topic, (*range(start, count), *range(start))
        for _, retries in self._access.retry_topics(header.topic, header.consumer_group):
            yield retries.topic_name, range(retries.read_queue_nums)

    def _read(
        self, topic: str, queue_id: int, offset: int, most: int, buffers: list[bytes | memoryview]
    ) -> int:
        most_bytes = self._config.max_transfer_bytes_on_message_in_memory
        result = self._store.get(topic, queue_id, offset, most, max_bytes=most_bytes)
        if result.status in _CORRECTED:
            offset = result.next_begin_offset
            result = self._store.get(topic, queue_id, offset, most, max_bytes=most_bytes)
        buffers += result.buffers
        return result.message_count
