"""From process queues to handlers or iterations, and back: what both ways of consuming share.

A service hands out one message at a time (`take`) and is told how its work ended. It runs no task:
worker coroutines or the application's own loop take from it, woken by `wake`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from enum import Enum
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

from pocketmq.client.consumer.consumed_message import ConsumedMessage, Outcome
from pocketmq.client.consumer.dispatch.batch_waits import BatchWaits
from pocketmq.client.consumer.dispatch.consume_stats import ConsumeStats
from pocketmq.client.consumer.dispatch.failure_policy import FailurePolicy
from pocketmq.client.consumer.dispatch.handlers import AnyHandler
from pocketmq.client.consumer.dispatch.shown_names import ShownNames
from pocketmq.client.consumer.fetch.process_queue import ProcessQueue
from pocketmq.client.consumer.fetch.pull_limiter import PullLimiter
from pocketmq.client.log_fields import fields
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import MESSAGE_OVERHEAD
from pocketmq.message.payload import PayloadError

log = logging.getLogger(__name__)

Queue = ProcessQueue[ConsumedMessage]


#: Begins the work on a message. None when it has succeeded already, which is not reported; else
#: what to await, which tells the outcome and raises nothing but a cancellation.
Consume: TypeAlias = Callable[[ConsumedMessage], Awaitable[None] | None]

#: Gives a message back to the broker with a delay level and the reason (SendBack).
GiveBack: TypeAlias = Callable[
    [ConsumedMessage, int, BaseException | None], Coroutine[Any, Any, bool]
]


class Fate(Enum):
    """What becomes of a message that failed, as the log tells it."""

    REDELIVERED = "group %s: redelivering %s: %s"
    DROPPED = "group %s: dropping %s, because broadcast mode does not retry: %s"
    DEAD = "group %s: giving up %s, which goes to the dead letters: %s"


class Begun(NamedTuple):
    """Work that has to wait: `rest` is to be awaited; `left` more messages may have their turn."""

    message: ConsumedMessage
    rest: Awaitable[None]
    left: int


class ConsumeService(ABC):
    """Hands out the messages of one consumer.

    `send_back` returns a message to the broker with a delay level and the reason, and tells whether
    it was taken; None in broadcast mode, where what failed is dropped.
    """

    _outcome: Outcome
    _wake: Callable[[], None]

    def __init__(
        self,
        limiter: PullLimiter,
        stats: ConsumeStats,
        names: ShownNames,
        send_back: GiveBack | None,
        policy: FailurePolicy,
        handlers: Mapping[str, AnyHandler],
    ) -> None:
        self.stopped = False
        self._policy = policy
        self._limiter = limiter
        self._stats = stats
        self._names = names
        self._send_back = send_back
        self._ready: deque[Queue] = deque()
        self._waits = BatchWaits(handlers, names, limiter, self._has_messages)
        #: Messages that wait for a while, by timer.
        self._timers: dict[asyncio.TimerHandle, ConsumedMessage] = {}

    def connect(self, outcome: Outcome, wake: Callable[[], None]) -> None:
        """Have messages tell `outcome` how their work ends, and call `wake` when `take` may have
        something again."""
        self._outcome = outcome
        self._wake = wake

    @property
    def has_ready(self) -> bool:
        """Whether `take` may have something."""
        return bool(self._ready) and not self.stopped

    def arrived(self, pq: Queue) -> None:
        """The queue has messages that were read just now, or were held back."""
        self._waits.arrived(pq, monotonic())
        self._has_messages(pq)

    def _has_messages(self, pq: Queue) -> None:
        if not pq.ready:
            pq.ready = True
            self._ready.append(pq)
        self._wake()

    def run(self, consume: Consume, count: int) -> Begun | None:
        """Have up to `count` messages worked on; ends with the first whose work has to wait."""
        for left in reversed(range(count)):
            message = self.take()
            if message is None:
                break
            rest = consume(message)
            if rest is not None:
                return Begun(message, rest, left)
            self.succeeded(message)
        return None

    @abstractmethod
    def take(self) -> ConsumedMessage | None:
        """The next message to work on; None while there is none, and then nothing is ready."""

    def take_more(self, first: ConsumedMessage, count: int) -> list[ConsumedMessage]:
        """Up to `count` messages to be worked on together with one that was taken: those of the
        same topic that follow in its queue and are there now."""
        pq: Queue = first.process_queue
        more: list[ConsumedMessage] = []
        if pq.dropped or pq.paused or self.stopped:
            return more
        names, buffer, now = self._names, pq.buffer, monotonic()
        same = first.topic if pq.retries or names.renames_all else None
        while buffer and len(more) < count:
            if same is not None and names.topic(buffer[0]) != same:
                break  # of another one, in the topic of retries
            more.append(self._hand_out(pq, now))
        return more

    @abstractmethod
    def succeeded(self, message: ConsumedMessage) -> None:
        """The work on the message is done."""

    @abstractmethod
    async def failed(self, message: ConsumedMessage, error: BaseException | None) -> None:
        """The message is to be worked on again. `error` says why, None for no reason worth a line;
        a ReconsumeLater says when."""

    def dropped(self, pq: Queue) -> None:
        """The queue was dropped: forget what waits in it."""
        self._waits.forget(pq)
        for timer, message in list(self._timers.items()):
            if message.process_queue is pq:
                timer.cancel()
                del self._timers[timer]

    def stop(self) -> None:
        """Hand out nothing any more."""
        self.stopped = True
        self._waits.stop()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _hand_out(self, pq: Queue, now: float) -> ConsumedMessage:
        # As `take` of the queue, for one: every message comes through here.
        message = pq.buffer.popleft()
        pq.unfinished[message.queue_offset] = message
        names = self._names
        message.process_queue = pq
        if message.stored_body is None:
            message.stored_body = message.body
        message.outcome = self._outcome
        if pq.retries or names.renames_all:
            message.topic = names.topic(message)
        message.began = now
        if message.settled:  # before it was put back
            message.settled = False
        return message

    def _finish(self, message: ConsumedMessage) -> bool:
        """Stop counting the message; return False if it did not count before."""
        pq: Queue = message.process_queue
        if not pq.done(message):
            return False
        if not pq.dropped:
            self._limiter.remove_one(pq, len(message.stored_body) + MESSAGE_OVERHEAD)
        return True

    def _count(self, message: ConsumedMessage, *, ok: bool) -> None:
        stats = self._stats.topics[message.topic]
        if ok:
            stats.ok += 1
        else:
            stats.failed += 1
        now = monotonic()
        stats.seconds += now - message.began
        message.process_queue.consumed_at = now

    def _later(
        self, delay: float, action: Callable[[ConsumedMessage], object], message: ConsumedMessage
    ) -> None:
        def due() -> None:
            del self._timers[timer]
            action(message)

        if not self.stopped:
            timer = asyncio.get_running_loop().call_later(delay, due)
            self._timers[timer] = message

    def _say(self, message: ConsumedMessage, error: BaseException | None, fate: Fate) -> None:
        """One log line, with a traceback for what was not raised on purpose."""
        if error is None and fate is Fate.REDELIVERED:
            return
        traceback = None
        why = text_of(error)
        level = logging.WARNING
        if error is None or isinstance(error, ReconsumeLater):
            why = why or "its handler asked for it"
            level = logging.INFO if fate is Fate.REDELIVERED else logging.WARNING
        elif error.__traceback__ is None:  # nobody raised it: its work took too long, for example
            why = f"{type(error).__name__}: {why}"
        elif not isinstance(error, PayloadError):  # its traceback would only show the decoder
            why = "its handler failed"
            traceback = error
        log.log(
            level,
            fate.value,
            self._names.group,
            describe(message),
            why,
            exc_info=traceback,
            extra=self._fields(message),
        )

    def _fields(self, message: ConsumedMessage) -> dict[str, object]:
        return fields(
            group=self._names.group,
            queue=message.queue,
            topic=message.topic,
            msg_id=message.msg_id,
        )


def text_of(error: BaseException | None) -> str:
    """The text of an exception of the application; none where its class cannot tell."""
    try:
        return "" if error is None else str(error)
    except Exception:
        return ""


def describe(message: ConsumedMessage) -> str:
    """A message in a log line."""
    return (
        f"message {message.msg_id} of {message.topic} ({message.queue} offset "
        f"{message.queue_offset}, delivery {message.reconsume_times + 1})"
    )
