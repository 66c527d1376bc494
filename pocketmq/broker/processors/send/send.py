"""SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE: the broker's hot path.

`send` is straight-line code for ordinary messages, the fast path. One dict lookup tells that the
topic has passed every check before. Properties are searched, not parsed; the broker's properties
are added as one prepared text, and the answer is built from integers. Unusual messages take the
slow path: the first one to a topic, one to a retry topic, a batch, a property that needs work.

With SYNC_FLUSH, or if the broker waits for replicas, a send is answered when it is safe. Until then
it counts as in flight; above the limits, sends are refused with SYSTEM_BUSY. Reference: broker
SendMessageProcessor.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from pocketmq.broker.acknowledge.put_safety import PutSafety
from pocketmq.broker.acknowledge.unwritten_sends import UnwrittenSends
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.put_hooks import recall_handle
from pocketmq.broker.inner_message import PutHooks
from pocketmq.broker.processors.send.checks import (
    LastingRefusal,
    SendChecks,
    SendHeader,
    batch_of_client,
    leaves_the_line,
    of_batch,
    queue_by_priority,
)
from pocketmq.broker.processors.send.context import SEPARATOR, SendContext, Target, line_type
from pocketmq.broker.processors.send.send_many import SendMany
from pocketmq.broker.processors.send.send_runs import SendRuns
from pocketmq.broker.statistics.message_types import SMALL, large_bucket
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.broker.tables.topic_config import PERM_WRITE
from pocketmq.message import properties as names
from pocketmq.message.batch_body import BatchBodyError, ReservedInBatch
from pocketmq.message.identity import new_unique_id
from pocketmq.message.limits import DLQ_PREFIX, HALF_TOPIC, MAX_TOPIC_LENGTH, RETRY_PREFIX
from pocketmq.message.properties import SHARDING_KEY, find
from pocketmq.message.tags import tag_hash
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from pocketmq.remoting.serving.dispatch import Answer, Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import PutResult, PutStatus

SendRequest = Request[Any]  # header: SendHeader

MOST_REFUSALS: Final = 256
"""The most cached refusals: clients can use any topic and any queue id."""

_PUT_OK: Final = PutStatus.PUT_OK


class SendProcessor:
    """The sends of one broker.

    `store_host` is the broker's packed address for message ids; `announced` returns when the name
    servers have every topic.

    Attributes:
        unflushed: the sends that wait for the disk, or for replicas.
        refusals: cached answers to sends that were refused, by topic and queue id.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        put_hooks: PutHooks,
        checks: SendChecks,
        statistics: Statistics,
        unwritten: UnwrittenSends,
        safety: PutSafety,
        store_host: bytes,
        announced: Callable[[], Awaitable[None]],
    ) -> None:
        self._announced = announced
        self._config = config
        self._store = store
        self._put_hooks = put_hooks
        self._checks = checks
        self._statistics = statistics
        context = self._context = SendContext(config, safety, unwritten, store_host)
        self.unflushed = context.unflushed
        self._many = SendMany(config, store, put_hooks, statistics, context)
        self._runs = SendRuns.find(store, statistics, context, store_host)
        # Copied here for the hot path: one attribute lookup less for each.
        self._targets = context.targets
        self.refusals = context.refusals
        self._answers = context.answers
        self._detailed = statistics.detailed
        self._safety = safety
        self._suffix = context.suffix
        self._stored_message = context.stored_message
        self._stored_batch = context.stored_batch
        self._plain = context.plain
        self._unwritten = unwritten
        self._note_unwritten = unwritten.note

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the send codes here."""
        for code, header in (
            (RequestCode.SEND_MESSAGE, SendMessageRequestHeader),
            (RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2),
        ):
            dispatcher.register(code, self.send, header, many=self._many.send_many)
        dispatcher.register(RequestCode.SEND_BATCH_MESSAGE, self.send, SendMessageRequestHeaderV2)
        if self._runs is not None:
            self._runs.register(dispatcher)

    def forget_target(self, topic: str) -> None:
        """Check a topic again at its next send: it changed."""
        self._targets.pop(topic, None)
        self.refusals.clear()

    def forget_targets(self) -> None:
        """Check every topic again at its next send: a permission changed."""
        self._targets.clear()
        self.refusals.clear()

    def send(self, request: SendRequest) -> Answer:
        """Store one message or one batch; return None if the answer comes later.

        For single messages this repeats the code of `SendMany.send_many`, which takes 13 µs for one
        message; this takes 9 µs (bench.stages).
        """
        header = request.header
        target = self._targets.get(header.topic)
        if target is None or self.unflushed.full:
            return self._send_checked(request)
        properties: str = header.properties
        if leaves_the_line(properties):
            return self._send_checked(request)
        body = request.body
        queue_id = header.queue_id
        if queue_id >= target.queue_limit or not body:
            return self._send_checked(request)
        if queue_id < 0:
            queue_id = random.randrange(target.write_queues)
        if header.batch:
            return self._store_batch(request, target, queue_id, properties, prepare=self._plain)

        unique_id = find(properties, "UNIQ_KEY")
        if properties and properties[-1] != SEPARATOR:
            properties += SEPARATOR
        if unique_id is None:
            unique_id = new_unique_id()
            properties = f"{properties}UNIQ_KEY\x01{unique_id}\x02"
        tag = find(properties, "TAGS")
        result = self._store.put(
            header.topic,
            queue_id,
            body,
            properties + self._suffix,
            flag=header.flag,
            sys_flag=header.sys_flag | target.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=request.connection.peer_packed,
            reconsume_times=header.reconsume_times,
            tags_code=0 if tag is None else tag_hash(tag),
        )
        if result.status is not _PUT_OK:
            return self._answers.not_stored(result)
        size = result.end_offset - result.physical_offset
        traffic = target.traffic
        traffic.messages += 1
        traffic.times += 1
        traffic.size += size
        traffic = self._statistics.put
        traffic.messages += 1
        traffic.times += 1
        traffic.size += size
        if self._detailed:
            if SHARDING_KEY in properties:
                target.types.add(line_type(properties), size)
            elif size > SMALL:
                target.types.large[large_bucket(size)] += 1
        waits = self._safety.waits and find(properties, "WAIT") != "false"
        if not waits:
            self._note_unwritten((request.channel, request.opaque))
        if self._plain and (not waits or request.takes_frames):
            frame = self._stored_message.encode(
                request.serialize_type, request.opaque, result.physical_offset, queue_id,
                result.queue_offset, unique_id,
            )  # fmt: skip
            if not waits:
                return frame
            self.unflushed.answer_when_safe(((request, frame),), result.end_offset, size)
            return None
        answer = self._answers.header(
            self._answers.msg_id(result.physical_offset), queue_id, result.queue_offset, unique_id
        )
        if waits:
            self.unflushed.answer_when_safe(((request, answer),), result.end_offset, size)
            return None
        return Response(0, None, answer)

    # --- slow path --------------------------------------------------------------------------

    def _send_checked(self, request: SendRequest) -> Answer:
        """Store a send with every check, in the reference's order."""
        header: SendHeader = request.header
        waiting = self.unflushed
        refusal = self.refusals.get((header.topic, header.queue_id))
        if refusal is not None and request.body and not waiting.full:
            return refusal
        try:
            if waiting.full:
                raise RemotingError(
                    ResponseCode.SYSTEM_BUSY,
                    "[OVERLOAD]system busy, start flow control for a while: "
                    f"{waiting.count} sends of {waiting.size} bytes wait",
                )
            topic = self._checks.topic(request)
            target = self._target(topic)
            if header.queue_id >= target.queue_limit:
                raise LastingRefusal(
                    ResponseCode.INVALID_PARAMETER,
                    f"request queueId[{header.queue_id}] is illegal, topic {topic.topic_name} has "
                    f"{topic.read_queue_nums} read and {topic.write_queue_nums} write queues",
                )
            if header.batch:
                return self._send_batch(request, topic, target)
            return self._send_single(request, topic, target)
        except LastingRefusal as error:
            return self._refused(header, error)
        except RemotingError as error:
            return self._answers.refusal(error.code, error.remark)

    def _refused(self, header: SendHeader, error: LastingRefusal) -> Response:
        """Return the answer, and cache it."""
        refusals = self.refusals
        answer = Response.repeatable(error.code, error.remark, self._answers.header())
        if len(refusals) >= MOST_REFUSALS:
            refusals.clear()
        if len(header.topic) <= MAX_TOPIC_LENGTH:
            refusals[header.topic, header.queue_id] = answer
        return answer

    def _target(self, topic: TopicConfig) -> Target:
        name = topic.topic_name
        target = self._targets.get(name)
        if target is None:
            target = Target(topic, self._statistics.put_of(name), self._statistics.types_of(name))
            # Do not cache topics that must be checked each time, topics without queues, and topics
            # that are not on the disk yet, whose answers have to wait.
            if (
                target.write_queues > 0
                and self._checks.is_saved(name)
                and not name.startswith(RETRY_PREFIX)
                and (not topic.order or self._config.broker_permission & PERM_WRITE)
            ):
                self._targets[name] = target
        return target

    def _send_single(self, request: SendRequest, topic: TopicConfig, target: Target) -> Answer:
        header: SendHeader = request.header
        queue_id = header.queue_id
        properties = names.decode(header.properties)
        if topic.topic_name.startswith(RETRY_PREFIX):
            self._checks.check_origin(request, properties)
            destination = self._checks.retry_destination(request, topic)
            if destination.dead_letter:
                topic = destination.topic
                target = self._target(topic)
                queue_id = 0
                properties[names.DELAY] = "-1"
        if queue_id < 0:
            queue_id = self._random_queue(target)
        queue_id = queue_by_priority(properties, queue_id, target.write_queues)
        inner = self._context.inner_message(request, topic.topic_name, queue_id, properties)
        inner.sys_flag |= target.sys_flag
        result = self._put_hooks.put(inner)
        if result.status is not _PUT_OK:
            return self._answers.not_stored(result)
        # A put hook may have moved it to another topic.
        size = result.end_offset - result.physical_offset
        self._statistics.count_put(inner.topic, size, inner.properties)
        if inner.topic == HALF_TOPIC:
            self._statistics.transactions.begin(topic.topic_name)
        if topic.topic_name.startswith(DLQ_PREFIX) and header.topic.startswith(RETRY_PREFIX):
            origin = properties.get(names.RETRY_TOPIC, header.topic)
            self._statistics.count_dead_letter(origin, header.topic.removeprefix(RETRY_PREFIX))
        answer = self._answers.header(
            self._answers.msg_id(result.physical_offset),
            queue_id,
            result.queue_offset,
            properties[names.UNIQ_KEY],
        )
        answer.recall_handle = recall_handle(inner, header.topic, self._config.broker_name)
        if not self._checks.is_saved(topic.topic_name):
            return self._answer_when_known(request, answer, result, topic.topic_name)
        return self._answer(request, answer, result)

    def _send_batch(self, request: SendRequest, topic: TopicConfig, target: Target) -> Answer:
        header: SendHeader = request.header
        if topic.topic_name.startswith(RETRY_PREFIX):
            raise RemotingError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {topic.topic_name}",
            )
        properties = names.decode(header.properties)
        of_batch(properties)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random_queue(target)
        new = not self._checks.is_saved(topic.topic_name)
        return self._store_batch(request, target, queue_id, names.encode(properties), new=new)

    def _store_batch(
        self,
        request: SendRequest,
        target: Target,
        queue_id: int,
        properties: str,
        *,
        prepare: bool = False,
        new: bool = False,
    ) -> Answer:
        """Store a batch.

        The store appends `properties` to those of each message. With `prepare`, the answer may be a
        complete frame; for a `new` topic, it waits until the topic is on the disk.
        """
        header: SendHeader = request.header
        unique_id = find(properties, names.UNIQ_KEY)
        if properties and properties[-1] != SEPARATOR:
            properties += SEPARATOR
        put = partial(
            self._store.put_batch,
            header.topic,
            queue_id,
            properties_suffix=properties + self._suffix,
            flag=header.flag,
            sys_flag=header.sys_flag | target.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=request.connection.peer_packed,
            reconsume_times=header.reconsume_times,
        )
        try:
            try:
                result = put(request.body)
            except ReservedInBatch:
                result = put(batch_of_client(request.body))
        except BatchBodyError as error:
            return self._answers.refusal(ResponseCode.MESSAGE_ILLEGAL, str(error))
        except RemotingError as error:
            return self._answers.refusal(error.code, error.remark)
        if result.status is not _PUT_OK:
            return self._answers.not_stored(result)
        offsets = result.physical_offsets
        size = result.end_offset - result.physical_offset
        self._count(target, len(offsets), size)
        if self._detailed:
            kind = line_type(properties)
            for begin, end in itertools.pairwise((*offsets, result.end_offset)):
                target.types.add(kind, end - begin)
        msg_ids = self._answers.msg_ids(offsets)
        waits = self._safety.waits and find(request.header.properties, names.WAIT) != "false"
        if prepare and unique_id and (not waits or request.takes_frames):
            frame = self._stored_batch.encode(
                request.serialize_type, request.opaque, msg_ids.encode(), queue_id,
                result.queue_offset, unique_id,
            )  # fmt: skip
            if waits:
                self.unflushed.answer_when_safe(((request, frame),), result.end_offset, size)
                return None
            self._unwritten.add(request)
            return frame
        answer = self._answers.header(msg_ids, queue_id, result.queue_offset, unique_id)
        if new:
            return self._answer_when_known(request, answer, result, header.topic)
        return self._answer(request, answer, result)

    @staticmethod
    def _random_queue(target: Target) -> int:
        if target.write_queues <= 0:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, "the topic has no queue to write")
        return random.randrange(target.write_queues)

    def _count(self, target: Target, messages: int, size: int) -> None:
        for traffic in (target.traffic, self._statistics.put):
            traffic.add(messages, 1, size)

    async def _answer_when_known(
        self,
        request: SendRequest,
        answer: SendMessageResponseHeader,
        result: PutResult,
        topic: str,
    ) -> Response | None:
        """Answer when the topic is on the disk, and the name servers have it, since the producer
        may query its route.

        The message is stored already, so that messages of one connection keep their order. If the
        topic cannot be saved, the send is refused although it is stored: consumers may get the
        message twice, but it is not lost.
        """
        try:
            await self._checks.saved(topic)
        except RemotingError as error:
            return self._answers.refusal(error.code, error.remark)
        await self._announced()
        return self._answer(request, answer, result)

    def _answer(
        self, request: SendRequest, answer: SendMessageResponseHeader, result: PutResult
    ) -> Response | None:
        if not self._safety.waits or find(request.header.properties, names.WAIT) == "false":
            self._unwritten.add(request)
            return Response(0, None, answer)
        size = result.end_offset - result.physical_offset
        self.unflushed.answer_when_safe(((request, answer),), result.end_offset, size)
        return None
