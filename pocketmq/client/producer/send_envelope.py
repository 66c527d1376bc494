"""The steps of every kind of send.

In this order: check that the producer runs, and take a place among the sends in flight; call the
hooks with the user's message; wrap the topic with the namespace; check the message; choose the
queue of its key; prepare and send it; unwrap the result, and call the hooks with it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakSet

import msgspec

from pocketmq.client.errors import (
    FORKED,
    NOT_STARTED,
    BatchSendError,
    InvalidMessage,
    NotRunning,
    RemotingTimeout,
    SendTimeout,
)
from pocketmq.client.in_flight import InFlight
from pocketmq.client.loop_binding import LoopBinding
from pocketmq.client.namespace import Namespace
from pocketmq.client.observation.send_hooks import (
    AFTER,
    BEFORE,
    HookList,
    SendContext,
    SendKind,
)
from pocketmq.client.parameters import Seconds, message_queue, seconds, shown
from pocketmq.client.producer.accumulator import Accumulator, ConcurrentSends, Posted
from pocketmq.client.producer.batch import BatchPart
from pocketmq.client.producer.batch_sender import BatchSender
from pocketmq.client.producer.prepared_message import prepare
from pocketmq.client.producer.queue_choice import Selector, ShardingKey, key_property
from pocketmq.client.producer.sender import Sender
from pocketmq.client.send_result import SendResult
from pocketmq.client.validation import check_message, check_type
from pocketmq.message.identity import new_unique_id
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.codes import RequestCode

R = TypeVar("R", bound=SendResult | list[SendResult] | None)
Ts = TypeVarTuple("Ts")

#: Sentinel: not running. Not None, which `running_loop` may return.
NOWHERE = object()
#: Returns the running event loop. In a child process that a coroutine has forked, the public
#: function raises, and this one returns None.
running_loop = asyncio._get_running_loop


class SendEnvelope:
    """The calls of one producer.

    `group`: the producer group, without namespace. `selector` chooses the queue of a key.
    `timeout`: the default, in seconds. `max_message_size`: largest body, bytes.
    """

    def __init__(
        self,
        sender: Sender,
        batches: BatchSender,
        namespace: Namespace,
        hooks: HookList,
        in_flight: InFlight,
        binding: LoopBinding,
        selector: Selector,
        *,
        group: str,
        client_id: str,
        timeout: float,
        max_message_size: int,
    ) -> None:
        #: The producer's event loop; NOWHERE before the start, after the shutdown, and in a child
        #: process.
        self.loop: object = NOWHERE
        self._concurrent: ConcurrentSends
        #: Why the producer does not run, if it does not.
        self.why_not = NOT_STARTED
        self._binding = binding
        self._sender = sender
        self._batches = batches
        self._namespace = namespace
        self._hooks = hooks
        self._in_flight = in_flight
        self._selector = selector
        self._group = group
        self._client_id = client_id
        self.timeout = timeout
        self._max_message_size = max_message_size
        _every.add(self)

    def begin(self) -> None:
        """Accept calls from the event loop in which the client was started."""
        self.loop = self._binding.loop

    def end(self, why: str) -> None:
        """Refuse calls from now on, with the reason `why`."""
        self.loop = NOWHERE
        self.why_not = why

    def deadline(self, timeout: Seconds | None) -> float:
        """Return the deadline of a call that begins now; raises TypeError, ValueError for its
        timeout."""
        return time.monotonic() + (self.timeout if timeout is None else seconds("timeout", timeout))

    async def enter(self, topic: str, deadline: float) -> None:
        """Take a place among the sends in flight; raises NotRunning, SendTimeout."""
        self.check_running()
        if self._in_flight.try_enter():
            return
        left = max(deadline - time.monotonic(), 0.0)
        try:
            await self._in_flight.enter(left)
        except RemotingTimeout as error:
            raise SendTimeout(topic, left, (), error) from None
        if self.loop is NOWHERE:
            self._in_flight.leave()
            raise self.not_running()

    def check_running(self) -> None:
        """Raise NotRunning before the start, after the shutdown, and in another loop or process."""
        if running_loop() is not self.loop:
            raise self.not_running()

    def not_running(self) -> NotRunning:
        """Return the error for a call that `check_running` refuses."""
        why = None if self.loop is NOWHERE else self._binding.why_elsewhere
        return NotRunning("producer", why or self.why_not)

    def share_by(self, concurrent: ConcurrentSends) -> None:
        """Set the handler of sends that may share a request; once, before the first send."""
        self._concurrent = concurrent

    def send(
        self,
        message: Message,
        queue: MessageQueue | None,
        key: ShardingKey | None,
        deadline: float,
        shares: bool,
    ) -> Coroutine[Any, Any, SendResult]:
        """Send one message, whose place is taken. `shares`: it may share a request with others."""
        if self._namespace.name:
            check_type(message)
            message = self._wrap(message)
            queue = queue and self._namespace.wrap_queue(queue)
        check_message(message, self._max_message_size)
        extra = ""
        if key is not None:
            route = self._sender.writable(message.topic)
            if route is None:
                return self._send_later(message, key, deadline, shares)
            queue = self._selector(route.publish.queues, message, key)
            extra = key_property(key)
        elif queue is not None:
            check_queue(queue, message.topic)
        if shares and self._in_flight.count > 1 and self._concurrent.takes(message):
            return self._concurrent.send(message, queue, deadline, extra)
        # What send_alone does, without its frame, for the send that everyone makes.
        outgoing = prepare(message, new_unique_id(), extra=extra + self._namespace.property)
        sending = self._sender.send(outgoing, queue, deadline)
        return self._named(sending) if self._namespace.name else sending

    async def _send_later(
        self, message: Message, key: ShardingKey, deadline: float, shares: bool
    ) -> SendResult:
        """Send a checked message with a key as soon as its topic has a route."""
        target = await self._target(message, key, deadline)
        extra = key_property(key)
        if shares and self._in_flight.count > 1 and self._concurrent.takes(message):
            return await self._concurrent.send(message, target, deadline, extra)
        return await self.send_alone(message, new_unique_id(), target, deadline, extra)

    def send_alone(
        self,
        message: Message,
        msg_id: str,
        target: MessageQueue | None,
        deadline: float,
        extra: str,
    ) -> Coroutine[Any, Any, SendResult]:
        """Send a checked message as a single request."""
        outgoing = prepare(message, msg_id, extra=extra + self._namespace.property)
        sending = self._sender.send(outgoing, target, deadline)
        return self._named(sending) if self._namespace.name else sending

    async def _named(self, sending: Coroutine[Any, Any, SendResult]) -> SendResult:
        return self._unwrap(await sending)

    async def send_one(
        self,
        kind: SendKind,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
        timeout: Seconds | None = None,
        code: RequestCode = RequestCode.SEND_MESSAGE_V2,
        extra: str = "",
        sys_flag: int = 0,
        entered: bool = False,
    ) -> SendResult:
        """Send one message. `extra`: encoded system properties; `sys_flag`: bits to set; `entered`:
        its place is already taken."""
        check_type(message)
        check_target(queue, key)
        extra += key_property(key)

        async def work(messages: Sequence[Message]) -> SendResult:
            message, target = await self._addressed(messages[0], queue, key, deadline)
            outgoing = prepare(message, new_unique_id(), extra=extra + self._namespace.property)
            outgoing.code = code
            outgoing.sys_flag |= sys_flag
            deliver = self._sender.reply if kind is SendKind.REPLY else self._sender.send
            [result] = self._unwrapped([await deliver(outgoing, target, deadline)])
            return result

        deadline = self.deadline(timeout)
        if not entered:
            await self.enter(message.topic, deadline)
        try:
            return await self._observed(kind, [message], work)
        finally:
            self._in_flight.leave()

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None,
        key: ShardingKey | None,
        timeout: Seconds | None,
    ) -> None:
        """Write one message to a connection."""
        check_target(queue, key)
        deadline = self.deadline(timeout)
        await self.enter(message.topic, deadline)
        try:
            await self._observed(SendKind.ONEWAY, [message], self._hand_over, queue, key, deadline)
        finally:
            self._in_flight.leave()

    async def _hand_over(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        key: ShardingKey | None,
        deadline: float,
    ) -> None:
        message, target = await self._addressed(messages[0], queue, key, deadline)
        extra = key_property(key) + self._namespace.property
        outgoing = prepare(message, new_unique_id(), extra=extra)
        await self._sender.send_oneway(outgoing, target, deadline)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None,
        key: ShardingKey | None,
        timeout: Seconds | None,
    ) -> list[SendResult]:
        """Send messages in batches."""
        check_target(queue, key)
        extra = key_property(key)

        async def work(messages: Sequence[Message]) -> list[SendResult]:
            messages = [self._wrap(message) for message in messages]
            target = queue and self._namespace.wrap_queue(queue)
            if key is not None and messages:
                check_message(messages[0], self._max_message_size)
                target = await self._target(messages[0], key, deadline)
            if target is not None:
                for message in messages:
                    check_queue(target, message.topic)
            return self._unwrapped(await self._batches.send(messages, target, deadline, extra))

        deadline = self.deadline(timeout)
        await self.enter(messages[0].topic if messages else "", deadline)
        try:
            return await self._observed(SendKind.BATCH, list(messages), work)
        except BatchSendError as error:
            error.failed = [
                message
                for message, result in zip(messages, error.results, strict=True)
                if result is None
            ]
            if self._namespace:
                error.results = [result and self._unwrap(result) for result in error.results]
            raise
        finally:
            self._in_flight.leave()

    async def post(
        self,
        accumulator: Accumulator,
        message: Message,
        queue: MessageQueue | None,
        key: ShardingKey | None,
    ) -> Posted:
        """Add one message to the accumulator."""
        check_target(queue, key)
        self.check_running()
        if not self._hooks:
            return await self._add(accumulator, message, queue, key)
        context = SendContext(SendKind.LINGERED, self._group, self._client_id, [message])
        if (waiting := self._hooks.call(BEFORE, context)) is not None:
            await waiting
        try:
            posted = await self._add(accumulator, context.messages[0], queue, key)
        except BaseException as error:
            context.ended(None, error)
            if (waiting := self._hooks.call(AFTER, context)) is not None:
                await waiting
            raise

        def answered() -> None:
            context.ended(posted.result, posted.error)
            self._hooks.after_answer(context)

        posted.when_done(answered)
        return posted

    async def alone(
        self, message: Message, queue: MessageQueue | None, key: ShardingKey | None
    ) -> Coroutine[Any, Any, SendResult]:
        """Take a place, and return the send of a posted message that is sent alone, to be awaited
        later. Raises the errors of the message before a place is taken."""
        check_target(queue, key)
        wrapped = self._wrap(message)
        check_message(wrapped, self._max_message_size)
        prepare(wrapped, "", extra=key_property(key) + self._namespace.property)
        await self.enter(message.topic, self.deadline(None))
        return self.send_one(SendKind.SINGLE, message, queue=queue, key=key, entered=True)

    async def send_plain(self, message: Message) -> SendResult:
        """Send a message of the client itself, without hooks and without taking a place."""
        outgoing = prepare(message, new_unique_id())
        return await self._sender.send(outgoing, None, self.deadline(None))

    async def send_accumulated(
        self, part: BatchPart, queue: MessageQueue | None
    ) -> list[SendResult]:
        """Send a batch of the accumulator."""
        return self._unwrapped(await self._batches.send_part(part, queue, self.deadline(None)))

    async def _add(
        self,
        accumulator: Accumulator,
        message: Message,
        queue: MessageQueue | None,
        key: ShardingKey | None,
    ) -> Posted:
        extra = key_property(key)
        message, target = await self._addressed(message, queue, key, self.deadline(None))
        if accumulator.full:
            await accumulator.room()
        return accumulator.add(message, target, extra)

    async def _observed(
        self,
        kind: SendKind,
        messages: list[Message],
        work: Callable[[Sequence[Message], *Ts], Awaitable[R]],
        *what: *Ts,
    ) -> R:
        """Run `work(messages, *what)`, whose place is taken, between the hooks."""
        hooks = self._hooks
        if not hooks:
            return await work(messages, *what)
        context = SendContext(kind, self._group, self._client_id, messages)
        if (waiting := hooks.call(BEFORE, context)) is not None:
            await waiting
        try:
            outcome = await work(context.messages, *what)
        except BaseException as error:
            context.ended(error.results if isinstance(error, BatchSendError) else None, error)
            raise
        else:
            context.ended(outcome, None)
            return outcome
        finally:
            if (waiting := hooks.call(AFTER, context)) is not None:
                await waiting

    async def _addressed(
        self,
        message: Message,
        queue: MessageQueue | None,
        key: ShardingKey | None,
        deadline: float,
    ) -> tuple[Message, MessageQueue | None]:
        message = self._wrap(message)
        check_message(message, self._max_message_size)
        if key is not None:
            # Without the frames of `_target` where the route is known.
            route = self._sender.writable(message.topic)
            if route is None:
                return message, await self._target(message, key, deadline)
            return message, self._selector(route.publish.queues, message, key)
        target = queue and self._namespace.wrap_queue(queue)
        check_queue(target, message.topic)
        return message, target

    async def _target(self, message: Message, key: ShardingKey, deadline: float) -> MessageQueue:
        queues = await self._sender.queues(message.topic, deadline)
        return self._selector(queues, message, key)

    def _wrap(self, message: Message) -> Message:
        return self._namespace.wrap_message(message) if self._namespace.name else message

    def _unwrap(self, result: SendResult) -> SendResult:
        return msgspec.structs.replace(result, queue=self._namespace.unwrap_queue(result.queue))

    def _unwrapped(self, results: list[SendResult]) -> list[SendResult]:
        return [self._unwrap(result) for result in results] if self._namespace else results


_every: WeakSet[SendEnvelope] = WeakSet()


def _end_all_in_child() -> None:
    # A child that continues in its parent's event loop would write to the parent's connections.
    # Checking the process id in every send would be slower.
    for calls in tuple(_every):
        if calls.loop is not NOWHERE:
            calls.end(FORKED)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_all_in_child)


def check_target(queue: MessageQueue | None, key: ShardingKey | None) -> None:
    """Check the arguments `queue` and `key` of a send, without the topic.

    Raises:
        TypeError, ValueError: the queue is not a MessageQueue, or the key is not a text or a whole
            number.
        InvalidMessage: there are both.
    """
    if queue is not None:
        message_queue("queue", queue)
        if key is not None:
            raise InvalidMessage(f"either a queue ({queue}) or a key ({key!r}), not both")
    # The exact type first, which is faster: this runs for every message with a key.
    if (
        key is not None
        and type(key) is not str
        and type(key) is not int
        and (isinstance(key, bool) or not isinstance(key, (str, int)))
    ):
        raise TypeError(f"key must be a text (str) or a whole number (int), not {shown(key)}")


def check_queue(queue: MessageQueue | None, topic: str) -> None:
    """Raise InvalidMessage if a queue is given and belongs to another topic."""
    if queue is not None and queue.topic != topic:
        raise InvalidMessage(f"queue must be a MessageQueue of topic {topic}, not {shown(queue)}")
