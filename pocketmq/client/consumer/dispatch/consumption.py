"""The application's side of a push consumer: handlers, or a loop that iterates over messages."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from pocketmq.client.consumer.consume_hooks import ConsumeContext, ConsumeHookList
from pocketmq.client.consumer.consumed_message import ConsumedMessage, ReconsumeLater
from pocketmq.client.consumer.dispatch.consume_concurrently import ConsumeConcurrently
from pocketmq.client.consumer.dispatch.consume_orderly import ConsumeOrderly
from pocketmq.client.consumer.dispatch.consume_service import ConsumeService
from pocketmq.client.consumer.dispatch.consume_stats import ConsumeStats
from pocketmq.client.consumer.dispatch.handlers import AnyHandler, Batched, is_failure
from pocketmq.client.consumer.dispatch.send_back import SendBack
from pocketmq.client.consumer.dispatch.workers import Workers
from pocketmq.client.consumer.fetch.pull_limiter import FlowControl
from pocketmq.client.consumer.rebalance.assignment import Assignment
from pocketmq.client.instance import ClientInstance
from pocketmq.client.log_fields import fields
from pocketmq.message import properties as names
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.message.message import MessageQueue

__all__ = ["ConsumeOptions", "Consumption"]

log = logging.getLogger(__name__)

#: The delay level of a message whose work took too long, as the Java client's.
OVERDUE_LEVEL = 3
#: Who iterates gives the event loop a turn after so many messages.
TURN = 32
#: Deliveries after the first, of a concurrent consumer, until a message is a dead letter.
MAX_RECONSUME_TIMES = 16
#: What brokers are told by orderly consumers without a limit.
UNLIMITED = 2**31 - 1


class ConsumeOptions(msgspec.Struct, frozen=True):
    """What PushConsumer says of its options of these names. `group` is its name on the wire."""

    group: str
    orderly: bool
    broadcast: bool
    concurrency: int
    max_reconsume_times: int | None
    suspend_current_queue: float

    @property
    def retry_topic(self) -> str:
        return RETRY_PREFIX + self.group


class _Work(NamedTuple):
    """Messages that are worked on together, and what hooks are told of it."""

    messages: list[ConsumedMessage]
    context: ConsumeContext


class Consumption:
    """Hands the messages of a service to the handlers of their topics, or to who iterates.

    It is what messages tell their outcome to (client.consumer.consumed_message.Outcome).
    """

    def __init__(
        self,
        instance: ClientInstance,
        options: ConsumeOptions,
        handlers: Mapping[str, AnyHandler],
        hooks: ConsumeHookList,
        flow: FlowControl,
    ) -> None:
        """`handlers` by topic as the application knows it; none: there is iteration."""
        self.handlers = handlers
        self._hooks = hooks
        self.renames_all = bool(instance.namespace)
        self.stats = ConsumeStats(monotonic)
        self.service = self._make_service(instance, options, flow)
        self.workers = Workers(options.concurrency, self.service, instance.spawn, self._overdue)
        self._instance = instance
        self.group = instance.namespace.unwrap(options.group)
        self._retry_topic = options.retry_topic
        #: Messages in an `async with` of the application, each with its task.
        self._entered: dict[int, asyncio.Task[object] | None] = {}
        #: What hooks were told of, or several work on together, by the id of the first message.
        self._observed: dict[int, _Work] = {}
        self._handed_out = 0
        self._arrival = asyncio.Event()
        self._calm = asyncio.Event()

    def _make_service(
        self, instance: ClientInstance, options: ConsumeOptions, flow: FlowControl
    ) -> ConsumeService:
        limit = options.max_reconsume_times
        send_back = None
        if not options.broadcast:
            unlimited = UNLIMITED if options.orderly else MAX_RECONSUME_TIMES
            send_back = SendBack(instance, options.group, unlimited if limit is None else limit)
        if not options.orderly:
            return ConsumeConcurrently(flow, self.stats, self, send_back)
        return ConsumeOrderly(
            flow,
            self.stats,
            self,
            send_back,
            suspend=options.suspend_current_queue,
            max_reconsume_times=limit,
            locked=not options.broadcast,
        )

    # What the service asks

    def wake(self) -> None:
        if self.handlers:
            self.workers.wake()
        else:
            self._arrival.set()

    def shown_topic(self, message: ConsumedMessage) -> str:
        topic = message.topic
        if topic == self._retry_topic:
            topic = message.properties.get(names.RETRY_TOPIC, topic)
        return self._instance.namespace.unwrap(topic)

    def shown_queue(self, queue: MessageQueue) -> MessageQueue:
        return self._instance.namespace.unwrap_queue(queue) if self.renames_all else queue

    # Handlers

    async def work(self, message: ConsumedMessage) -> object:
        """Have a message's handler work on it alone; raises what it raises."""
        return await self._call([message])

    async def _call(self, messages: list[ConsumedMessage]) -> object:
        handler = self.handlers.get(messages[0].topic)
        if handler is None:
            raise ReconsumeLater(f"there is no handler for topic {messages[0].topic}")
        if isinstance(handler, Batched):
            return await handler.work(messages)
        result = handler(messages[0])
        if inspect.isawaitable(result):
            result = await result
        return result

    def consume(self, message: ConsumedMessage) -> Awaitable[None] | None:
        handler = self.handlers.get(message.topic)
        if handler is None or type(handler) is Batched or self._hooks:
            return self._consume_observed(message, handler)
        try:
            result = handler(message)  # type: ignore[operator]  # no Batched comes here
        except BaseException as error:
            if not is_failure(error):
                raise
            return self.service.failed(message, error)
        if result is not None and inspect.isawaitable(result):
            return self._await(message, result)
        return None

    async def _await(self, message: ConsumedMessage, result: Awaitable[object]) -> None:
        try:
            await result
        except BaseException as error:
            if not is_failure(error):
                raise
            await self.service.failed(message, error)
        else:
            self.service.succeeded(message)

    async def _consume_observed(self, first: ConsumedMessage, handler: AnyHandler | None) -> None:
        messages = [first]
        if isinstance(handler, Batched):
            messages += self.service.take_more(first, handler.size - 1)
        work = self._begin(messages)
        try:
            # The handler's own list: what it does to it does not matter here.
            await self._call(list(messages))
        except BaseException as error:
            if not is_failure(error):
                raise
            self._end(first, error)
            await self._failed_together(work.messages, error)
        else:
            self._end(first, None)
            for message in work.messages:
                self.service.succeeded(message)

    async def _failed_together(
        self, messages: Sequence[ConsumedMessage], error: BaseException
    ) -> None:
        """All come again but those whose outcome is known; the log says why once."""
        unknown = [message for message in messages if not message.settled]
        if not unknown:
            return
        first, *others = unknown
        level = error.delay_level if isinstance(error, ReconsumeLater) else 0
        together = ReconsumeLater(f"with {first.msg_id}", delay_level=level)
        await asyncio.gather(
            self.service.failed(first, error),
            *(self.service.failed(message, together) for message in others),
        )

    async def _overdue(self, message: ConsumedMessage) -> None:
        error = ReconsumeLater("its work took too long", delay_level=OVERDUE_LEVEL)
        work = self._end(message, error, timed_out=True)
        await self._failed_together([message] if work is None else work.messages, error)

    def _begin(self, messages: list[ConsumedMessage]) -> _Work:
        context = ConsumeContext(self.group, self._instance.client_id, messages)
        work = self._observed[id(messages[0])] = _Work(messages, context)
        self._hooks.before(context)
        return work

    def _end(
        self, first: ConsumedMessage, error: BaseException | None, *, timed_out: bool = False
    ) -> _Work | None:
        """The work on what begins with this message has ended, if nobody said so before."""
        work = self._observed.pop(id(first), None)
        if work is not None:
            work.context.ended(error, timed_out=timed_out)
            self._hooks.after(work.context)
        return work

    # Iteration

    async def next(self) -> ConsumedMessage | None:
        """The next message, waiting for it; None when the service has stopped."""
        self._handed_out += 1
        if self._handed_out % TURN == 0:
            await asyncio.sleep(0)
        while True:
            message = self.service.take()
            if message is not None or self.service.stopped:
                return message
            self._arrival.clear()
            await self._arrival.wait()

    def entered(self, message: ConsumedMessage) -> None:
        self._entered[id(message)] = asyncio.current_task()
        if self._hooks:
            self._begin([message])

    def worked(self, message: ConsumedMessage, error: BaseException | None) -> None:
        if self._observed:
            self._end(message, error)

    def left(self, message: ConsumedMessage) -> None:
        self._entered.pop(id(message), None)
        self._calm.set()

    def succeeded(self, message: ConsumedMessage) -> None:
        self.service.succeeded(message)

    async def failed(self, message: ConsumedMessage, error: BaseException | None) -> None:
        await self.service.failed(message, error)

    def failed_soon(self, message: ConsumedMessage, error: BaseException) -> None:
        if not self.service.stopped:
            self._instance.spawn(self.service.failed(message, error), "send back")

    # Ends

    async def expire(self, age: float, assignment: Assignment[ConsumedMessage]) -> None:
        """What is in work for `age` seconds counts as failed."""
        if self.handlers:
            self.workers.expire(age)
            return
        limit = monotonic() - age
        late = [
            message
            for pq in assignment.queues
            for message in pq.unfinished.values()
            if message.began <= limit and not message.settled
        ]
        for message in late:
            await self._overdue(message)

    def stop(self) -> None:
        """Hand out nothing more; iterations end."""
        self.service.stop()
        self._arrival.set()

    def closed_by(self, task: asyncio.Task[Any] | None) -> None:
        """The task waits for the end of the consumer: its own work is not waited for."""
        self.workers.closed_by(task)
        self._calm.set()

    async def drain(self, timeout: float) -> None:
        """Let the work under way end, for `timeout` seconds; handlers are cancelled then."""
        await self.workers.drain(timeout)
        for work in tuple(self._observed.values()) if self.handlers else ():
            self._end(work.messages[0], asyncio.CancelledError())
        try:
            async with asyncio.timeout(timeout):
                while not self.workers.closers.issuperset(self._entered.values()):
                    self._calm.clear()
                    await self._calm.wait()
        except TimeoutError:
            log.warning(
                "%d messages are still in work",
                len(self._entered),
                extra=fields(group=self.group),
            )
