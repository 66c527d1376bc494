"""A message as a push consumer hands it out: it knows whom to tell how its work ended."""

from __future__ import annotations

from collections.abc import Awaitable
from types import TracebackType
from typing import Any, Protocol, Self

from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.message.message import MessageExt, MessageQueue

__all__ = ["ConsumedMessage", "Outcome", "ReconsumeLater"]


class ReconsumeLater(Exception):
    """Raised by the work on a message to have it delivered again, without a traceback in the log.

    `delay_level`: when, 1…18 (1 s … 2 h); 0 to leave it to the broker, which waits longer each
    time; below 0 straight to the dead letters. In an orderly consumer the queue waits instead.
    """

    def __init__(self, reason: str = "", *, delay_level: int = 0) -> None:
        super().__init__(reason)
        self.delay_level = delay_level


class Outcome(Protocol):
    """Who is told how the work on messages goes."""

    def entered(self, message: ConsumedMessage) -> Awaitable[object] | None:
        """The work began, in the task that runs now. Await what is returned, if anything is."""

    def worked(
        self, message: ConsumedMessage, error: BaseException | None
    ) -> Awaitable[object] | None:
        """The work ended, in whichever way; that is told next. Await as for `entered`."""

    def left(self, message: ConsumedMessage) -> None:
        """It was told."""

    def shown_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as the application knows it."""

    def succeeded(self, message: ConsumedMessage) -> None:
        """The message is done."""

    async def failed(self, message: ConsumedMessage, error: BaseException | None) -> None:
        """The message is to come again."""

    def failed_soon(self, message: ConsumedMessage, error: BaseException) -> None:
        """The same in the background, for a task that was cancelled."""


class ConsumedMessage(MessageExt):
    """A received message that is to be acknowledged.

        async for message in consumer:
            async with message:
                ...

    Leaving the block acknowledges the message. An exception (not a cancellation) is logged and ends
    there; the message is delivered again, up to the group's limit, and then goes to the dead
    letters. `ack` and `reconsume` do the same by hand, once; what comes after the first is ignored.

    A message that was delivered again has its original topic; `reconsume_times` counts.
    """

    process_queue: Any = None
    outcome: Any = None
    #: When it was handed out, seconds of the monotonic clock.
    began: float = 0.0
    #: Whether the outcome was told since then.
    settled: bool = False
    #: How often its broker has answered that it does not take it back.
    refusals: int = 0
    #: Bytes that the pull limiter counts for it, noted before the application can change the body.
    counted: int = 0

    @property
    def queue(self) -> MessageQueue:
        """The queue it was pulled from: of %RETRY%group where it is delivered again."""
        if self.process_queue is None:
            return MessageQueue(self.topic, self.broker_name, self.queue_id)
        pq: ProcessQueue[ConsumedMessage] = self.process_queue
        outcome: Outcome = self.outcome
        return outcome.shown_queue(pq.queue)

    def ack(self) -> None:
        """The message is done. Its offset is stored with the next commit."""
        outcome: Outcome = self.outcome
        outcome.succeeded(self)

    async def reconsume(self, delay_level: int = 0) -> None:
        """Have it delivered again; `delay_level` as in ReconsumeLater."""
        outcome: Outcome = self.outcome
        await outcome.failed(self, ReconsumeLater(delay_level=delay_level))

    async def __aenter__(self) -> Self:
        outcome: Outcome = self.outcome
        if (hooks := outcome.entered(self)) is not None:
            await hooks
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
