"""The outcome of messages: passed to the hooks and to the consume service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple

from pocketmq.client.consumer.consumed_message import BatchFailure, ConsumedMessage
from pocketmq.client.consumer.dispatch.consume_service import ConsumeService
from pocketmq.client.consumer.dispatch.shown_names import ShownNames
from pocketmq.client.instance import ClientInstance
from pocketmq.client.log_fields import fields
from pocketmq.client.observation.consume_hooks import ConsumeContext, ConsumeHookList
from pocketmq.message.message import MessageQueue

log = logging.getLogger(__name__)


class Work(NamedTuple):
    """The messages of one call of a handler, and the context for the hooks."""

    messages: list[ConsumedMessage]
    context: ConsumeContext


class Outcomes:
    """Receives the outcome of one consumer's messages (`consumed_message.Outcome`)."""

    def __init__(
        self,
        instance: ClientInstance,
        service: ConsumeService,
        names: ShownNames,
        hooks: ConsumeHookList,
    ) -> None:
        self.hooks = hooks
        self._instance = instance
        self._service = service
        self._names = names
        #: Id of a message in an `async with` of the application → its task.
        self._entered: dict[int, asyncio.Task[object] | None] = {}
        #: Id of the first message → work that has hooks or several messages.
        self._works: dict[int, Work] = {}
        self._calm = asyncio.Event()
        self._hurried = False

    async def begin(self, messages: list[ConsumedMessage]) -> Work:
        """Record that the handling of these messages begins, and call the hooks."""
        context = ConsumeContext(self._names.group, self._instance.client_id, messages)
        work = self._works[id(messages[0])] = Work(messages, context)
        await self.hooks.before(context)
        return work

    async def end(
        self, first: ConsumedMessage, error: BaseException | None, *, timed_out: bool = False
    ) -> Work | None:
        """Record that the work whose first message is `first` has ended, and call the hooks.

        Return the work; None if it was not recorded.
        """
        work = self._works.get(id(first))
        if work is not None:
            work.context.ended(error, timed_out=timed_out)
            await self.hooks.after(work.context)
        return work

    def forget(self, first: ConsumedMessage) -> None:
        """Forget the work whose first message is `first`, after its outcome is known. Until then, a
        cancellation needs it to find all messages."""
        self._works.pop(id(first), None)

    async def failed_together(
        self, messages: Sequence[ConsumedMessage], error: BaseException
    ) -> None:
        """Redeliver all messages whose outcome is not known; the reason is logged once."""
        unknown = [message for message in messages if not message.settled]
        if not unknown:
            return
        first, *others = unknown
        together = BatchFailure(first, error)
        await asyncio.gather(
            self._service.failed(first, error),
            *(self._service.failed(message, together) for message in others),
        )

    async def overdue(self, message: ConsumedMessage) -> None:
        """Fail the work whose first message is `message`: it takes too long."""
        error = TimeoutError("its work took longer than consume_timeout")
        work = await self.end(message, error, timed_out=True)
        await self.failed_together([message] if work is None else work.messages, error)
        self.forget(message)

    def lost(self, message: ConsumedMessage, error: BaseException) -> None:
        """Redeliver the work whose first message is `message`: its worker has ended."""
        work = self._works.pop(id(message), None)
        for each in [message] if work is None else work.messages:
            self.failed_soon(each, error)

    # Reports of messages (consumed_message.Outcome)

    def entered(self, message: ConsumedMessage) -> Awaitable[object] | None:
        self._entered[id(message)] = asyncio.current_task()
        return self.begin([message]) if self.hooks else None

    def worked(
        self, message: ConsumedMessage, error: BaseException | None
    ) -> Awaitable[object] | None:
        return self.end(message, error) if self._works else None

    def left(self, message: ConsumedMessage) -> None:
        self._entered.pop(id(message), None)
        if self._works:
            self._works.pop(id(message), None)
        self._calm.set()

    def shown_queue(self, queue: MessageQueue) -> MessageQueue:
        return self._names.queue(queue)

    def succeeded(self, message: ConsumedMessage) -> None:
        self._service.succeeded(message)

    async def failed(self, message: ConsumedMessage, error: BaseException | None) -> None:
        await self._service.failed(message, error)

    def failed_soon(self, message: ConsumedMessage, error: BaseException) -> None:
        if not self._service.stopped:
            self._instance.spawn(self._service.failed(message, error), "send back")

    # The end of the consumer

    def closed_by(self) -> None:
        """Make `drain` check again for which tasks it does not wait."""
        self._calm.set()

    async def abandon(self) -> None:
        """Call the hooks for all work in progress: it is cancelled."""
        for work in tuple(self._works.values()):
            await self.end(work.messages[0], asyncio.CancelledError())

    async def drain(self, timeout: float, closers: set[asyncio.Task[Any] | None]) -> None:
        """Wait up to `timeout` seconds until the application has left every `async with`.

        Does not wait for `closers`, the tasks that wait for the end of the consumer.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._hurried and not closers.issuperset(self._entered.values()):
                    self._calm.clear()
                    await self._calm.wait()
        late = sum(task not in closers for task in self._entered.values())
        if late:
            told = fields(group=self._names.group)
            log.warning(
                "messages that are still in progress will be redelivered: %d", late, extra=told
            )

    def hurry(self) -> None:
        """Make a current or later `drain` stop waiting."""
        self._hurried = True
        self._calm.set()
