"""A message as a push consumer hands it out; it tells the consumer how the work on it ends."""

from __future__ import annotations

from collections.abc import Awaitable
from types import TracebackType
from typing import Any, Protocol, Self

from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.parameters import instance
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import MessageExt, MessageQueue


class BatchFailure(ReconsumeLater):
    """Why a message fails together with the first of its batch; `reason` is what ended the batch.

    It has one line in the log, where the first message has the traceback.
    """

    def __init__(self, first: ConsumedMessage, reason: BaseException) -> None:
        super().__init__(f"it was in one batch with message {first.msg_id}")
        self.reason = reason


class Outcome(Protocol):
    """Hears how the work on messages goes."""

    def entered(self, message: ConsumedMessage) -> Awaitable[object] | None:
        """The work began, in the task that runs now. Await what is returned, if anything is."""

    def worked(
        self, message: ConsumedMessage, error: BaseException | None
    ) -> Awaitable[object] | None:
        """The work ended; how, comes next. Await as for `entered`."""

    def left(self, message: ConsumedMessage) -> None:
        """The outcome is known, and the block is left."""

    def shown_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as the application knows it."""

    def succeeded(self, message: ConsumedMessage) -> None:
        """The message is done."""

    async def failed(self, message: ConsumedMessage, error: BaseException | None) -> None:
        """The message is to be redelivered."""

    def failed_soon(self, message: ConsumedMessage, error: BaseException) -> None:
        """The same in the background, for a task that was cancelled."""


class ConsumedMessage(MessageExt):
    """A received message that is to be acknowledged.

        async for message in consumer:
            async with message:
                ...

    Leaving the block acknowledges the message. An exception (not a cancellation) is logged and ends
    there; the message is redelivered, up to the group's limit, and then moves to the dead letters.
    `ack` and `reconsume` do the same by hand; only the first call has an effect.

    A redelivered message has its original topic; `reconsume_times` counts.
    """

    process_queue: Any = None
    outcome: Any = None
    #: When it was handed out, seconds of the monotonic clock. Until then, where messages wait for
    #: others to fill a batch, when it was read.
    began: float = 0.0
    #: Whether the outcome was reported since then.
    settled: bool = False
    #: How often its broker has answered that it does not take it back.
    refusals: int = 0
    #: Those of its `reconsume_times` that its broker does not know of: it did not take it back.
    failures_here: int = 0
    #: The body as it was read: the application may change `body`. None before it is handed out.
    stored_body: Any = None

    @property
    def queue(self) -> MessageQueue:
        """The queue it was pulled from; one of %RETRY%group for a redelivered message."""
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
        """Have it redelivered; `delay_level`, and what it raises, as in ReconsumeLater.

        With `error`, what happens is what would if its handler had raised this: the consumer's
        `dead_letter_on` and `retry_delays` count. It is for single messages of a batch.
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
            except BaseException as ended:  # the block is not entered, so nothing else ends it
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
                except BaseException as ended:  # hooks log their own errors: it is cancelled
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
