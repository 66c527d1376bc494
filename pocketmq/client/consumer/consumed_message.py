"""A message as a push consumer delivers it; through it, the application reports the outcome."""

from __future__ import annotations

from collections.abc import Awaitable
from types import TracebackType
from typing import Any, Protocol, Self

from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.parameters import instance
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import MessageExt, MessageQueue


class BatchFailure(ReconsumeLater):
    """The error of a message whose batch failed; `reason` is the error of the batch.

    It is logged in one line; the first message of the batch is logged with the traceback.
    """

    def __init__(self, first: ConsumedMessage, reason: BaseException) -> None:
        super().__init__(f"it was in one batch with message {first.msg_id}")
        self.reason = reason


class Outcome(Protocol):
    """Receives the progress and the outcome of messages."""

    def entered(self, message: ConsumedMessage) -> Awaitable[object] | None:
        """Report that handling begins, in the current task. Await the returned object, if any."""

    def worked(
        self, message: ConsumedMessage, error: BaseException | None
    ) -> Awaitable[object] | None:
        """Report that handling has ended; the outcome follows. Await as for `entered`."""

    def left(self, message: ConsumedMessage) -> None:
        """Report that the `async with` block was left, after the outcome."""

    def shown_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the topic name of the application."""

    def succeeded(self, message: ConsumedMessage) -> None:
        """Report that the message was consumed."""

    async def failed(self, message: ConsumedMessage, error: BaseException | None) -> None:
        """Report that the message has to be redelivered."""

    def failed_soon(self, message: ConsumedMessage, error: BaseException) -> None:
        """Do as `failed`, in the background, for a task that was cancelled."""


class ConsumedMessage(MessageExt):
    """A received message that is to be acknowledged.

        async for message in consumer:
            async with message:
                ...

    Leaving the block acknowledges the message. An exception (except a cancellation) is logged and
    suppressed; the message is redelivered up to the group's limit, and then moves to the dead
    letters. `ack` and `reconsume` do the same explicitly; only the first call has an effect.

    A redelivered message has its original topic; `reconsume_times` counts the redeliveries.
    """

    process_queue: Any = None
    outcome: Any = None
    #: When it was delivered, seconds of the monotonic clock. While it waits for others to fill a
    #: batch: when it was pulled.
    began: float = 0.0
    #: Whether its outcome was reported.
    settled: bool = False
    #: How often its broker refused to take it back.
    refusals: int = 0
    #: Local retries: the part of `reconsume_times` that its broker does not know of.
    failures_here: int = 0
    #: The body as it was pulled: the application may change `body`. None before the delivery.
    stored_body: Any = None

    @property
    def queue(self) -> MessageQueue:
        """The queue that it was pulled from; one of %RETRY%group for a redelivered message."""
        if self.process_queue is None:
            return MessageQueue(self.topic, self.broker_name, self.queue_id)
        pq: ProcessQueue[ConsumedMessage] = self.process_queue
        outcome: Outcome = self.outcome
        return outcome.shown_queue(pq.queue)

    def ack(self) -> None:
        """Acknowledge the message. Its offset is stored with the next commit."""
        outcome: Outcome = self.outcome
        outcome.succeeded(self)

    async def reconsume(self, delay_level: int = 0, *, error: Exception | None = None) -> None:
        """Redeliver the message; `delay_level` and the errors are those of ReconsumeLater.

        `error` has the same effect as if the handler had raised it: the consumer's `dead_letter_on`
        and `retry_delays` apply. Use it for single messages of a batch.
        """
        outcome: Outcome = self.outcome
        if error is None:
            error = ReconsumeLater(delay_level=delay_level)
        elif delay_level:
            raise ValueError("only one of delay_level and error may be given")
        await outcome.failed(self, instance("error", error, Exception))

    async def __aenter__(self) -> Self:
        outcome: Outcome = self.outcome
        if (hooks := outcome.entered(self)) is not None:
            try:
                await hooks
            except BaseException as ended:  # `__aexit__` will not run
                outcome.failed_soon(self, ended)
                outcome.left(self)
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        outcome: Outcome = self.outcome
        try:
            if (hooks := outcome.worked(self, error)) is not None:
                try:
                    await hooks
                except BaseException as ended:  # a cancellation: errors of hooks are logged
                    outcome.failed_soon(self, ended)
                    raise
            if error is None:
                outcome.succeeded(self)
            elif isinstance(error, Exception):
                await outcome.failed(self, error)
                return True
            else:
                outcome.failed_soon(self, error)
        finally:
            outcome.left(self)
        return False
